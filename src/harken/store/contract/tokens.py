"""The part of the store's contract that is about tokens: what lets other machines in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a program elsewhere shows to be let in. Its secret is not stored, only a hash of it."""

    id: str
    name: str
    kind: str
    made_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    used_at: datetime | None = None
    used_from: str = ""  # the address of the last use
    bound_to: str = ""  # the id of the machine that used it first: no other may


class TokenStore(Protocol):
    """Tokens. No event and no answer holds a secret or its hash."""

    async def add(self, token: Token, digest: bytes) -> Token:
        """Store a new token with the hash of its secret, made now.

        `Conflict` when one with this name is in force. Journals `token`.
        """
        ...

    async def find(self, digest: bytes) -> Token | None:
        """Return the token with a secret that has this hash, revoked and expired ones too."""
        ...

    async def use(self, token: str, machine: str, address: str) -> Token:
        """Note that a machine uses a token now, from an address; the first use binds the token to it.

        `Forbidden` when it is revoked, has expired or is bound to another machine: then nothing is noted. Journals
        `token` for the first use only.
        """
        ...

    async def list(self) -> list[Token]:
        """Return all tokens, the oldest first."""
        ...

    async def revoke(self, name: str) -> Token:
        """End the token in force that has this name. `NotFound` when none has. Journals `token`."""
        ...
