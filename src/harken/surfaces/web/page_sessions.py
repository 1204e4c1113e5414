"""The browsers that are signed in to the page, and the proof that a request of theirs carries.

`PageSessions` keeps a file in the home, so that a restart ends no session. The file holds no key: each is made from
the token, so a new token ends every session. A session belongs to one address; it ends by itself, when you end it, or
with its address.

A `Proof` shows that the request was made with the session's key. It names the session, a ticket of this run of the
daemon, a number, and a hash of the body; it is a keyed hash over all of that with the method, the host and the address.
So a proof that was sent to another port, or to another program at this one, can be used for no other request, and here
only once. The daemon's answer carries a proof too, by which the page knows that it is the daemon's.
`page/static/session.js` makes the same texts.

A ticket binds proofs to this run of the daemon. Anyone may have one; without a session's key it is worth nothing. It is
used first soon after it was given or never, and under each a page numbers its requests: a number counts once. What is
remembered is bounded, and what is forgotten is too old to begin again.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from harken.clock import Clock
from harken.memory import json_bytes
from harken.model import fresh_id

LASTS: Final = timedelta(days=30)
PHONE_LASTS: Final = timedelta(days=365)
PHONE_IDLE: Final = timedelta(days=14)  # a phone that was not used for so long is signed out
NOTED_AFTER: Final = timedelta(minutes=1)  # how exactly the file knows when one was last used
OTHER_TABS: Final = timedelta(minutes=1)  # so long they may go on with the key before
MAX_SESSIONS: Final = 32
MAX_BROWSER: Final = 40

_PURPOSE: Final = b"harken page keys 1"


class PageSession(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that is signed in. `host` is the address that it is signed in at, `phone` the name of a phone's token.

    `generation` counts its keys. The one before is good too, until the newest was used and for a while after: the
    answer that brought it may be lost, and other tabs may not know it yet.
    """

    id: str
    host: str
    browser: str
    began_at: datetime
    used_at: datetime
    generation: int = 0
    renewed_at: datetime | None = None
    is_newest_used: bool = True
    phone: str = ""


class _SessionFile(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept."""

    token: str  # tells which token it was, and nothing about it
    sessions: list[PageSession]


class PageSessions:
    """The sessions of the page."""

    def __init__(
        self, token: str, clock: Clock, file: Path, *, lasts: timedelta = LASTS, idle: timedelta = LASTS
    ) -> None:
        self._key = hmac.digest(token.encode(), _PURPOSE, hashlib.sha256)
        self._clock = clock
        self._file = file
        self._lasts = lasts
        self._idle = idle
        self._open = {each.id: each for each in self._read()}
        self._noted = {each.id: each.used_at for each in self._open.values()}
        self.here_at: datetime | None = None  # when you were last at one, since the daemon began

    def note_here(self) -> None:
        """You are at the page now."""
        self.here_at = self._clock.now()

    def begin(self, host: str, browser: str, phone: str = "") -> PageSession:
        """Begin a session; the one that was unused for longest goes when there are too many."""
        now, name = self._clock.now(), browser[:MAX_BROWSER]
        new = PageSession(id=fresh_id("b-", 8), host=host, browser=name, began_at=now, used_at=now, phone=phone)
        kept = sorted(self.all(), key=lambda each: each.used_at)[-(MAX_SESSIONS - 1) :]
        self._open = {each.id: each for each in (*kept, new)}
        self._write()
        return new

    def key(self, session: PageSession, generation: int | None = None) -> bytes:
        """Return the newest key of a session, or that of a generation."""
        which = session.generation if generation is None else generation
        return hmac.digest(self._key, f"{session.id}\n{session.host}\n{which}".encode(), hashlib.sha256)

    def generations(self, session: PageSession) -> Sequence[int]:
        """Return the generations with keys that are good now, the newest first."""
        renewed_at = session.renewed_at
        if renewed_at is None:
            return [session.generation]
        is_fresh = abs(self._clock.now() - renewed_at) < OTHER_TABS
        return (
            [session.generation, session.generation - 1]
            if is_fresh or not session.is_newest_used
            else [session.generation]
        )

    def renew(self, name: str, generation: int) -> bytes | None:
        """Return the key that comes after that of a generation; the same again until it was used."""
        found = self._open.get(name)
        if found is None or generation not in self.generations(found):
            return None
        if generation == found.generation:
            now = self._clock.now()
            found = replace(found, generation=generation + 1, renewed_at=now, is_newest_used=False)
            self._open[name] = found
            self._write()
        return self.key(found)

    def find(self, name: str, host: str) -> PageSession | None:
        """Return a session that is good at an address, or None."""
        found = self._open.get(name)
        return found if found is not None and found.host == host and self._is_good(found) else None

    def is_open(self, name: str) -> bool:
        """Whether a session is still good."""
        found = self._open.get(name)
        return found is not None and self._is_good(found)

    def use(self, name: str, generation: int = 0) -> None:
        """Note that a session is used now, with the key of a generation."""
        found = self._open.get(name)
        if found is None:
            return
        now, is_first = self._clock.now(), generation == found.generation and not found.is_newest_used
        # What came before it is good for a while from now on, whenever it was given.
        renewed_at = now if is_first else found.renewed_at
        is_newest_used = found.is_newest_used or is_first
        self._open[name] = replace(found, used_at=now, renewed_at=renewed_at, is_newest_used=is_newest_used)
        if is_first or abs(now - self._noted[name]) >= NOTED_AFTER:
            self._write()

    def all(self) -> Sequence[PageSession]:
        """Return the sessions that are good."""
        return [each for each in self._open.values() if self._is_good(each)]

    @property
    def was_used(self) -> bool:
        """Whether there has ever been a session."""
        return self._file.exists()

    def lapsed(self) -> Sequence[PageSession]:
        """Return the sessions that ended by themselves, until they are ended here too."""
        return [each for each in self._open.values() if not self._is_good(each)]

    def end(self, name: str) -> bool:
        """End a session; return whether there was one."""
        if self._open.pop(name, None) is None:
            return False
        self._write()
        return True

    def end_elsewhere(self, hosts: Collection[str]) -> None:
        """End the sessions of other addresses than ours: another program may be there now."""
        for session in self.all():
            if session.host not in hosts:
                self.end(session.id)

    def end_all(self) -> int:
        """End every session; return how many there were."""
        count = len(self.all())
        self._open = {}
        if count:
            self._write()
        return count

    def _is_good(self, session: PageSession) -> bool:
        # A clock that was set back must not make one last longer than it was made for.
        is_of_now = session.began_at - self._lasts < self._clock.now() < session.began_at + self._lasts
        return is_of_now and self._clock.now() < session.used_at + self._idle

    def _mark(self) -> str:
        return tagged(self._key, "which token")

    def _read(self) -> Sequence[PageSession]:
        try:
            found = msgspec.json.decode(self._file.read_bytes(), type=_SessionFile)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return []
        if found.token != self._mark():
            return []
        return found.sessions

    def _write(self) -> None:
        sessions = list(self.all())
        draft = self._file.with_name(f"{self._file.name}.new")
        draft.touch(mode=0o600)
        draft.write_bytes(json_bytes(_SessionFile(token=self._mark(), sessions=sessions)))
        draft.replace(self._file)
        self._noted = {each.id: each.used_at for each in sessions}


PROOF_HEADER: Final = "harken-proof"
HERE_HEADER: Final = "harken-here"
"""Of a request of a page that has the focus, and was used by hand a moment ago."""
ANSWER_HEADER: Final = "harken-answer"
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
MAX_OPEN: Final = 1_000
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
        if len(self._counts) < MAX_OPEN:
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
