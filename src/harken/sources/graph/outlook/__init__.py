"""Outlook as a source: the mail of a person's folders, and answers to it.

`source.py` follows each folder by its changes, `place.py` is how far that got, `standing.py` how it is doing,
`reading.py` makes drafts of mails, `folding.py` takes the earlier mails out of an answer, `sender.py` answers, and
`marker.py` is the last line of an answer. Below are the Graph client and the model; above are the daemon and the
outbox.
"""
