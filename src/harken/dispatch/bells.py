"""Bells: files that tell a host's hooks, at the price of one `test`, whether there is anything to ask for.

`run/bells/<host>` is not empty while a live session of that host has something queued or unproven, or waits for its
person; a session's own bell changes when it should wake. A host's bell rings before the commit that brings the message:
a false ring costs one question, a missing one would cost the message its moment. It is silenced only after looking
again.

`Push` tells the connections of sessions that something arrived: hints, after the commit and after the journal's line. A
hint carries no body and may be lost; the message is in the store. What may push is decided by attention and mutes.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

import anyio

from harken.clock import Signal
from harken.model import OUTBOX, Attention, Mailbox, Message, MessageId, Reader, SessionKey
from harken.sessions.registry import Sessions
from harken.sessions.session import Session
from harken.sessions.turns import Halt
from harken.store.contract import Changes, Store
from harken.store.contract.events import Event
from harken.store.contract.messages import Filter

PUSHING = frozenset({Attention.WAKE, Attention.BOUNDARY})
LOOK_EVERY_SECONDS = 30.0
LEFT_SECONDS = 7 * 86_400.0
BURST = 20  # hints of one mailbox at once
_RINGING = b"1\n"
_AT = "@"  # in the name of a bell, before the satellite that has it
_SESSION = "session-"
_NOTHING: tuple[str, frozenset[Mailbox]] = "", frozenset()


class WaitingQuery(Protocol):
    """Says what waits for a reader."""

    async def __call__(
        self,
        reader: Reader,
        attentions: Collection[Attention],
        limit: int,
        *,
        without: Collection[MessageId] = (),
        only: Collection[MessageId] | None = None,
        since: datetime | None = None,
    ) -> Sequence[Message]:
        """Return what waits, may push so far, and is not muted, oldest first."""
        ...


class Bells:
    """The bells of one home, as files. Rung from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._rings: dict[str, int] = {}  # how often each was rung: silencing must not undo a later ring
        self._ringing: set[str] = set()
        self._hosts: dict[Mailbox, frozenset[str]] = {}  # read by the writer, too: changed by single steps
        self._announced: frozenset[str] = frozenset()  # of the transaction that is written now
        self._counts: dict[SessionKey, int] = {}
        self._here: frozenset[SessionKey] = frozenset()
        self._tell: Callable[[str], None] | None = None

    def reach_satellites(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the name of a satellite when one of its bells changes; from any thread. It must be quick."""
        self._tell = tell

    def ringing_on(self, satellite: str) -> Collection[str]:
        """Return the hosts whose bells ring on a satellite."""
        with self._lock:
            return [name.rpartition(_AT)[0] for name in self._ringing if name.endswith(f"{_AT}{satellite}")]

    def before_commit(self, grown: Collection[Mailbox]) -> None:
        """Ring for the hosts that read these mailboxes. Called by the writer of the store, before the commit."""
        self._announced = frozenset(host for mailbox in grown for host in self._hosts.get(mailbox, ()))
        for host in self._announced:
            self.ring(host)

    def after_commit(self, _events: Sequence[Event]) -> None:
        """Ring for them again, in the same thread: a look before the commit found nothing, and silenced the bell."""
        announced, self._announced = self._announced, frozenset()
        for host in announced:
            self.ring(host)

    def listen_for(self, mailbox: Mailbox, hosts: frozenset[str]) -> None:
        """Say which hosts have live sessions that read a mailbox."""
        if hosts:
            self._hosts[mailbox] = hosts
        else:
            self._hosts.pop(mailbox, None)

    def rings(self, host: str) -> int:
        """Return a number that changes whenever a host's bell is rung."""
        with self._lock:
            return self._rings.get(host, 0)

    @property
    def ringing(self) -> Collection[str]:
        """The hosts with a bell that rings now."""
        with self._lock:
            return tuple(self._ringing)

    def ring(self, host: str) -> None:
        """Let a host's bell ring."""
        with self._lock:
            self._rings[host] = self._rings.get(host, 0) + 1
            if host not in self._ringing:
                self._put(host, is_ringing=True)
                self._ringing.add(host)

    def silence(self, host: str, rings: int) -> None:
        """Silence a host's bell, unless it was rung since `rings` was read."""
        with self._lock:
            if self._rings.get(host, 0) == rings and host in self._ringing:
                self._put(host, is_ringing=False)
                self._ringing.discard(host)

    def _put(self, name: str, *, is_ringing: bool) -> None:
        host, at, satellite = name.partition(_AT)
        if at:
            if self._tell is not None:
                self._tell(satellite)
        else:
            _write(self._folder / host, _RINGING if is_ringing else b"")

    def clear(self) -> None:
        """Silence what an earlier daemon left. Sessions go on watching their own bells; old bells have no session."""
        oldest = time.time() - LEFT_SECONDS
        with self._lock:
            for left_over in self._folder.iterdir():
                if not left_over.name.startswith(_SESSION) or left_over.stat().st_mtime < oldest:
                    left_over.unlink(missing_ok=True)
            self._ringing.clear()

    def path(self, session: SessionKey) -> Path:
        """Return the path of a session's own bell, which is there: hosts watch only what exists."""
        path = self._path(session)
        if not path.exists():
            _write(path, b"")
        return path

    def is_watched(self, session: SessionKey) -> bool:
        """Whether a session was told of its bell, by this daemon or an earlier one."""
        return self._path(session).exists()

    def keep_newest(self, most: int) -> None:
        """Remove the oldest of the bells of which sessions were told, where there are more than so many."""
        if len(found := list(self._folder.glob(f"{_SESSION}*"))) > most:
            for path in sorted(found, key=lambda each: each.stat().st_mtime_ns)[:-most]:
                path.unlink(missing_ok=True)

    def watched(self) -> Iterator[str]:
        """Yield the names of the bells of which sessions were told."""
        for path in self._folder.glob(f"{_SESSION}*"):
            yield path.name

    def ring_session(self, session: SessionKey) -> bool:
        """Let a session's own bell change."""
        self._counts[session] = self._counts.get(session, 0) + 1
        # The time makes it another content than any that an earlier daemon wrote.
        _write(self.path(session), f"{self._counts[session]} {time.time_ns()}\n".encode())
        return True

    def keep_sessions(self, live: Collection[SessionKey]) -> None:
        """Remove the bells of sessions that were here and are gone."""
        for session in self._here.difference(live):
            self._path(session).unlink(missing_ok=True)
            self._counts.pop(session, None)
        self._here = frozenset(live)

    def _path(self, session: SessionKey) -> Path:
        return self._folder / bell_file(session)


def bell_file(session: SessionKey) -> str:
    """Return the name of a session's own bell."""
    return f"{_SESSION}{re.sub(r'[^A-Za-z0-9_.-]', '_', session)}"


class BellRinger:
    """The loop that keeps the bells true."""

    def __init__(
        self, bells: Bells, changes: Changes, sessions: Sessions, waiting: WaitingQuery, hosts: Collection[str]
    ) -> None:
        self._bells = bells
        self._changes = changes
        self._sessions = sessions
        self._waiting = waiting
        self._names = frozenset(hosts)  # those with hooks: nobody would hear the bell of another
        self._look = Signal()
        self._heard: dict[SessionKey, tuple[str, frozenset[Mailbox]]] = {}  # its bell, and for what it listens to it
        self._listeners: dict[Mailbox, Counter[str]] = {}  # how many sessions listen to each bell
        sessions.observe_sessions(self.note_change)

    def note_change(self, changed: Collection[SessionKey]) -> None:
        """Look again soon: sessions came, went or did something."""
        others: set[Mailbox] = set()
        for key in changed:
            session = self._sessions.get(key)
            is_heard = session is not None and session.host in self._names
            now = (_bell_name(session), frozenset(session.mailboxes)) if session is not None and is_heard else _NOTHING
            before = self._heard.pop(key, _NOTHING)
            if now != _NOTHING:
                self._heard[key] = now
            if now != before:
                self._count(*now, 1)
                self._count(*before, -1)
                others |= now[1] | before[1]
        for mailbox in others:
            names = frozenset(self._listeners.get(mailbox, ()))
            self._bells.listen_for(mailbox, names)
        self._look.ring()

    def _count(self, name: str, mailboxes: frozenset[Mailbox], more: int) -> None:
        for mailbox in mailboxes:
            counts = self._listeners.setdefault(mailbox, Counter())
            counts[name] += more
            if not counts[name]:
                del counts[name]
            if not counts:
                del self._listeners[mailbox]

    async def run(self) -> None:
        """Look whenever something changes, for ever."""
        with self._changes.listen(self._look.ring):
            while True:
                await self.look()
                await self._look.wait(LOOK_EVERY_SECONDS)

    async def look(self) -> None:
        """Ring or silence each host's bell, by what its live sessions have."""
        sessions: dict[str, list[Session]] = {host: [] for host in self._bells.ringing}
        for session in self._here():
            sessions.setdefault(_bell_name(session), []).append(session)
        for host, living in sessions.items():
            rings = self._bells.rings(host)
            if await self._is_needed(living):
                self._bells.ring(host)
            else:
                self._bells.silence(host, rings)
        self._bells.keep_sessions([session.reader.session for living in sessions.values() for session in living])

    def _here(self) -> Sequence[Session]:
        return [session for session in self._sessions.live() if session.host in self._names]

    async def _is_needed(self, sessions: Sequence[Session]) -> bool:
        for session in sessions:
            # What it does after an answer of its person shows that there was one.
            if session.is_unproven or (session.halt is not None and session.halt.kind is Halt.WAITS):
                return True
            if await self._waiting(session.reader, PUSHING, 1, without=session.told_of):
                return True
        return False


def _bell_name(session: Session) -> str:
    return f"{session.host}{_AT}{session.satellite}" if session.satellite else session.host


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


class Push:
    """The loop that turns growth into hints."""

    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions
        self._heads: dict[Mailbox, int] = {}

    async def run(self) -> None:
        """Hint at everything that arrives from now on, for ever."""
        grown: set[Mailbox] = set()
        served: set[SessionKey] = set()
        ring = anyio.Event()

        def wake(names: Collection[Mailbox]) -> None:
            grown.update(name for name in names if name != OUTBOX)
            # Whoever waits has the message itself in this moment, and needs no hint that would slow it down.
            served.update(self._sessions.waiting())
            ring.set()

        self._heads = {place.mailbox: place.head for place in await self._store.deliveries.consumers()}
        with self._store.changes.listen(wake):
            while True:
                ring = anyio.Event()
                mailboxes, besides = tuple(grown), frozenset(served)
                grown.clear()
                served.clear()
                for mailbox in mailboxes:
                    await self.announce(mailbox, besides)
                if not grown:
                    await ring.wait()

    async def announce(self, mailbox: Mailbox, besides: Collection[SessionKey] = ()) -> None:
        """Hint at what a mailbox received since the last time; of a burst, at its newest."""
        listeners = [each for each in self._sessions.listeners(mailbox) if each.reader.session not in besides]
        after = self._heads.pop(mailbox, None)
        if not listeners:
            return
        # Where nobody listened before, only the newest is new: who came later is not told of what came before.
        most = 1 if after is None else BURST
        fresh = await self._store.messages.page(Filter(mailbox=mailbox, after=after or 0), most, newest_first=True)
        if not fresh:
            return
        self._heads[mailbox] = fresh[0].seq
        mutes = await self._store.people.mutes()
        for listener in listeners:
            audible = [m for m in reversed(fresh) if m.attention is not Attention.COUNT and listener.hears(m, mutes)]
            if audible:
                unread = (await self._store.deliveries.unread(listener.reader)).count
                for message in audible:
                    listener.hint(message, unread)
