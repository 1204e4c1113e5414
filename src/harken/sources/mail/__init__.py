"""Any mail account, over IMAP and SMTP: kind "imap".

`source.py` follows folders over `link.py`; `reading.py` makes drafts of what `mime.py` takes apart; `sender.py` answers
over SMTP with what `composing.py` writes. Nothing in a mailbox is changed, except that answers are kept if asked.
"""
