"""Microsoft Graph as a source: a person's chats and mail, read politely, and answered.

`client.py` is the door to the service: one request at a time per limit, retried only where that is safe. What an
answer means (`verdict.py`), how long to wait (`retrying.py`) and where a token may go (`address.py`) are pure. Sign-in
is in `tokens/`. Above are the sources of chats and of mail, below are only the clock and the errors.
"""
