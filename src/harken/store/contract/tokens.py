"""The part of the store's contract that is about tokens: what lets programs and other machines in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from harken.model import Consumer, Mailbox, Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScope:
    """What a token is good for: what it `may` do with the messages of some mailboxes, and as whom it reads.

    `inbox.caller` says what the words mean.
    """

    may: frozenset[str]
    mailboxes: tuple[Mailbox, ...]
    consumer: Consumer
    trust: Trust | None = None  # of what it says; None: as of any program of this machine


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
    scope: TokenScope | None = None  # None: it is a machine's, whose connections say who they are


class TokenStore(Protocol):
    """Tokens. No event and no answer holds a secret or its hash."""

    async def add(self, token: Token, digest: bytes) -> Token:
        """Store a new token with the hash of its secret, made now.

        `Conflict` when one with this name, or with this hash, is in force. Journals `token`.
        """
        ...

    async def find(self, digest: bytes) -> Token | None:
        """Return the token with a secret that has this hash, revoked and expired ones too, until it has another."""
        ...

    async def use(self, token: str, machine: str, address: str) -> Token:
        """Note that a machine uses a token now, from an address; the first use binds the token to it.

        Without a machine nothing is bound. `Forbidden` when it is revoked, has expired or is bound to another machine:
        then nothing is noted. Journals `token` for the use that binds it only.
        """
        ...

    async def list(self) -> list[Token]:
        """Return all tokens, the oldest first."""
        ...

    async def revoke(self, name: str) -> Token:
        """End the token in force that has this name. `NotFound` when none has. Journals `token`."""
        ...
