"""What sources need to call a service over HTTPS, whichever service it is.

`wire.py` alone opens connections, and `answer.py` is what comes back. `address.py` says where a token may go,
`retrying.py` how long to wait, and `held.py` keeps a token and renews it in time. What an answer means is said by the
clients above, in `graph` and in `bot`. The sign-in of Graph has a way of its own, because msal blocks.
"""
