"""Signing in at Microsoft: access tokens for Graph, and what a person must do when there are none.

`delegated.py` signs a person in, by a code or in the browser, with msal (`app.py` is its door, `receiver.py` hears
the browser); `agent_user.py` gets tokens for an Agent User with a certificate. Both have `token`, as the Graph client
wants it, and hold one as `https/held.py` says. `cache.py` keeps a sign-in on disk, `service.py` alone talks to the
sign-in service; `refusals.py`, `settings.py` and `who.py` are pure. No token, code or key is part of any log, error or
`repr`. Above are the Graph client and the commands, below are only the clock and the errors.
"""
