"""Outlook as a source: the mail of a person's folders, and answers to it.

`source.py` follows each folder by its changes, `checkpoint.py` is how far that got, `mail.py` makes drafts of mails and
says whether their sender is proven, and `sender.py` answers. Below is `microsoft`.
"""
