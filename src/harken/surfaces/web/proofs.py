"""What a request of the page carries instead of a secret: a proof that whoever made it holds the session's key.

The proof names the session, a ticket of this run of the daemon, a number, and a hash of the body; it is a keyed hash
over all of that with the method, the host and the address. So what is sent elsewhere, to another port or to another
program at this one, can be used for nothing else and by nobody else, and here only once. The daemon's answer carries
a proof too, by which the page knows that it is the daemon's. The same texts are made by `page/static/session.js`.
Knows no session; who holds which key is in `page_sessions.py`, which ticket is good in `tickets.py`.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Final, Self

HEADER: Final = "harken-proof"
ANSWER_HEADER: Final = "harken-answer"
KEY_BYTES: Final = 32
HIGHEST: Final = 2**53 - 1  # the largest number a browser counts to

_FIELDS: Final = 5
_LONGEST: Final = 400
_SAFE: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
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

    def is_signed(self, key: bytes, asking: Asking) -> bool:
        """Whether a key made it for what is asked."""
        return is_same(self.signature, signature_of(key, self, asking))


def signature_of(key: bytes, proof: Proof, asking: Asking) -> str:
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
