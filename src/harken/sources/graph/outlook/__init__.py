"""Outlook as a source: the mail of a person's folders, and answers to it.

`source.py` follows each folder by its changes, `place.py` is how far that got, `standing.py` how it is doing,
`reading.py` makes drafts of mails, `proof.py` says whether their sender is proven, `folding.py` takes out what the mail
that is answered had quoted, `sender.py` answers, and `marker.py` is the last line of an answer. Below are the Graph
client and the model; above are the daemon and the outbox.
"""
