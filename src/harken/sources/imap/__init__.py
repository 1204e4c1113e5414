"""Any mail account, over IMAP and SMTP: kind "imap".

`source.py` follows folders over `connection.py`; `messages.py` makes drafts of what `mime.py` takes apart; `sender.py`
answers over SMTP. Nothing in a mailbox is changed, except that answers are kept if asked.
"""
