"""What a request of the page carries instead of a secret: a proof that whoever made it holds the session's key.

The proof names the session, a ticket of this run of the daemon, a number, and a hash of the body; it is a keyed hash
over all of that with the method, the host and the address. So what is sent elsewhere, to another port or to another
program at this one, can be used for nothing else and by nobody else, and here only once. The daemon's answer carries
a proof too, by which the page knows that it is the daemon's. The same texts are made by `page/static/session.js`.
Knows no session; who holds which key is in `page_sessions.py`.

A ticket binds proofs to this run of the daemon. Anyone may have one; it is worth nothing without a session's key. It
begins to be used soon after it was given or never, and under each a page numbers its requests: a number counts once.
What is remembered is bounded, and what is forgotten is too old to begin again.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from harken.clock import Clock

PROOF_HEADER: Final = "harken-proof"
ANSWER_HEADER: Final = "harken-answer"
KEY_BYTES: Final = 32
HIGHEST: Final = 2**53 - 1  # the largest number a browser counts to

_FIELDS: Final = 5
_LONGEST: Final = 400
_SAFE: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """What a request asks, as it was sent: `target` is the path with its query, not decoded."""

    method: str
    host: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A proof as it came; nothing of it is believed yet."""

    session: str
    ticket: str
    number: int
    body: str
    signature: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the proof that a header holds, or None."""
        fields = text.split(" ")
        if (
            len(fields) != _FIELDS
            or len(text) > _LONGEST
            or not all(field and _SAFE.issuperset(field) for field in fields)
        ):
            return None
        session, ticket, number, body, signature = fields
        if not number.isdecimal() or not 0 < int(number) <= HIGHEST:
            return None
        return cls(session=session, ticket=ticket, number=int(number), body=body, signature=signature)

    def is_signed(self, key: bytes, asking: SignedRequest) -> bool:
        """Whether a key made it for what is asked."""
        return is_same(self.signature, signature_of(key, self, asking))


def signature_of(key: bytes, proof: Proof, asking: SignedRequest) -> str:
    """Return the signature that a proof must have."""
    parts = (proof.session, proof.ticket, str(proof.number), asking.method, asking.host, asking.target, proof.body)
    return tagged(key, "harken proof 1", *parts)


def answer_of(key: bytes, proof: Proof, status: int) -> str:
    """Return what proves to the page that an answer to its request is ours."""
    return tagged(key, "harken answer 1", proof.signature, str(status))


def tagged(key: bytes, purpose: str, *parts: str) -> str:
    """Return a keyed hash over parts, none of which holds a line break, for one purpose."""
    return encoded(hmac.digest(key, "\n".join((purpose, *parts)).encode(), hashlib.sha256))


def body_hash(body: bytes) -> str:
    """Return the hash of a body."""
    return encoded(hashlib.sha256(body).digest())


def is_same(given: str, right: str) -> bool:
    """Whether two texts are the same, in a time that tells nothing."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())


def encoded(data: bytes) -> str:
    """Return bytes as letters that need no quoting anywhere."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """Return the bytes of such letters."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def masked(data: bytes, pad: str) -> bytes:
    """Return bytes hidden under a pad that is used once; the same again shows them."""
    return bytes(each ^ other for each, other in zip(data, decoded(pad), strict=True))


TICKET_HEADER: Final = "harken-ticket"
BEGIN_SECONDS: Final = 120
MOST_OPEN: Final = 1_000
WINDOW: Final = 1_024  # requests of one page may overtake each other by so much


class NumberState(Enum):
    """What a number under a ticket is."""

    NEW = "new"
    STALE = "stale"  # of another run, or too old to begin: the page gets a new ticket
    SPENT = "spent"


@dataclass(slots=True)
class _Count:
    """The numbers that came under a ticket: the highest, and which of those below it."""

    highest: int = 0
    seen: int = 0

    def take(self, number: int) -> bool:
        """Note a number; return whether it is new."""
        if number > self.highest:
            self.seen = (self.seen << min(number - self.highest, WINDOW) | 1) & ((1 << WINDOW) - 1)
            self.highest = number
            return True
        behind = self.highest - number
        if behind >= WINDOW or self.seen >> behind & 1:
            return False
        self.seen |= 1 << behind
        return True


class TicketBook:
    """The tickets of one run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._counts: dict[tuple[str, str], _Count] = {}  # the one that was used last is last

    def issue(self) -> str:
        """Return a new ticket."""
        body = f"{self._now()}.{secrets.token_urlsafe(12)}"
        return f"{body}.{tagged(self._key, 'ticket', body)}"

    def take(self, session: str, ticket: str, number: int) -> NumberState:
        """Use a number of a session's ticket up. The proof that names them has been checked."""
        name = (session, ticket)
        count = self._counts.pop(name, None)
        if count is None:
            if not self._may_begin(ticket) or not self._has_room():
                return NumberState.STALE
            count = _Count()
        self._counts[name] = count
        return NumberState.NEW if count.take(number) else NumberState.SPENT

    def _may_begin(self, ticket: str) -> bool:
        body, _, signature = ticket.rpartition(".")
        if not is_same(signature, tagged(self._key, "ticket", body)):
            return False
        # A clock that was set back must not let one begin again that is forgotten.
        return 0 <= self._now() - _given_at(ticket) <= BEGIN_SECONDS

    def _has_room(self) -> bool:
        if len(self._counts) < MOST_OPEN:
            return True
        # Only what could not begin again is forgotten: else its numbers would count twice.
        old = next((name for name in self._counts if self._now() - _given_at(name[1]) > BEGIN_SECONDS), None)
        if old is not None:
            del self._counts[old]
        return old is not None

    def _now(self) -> int:
        return int(self._clock.now().timestamp())


def _given_at(ticket: str) -> int:
    return int(ticket.partition(".")[0])
