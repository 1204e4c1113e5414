"""Microsoft Graph as a source: a person's chats and mail, read politely, and answered.

`client.py` is the door to the service: one request at a time per limit, retried only where that is safe. What an
answer means (`verdict.py`) and whose turn it is (`limits.py`) are pure. Sign-in is in `tokens/`. Above are the sources
of chats and of mail, below is `sources/https`.
"""
