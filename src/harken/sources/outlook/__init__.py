"""Outlook as a source: the mail of a person's folders, and answers to it.

`source.py` follows each folder by its changes, `checkpoint.py` is how far that got, `mail.py` makes drafts of mails and
says whether their sender is proven, `quote_stripping.py` takes out what the mail that is answered had quoted, and
`sender.py` answers. Below is `microsoft`.
"""
