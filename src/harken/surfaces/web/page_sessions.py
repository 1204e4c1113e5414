"""The browsers that are signed in to the page: since when, when last used, and the key of each.

Kept in a file of the home, so that a restart signs nobody out. The file holds no key: each is made from the token, so a
new token ends every session. A session belongs to one address; it ends by itself, by a person, or with its address.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from harken.clock import Clock
from harken.memory import json_bytes
from harken.model import fresh_id
from harken.surfaces.web.proofs import tagged

LASTS: Final = timedelta(days=30)
NOTED_AFTER: Final = timedelta(minutes=1)  # how exactly the file knows when one was last used
OTHER_TABS: Final = timedelta(minutes=1)  # so long they may go on with the key before
MOST_SESSIONS: Final = 32
MAX_BROWSER: Final = 40

_PURPOSE: Final = b"harken page keys 1"


class PageSession(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that is signed in. `host` is the address that it is signed in at.

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


class _SessionFile(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept."""

    token: str  # tells which token it was, and nothing about it
    sessions: list[PageSession]


class PageSessions:
    """The sessions of the page."""

    def __init__(self, token: str, clock: Clock, file: Path) -> None:
        self._key = hmac.digest(token.encode(), _PURPOSE, hashlib.sha256)
        self._clock = clock
        self._file = file
        self._open = {each.id: each for each in self._read()}
        self._noted = {each.id: each.used_at for each in self._open.values()}

    def begin(self, host: str, browser: str) -> PageSession:
        """Begin a session; the one that was unused for longest goes when there are too many."""
        now = self._clock.now()
        new = PageSession(id=fresh_id("b-", 8), host=host, browser=browser[:MAX_BROWSER], began_at=now, used_at=now)
        kept = sorted(self.all(), key=lambda each: each.used_at)[-(MOST_SESSIONS - 1) :]
        self._open = {each.id: each for each in (*kept, new)}
        self._write()
        return new

    def key(self, session: PageSession, generation: int | None = None) -> bytes:
        """Return the newest key of a session, or that of a generation."""
        which = session.generation if generation is None else generation
        return hmac.digest(self._key, f"{session.id}\n{session.host}\n{which}".encode(), hashlib.sha256)

    def generations(self, session: PageSession) -> Sequence[int]:
        """Return the generations whose keys are good now, the newest first."""
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

    def end(self, name: str) -> bool:
        """End a session; return whether there was one."""
        if self._open.pop(name, None) is None:
            return False
        self._write()
        return True

    def end_elsewhere(self, hosts: Collection[str]) -> None:
        """End the sessions of other addresses than ours: who is there now may be anybody."""
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
        return session.began_at - LASTS < self._clock.now() < session.began_at + LASTS

    def _mark(self) -> str:
        return tagged(self._key, "which token")

    def _read(self) -> Sequence[PageSession]:
        try:
            found = msgspec.json.decode(self._file.read_bytes(), type=_SessionFile)
        except (OSError, msgspec.DecodeError):
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
