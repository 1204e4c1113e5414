"""What Teams and Outlook share: the client of Microsoft Graph, signing in, and change notifications.

`client.py` is the door to the service: one request at a time per limit, repeated only where that is safe. What an
answer means (`responses.py`) is pure. Signing in is `sign_in.py` and
`account.py`; no token, code or key is part of any log, error or `repr`. Above are `teams` and `outlook`, below is
`sources/http.py`.
"""
