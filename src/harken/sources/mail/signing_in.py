"""What a mail server asks for before it lets somebody in: a name, a secret, and the certificates that are believed.

The secret is looked up each time somebody signs in, so that a new password or token is used without a restart. It is
never part of a message. Above are `link.py` and `smtp.py`; where secrets are kept is known to whoever makes this.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from harken.errors import HarkenError, NeedsPerson


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who signs in. `look_up` returns the secret, and may take a while."""

    source: str
    user: str
    look_up: Callable[[], str]
    is_token: bool = False
    trust: ssl.SSLContext | None = None  # None: the certificates of the system

    def secret(self) -> str:
        """Return the password or token; raises `NeedsPerson` if it is not there."""
        try:
            return self.look_up()
        except NeedsPerson:
            raise
        except HarkenError as error:
            raise NeedsPerson(error.message, error.hint, action=error.hint.rstrip(".")) from error

    def context(self) -> ssl.SSLContext:
        """Return how the way to the server is kept private."""
        return self.trust or ssl.create_default_context()

    def refused(self, host: str, said: str) -> NeedsPerson:
        """Return the error that says that the server does not let us in."""
        what = "token" if self.is_token else "password"
        return NeedsPerson(
            f"{host} refuses to sign {self.user} in{f': {said}' if said else '.'}",
            f"many providers want an app password; put a valid {what} where sources.{self.source}.{what} says",
            action=f"put a valid {what} where sources.{self.source}.{what} says",
        )
