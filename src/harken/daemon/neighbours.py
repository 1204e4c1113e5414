"""`Neighbours`: what the daemons that share a store tell each other, and hear of each other.

Each reports its sessions and that it is still here, and follows what the others commit. Leadership is a matter of its
own; so is the notification that rings, which the store has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

import anyio
import msgspec

from harken import __version__
from harken.clock import Clock, Signal
from harken.errors import HarkenError, UserError
from harken.inbox.ticker import Ticker
from harken.memory import json_bytes
from harken.model import timestamp
from harken.sessions.registry import Neighbour, SessionReport, Sessions
from harken.store.contract import Store
from harken.store.contract.health import DAEMONS, DaemonReport

REPORT_SECONDS = 5.0
GONE_AFTER = timedelta(seconds=30)
LISTEN_SECONDS = 1.0
MOST_REPORTED = 500  # sessions: one that is not told of is reached all the same
EVENTS_AT_ONCE = 200


def words_for_double(daemon: DaemonReport) -> tuple[str, str]:
    """Return what is wrong when another daemon has the id of this one, and what to do."""
    return (
        f"A daemon on {daemon.machine} has the same id as this one: one of the two homes is a copy.",
        "Stop the daemon of the copy, delete daemon-id in its home, and start it again.",
    )


class Neighbours:
    """The other daemons of a shared store: tells them of the sessions here, and knows theirs.

    What they commit is followed by the numbers of events, so that nothing is missed: a notification is only a hint.
    What is kept in memory here is read again when they change it.
    """

    def __init__(self, store: Store, sessions: Sessions, clock: Clock, *, machine: str, daemon: str) -> None:
        self._store = store
        self._sessions = sessions
        self._clock = clock
        self._machine = machine
        self._daemon = daemon
        self._started_at = clock.now()
        self._steady_since: float | None = None
        self._told: Sequence[SessionReport] | None = None
        self._heard: Sequence[tuple[str, str, str]] | None = None
        self._reports: dict[bytes, SessionReport] = {}  # by what was heard of each
        self._others: Mapping[str, Neighbour] = {}
        self._told_at = float("-inf")
        self._news = Signal()
        self.daemons: Sequence[DaemonReport] = ()
        sessions.observe(self._news.ring)

    async def run(self) -> None:
        """Tell and hear of each other, for ever; at the end, be forgotten."""
        with self._store.changes.listen(self._news.ring, only=[DAEMONS]):
            try:
                while True:
                    await self.look()
                    await self._news.wait(REPORT_SECONDS)
                    # Sessions do something with every call: others need not hear of each.
                    await anyio.sleep(LISTEN_SECONDS)
            except HarkenError:
                self._steady_since = None
                raise
            except anyio.get_cancelled_exc_class():
                with anyio.move_on_after(LISTEN_SECONDS, shield=True), suppress(HarkenError):
                    await self._store.daemons.leave()
                raise

    def facts(self) -> Sequence[Mapping[str, object]]:
        """Return what `status` says of the daemons, this one among them."""
        oldest = self._clock.now() - GONE_AFTER
        return [
            {
                "id": each.id,
                "machine": each.machine,
                "version": each.version,
                "started_at": timestamp(each.started_at),
                "seen_at": timestamp(each.seen_at),
                "is_here": each.is_here and each.seen_at > oldest,
            }
            for each in self.daemons
        ]

    async def look(self) -> None:
        """Tell what is new, or that this daemon is still here; take over what the others say."""
        self.daemons = await self._store.daemons.list()
        if self._told is not None:
            self._refuse_double()
        now = anyio.current_time()
        reports = self._sessions.reports()[:MOST_REPORTED]
        news = [each.news for each in reports]
        if news != self._told or now - self._told_at >= REPORT_SECONDS:
            # After the server was away, or this daemon was frozen, all the others seem to be gone: they are given as
            # much time to come back.
            if self._steady_since is None or now - self._told_at > GONE_AFTER.total_seconds():
                self._steady_since = now
            is_steady = now - self._steady_since > GONE_AFTER.total_seconds()
            await self._store.daemons.report(
                machine=self._machine,
                version=__version__,
                started_at=self._started_at,
                sessions=json_bytes(reports).decode("utf-8", "replace"),
                gone_after=GONE_AFTER if is_steady else None,
            )
            if self._told is None:
                self.daemons = await self._store.daemons.list()
            self._told, self._told_at = news, now
        oldest = self._clock.now() - GONE_AFTER
        others = [each for each in self.daemons if each.id != self._daemon and each.seen_at > oldest]
        said = [(each.id, each.machine, each.sessions) for each in others]
        # Thousands of sessions are not read again while nothing is said of them that is new.
        if said != self._heard:
            self._heard = said
            known, self._reports = self._reports, {}
            self._others = {each.id: self._neighbour(each, known) for each in others}
            self._sessions.hear_of(self._machine, tuple(self._others.values()))

    def _neighbour(self, daemon: DaemonReport, known: Mapping[bytes, SessionReport]) -> Neighbour:
        """Return what is known of another daemon; of one that has left, what it said before."""
        if daemon.is_here:
            return Neighbour(daemon.id, daemon.machine, self._read(daemon, known))
        before = self._others.get(daemon.id)
        return Neighbour(daemon.id, daemon.machine, before.sessions if before else (), has_left=True)

    def _read(self, daemon: DaemonReport, known: Mapping[bytes, SessionReport]) -> Sequence[SessionReport]:
        """Return what a daemon says of its sessions, those of which it says the same as before as they are known."""
        found = list[SessionReport]()
        try:
            for raw in msgspec.json.decode(daemon.sessions, type=list[msgspec.Raw]):
                said = bytes(raw)
                found.append(known.get(said) or msgspec.json.decode(said, type=SessionReport))
                self._reports[said] = found[-1]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ()  # one of another version may say it otherwise
        return found

    def _refuse_double(self) -> None:
        """Raise `UserError` when an older daemon reports under the id of this one: a home was copied."""
        oldest = self._clock.now() - GONE_AFTER
        own = next((each for each in self.daemons if each.id == self._daemon), None)
        if own is not None and own.is_here and own.started_at < self._started_at and own.seen_at > oldest:
            raise UserError(*words_for_double(own))

    async def follow(self, ticker: Ticker, refresh: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        """Follow what the others commit: tell the ticker, and read again what is kept of it, by the kind of event."""
        last, ring = await self._store.events.last(), Signal()
        with self._store.changes.listen(ring.ring):
            # What they changed between the last reading and that number is in no event that follows.
            for read in dict.fromkeys(refresh.values()):
                await read()
            ticker.advance(last)
            while True:
                while events := await self._store.events.after(last, EVENTS_AT_ONCE):
                    kinds = {event.kind for event in events}
                    for read in dict.fromkeys(refresh[kind] for kind in kinds if kind in refresh):
                        await read()
                    last = events[-1].n
                    ticker.advance(last)
                await ring.wait(LISTEN_SECONDS)
