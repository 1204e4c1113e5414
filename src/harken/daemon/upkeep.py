"""The chores: search index, retention, the journal's missing lines, leases of sessions that are gone.

Where daemons share a store, also what each of them tells the others, and hears of them: `Neighbours`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import anyio
import anyio.to_thread
import msgspec

from harken import __version__
from harken.clock import Clock, Signal
from harken.config.settings import Settings
from harken.errors import HarkenError, Unavailable
from harken.inbox.ticker import Ticker
from harken.memory import json_bytes
from harken.model import SessionKey, timestamp
from harken.sessions.registry import SessionReport, Sessions
from harken.store.contract import Store
from harken.store.contract.deliveries import DeliveryStore
from harken.store.contract.events import EventStore
from harken.store.contract.health import DAEMONS, DaemonReport
from harken.store.contract.messages import MessageStore
from harken.store.contract.retention import Limits, RetentionStore
from harken.store.journal import Journal

INDEX_EVERY_SECONDS = 1.0
INDEX_BATCH = 200
CATCH_UP_EVERY_SECONDS = 2.0
SYNC_EVERY_SECONDS = 10.0
FIRST_PRUNE_SECONDS = 300.0
PRUNE_EVERY_SECONDS = 3600.0
EXPIRED_STAYS_SECONDS = 7 * 86_400.0
# Edges come back within seconds of a restart; only then is a session that did not come back gone.
GRACE_SECONDS = 30.0
HTTP, CLI = "http:", "cli:"
PASSING = (HTTP, CLI)  # how the keys of sessions begin that live no longer than one connection


def limits_of(settings: Settings) -> Limits:
    """Return how much is kept, and how long, as it is configured."""
    return Limits(settings.store.max_messages, settings.store.max_age.total_seconds(), EXPIRED_STAYS_SECONDS)


async def keep_index(messages: MessageStore) -> None:
    """Make new messages searchable."""
    while True:
        # One that is not full was all there was: what came since goes with the next, and not a few at a time.
        with suppress(Unavailable):  # a full disk: it goes on when there is space
            while await messages.index(INDEX_BATCH) >= INDEX_BATCH:
                pass
        await anyio.sleep(INDEX_EVERY_SECONDS)


async def keep_journal(journal: Journal, events: EventStore) -> None:
    """Write lines that could not be written, and sync those that were."""
    synced_at = anyio.current_time()
    while True:
        await anyio.sleep(CATCH_UP_EVERY_SECONDS)
        await journal.catch_up(events)
        if anyio.current_time() - synced_at >= SYNC_EVERY_SECONDS:
            await anyio.to_thread.run_sync(journal.sync)
            synced_at = anyio.current_time()


async def end_passing_leases(deliveries: DeliveryStore) -> None:
    """Offer again what requests and commands were given over an earlier daemon: they ended with it."""
    with suppress(Unavailable):  # a full disk: it is done with the others
        await deliveries.release_except((), kinds=PASSING)


async def keep_leases(deliveries: DeliveryStore, live: Callable[[], Collection[SessionKey]]) -> None:
    """Offer again what sessions that are gone were given and did not prove."""
    while True:
        await anyio.sleep(GRACE_SECONDS)
        await deliveries.release_except(live())


async def keep_limits(retention: RetentionStore, journal: Journal, limits: Limits) -> None:
    """Apply retention, in bounded rounds until nothing is over the limits."""
    # Agents come back first: a machine that was off for long must not lose what they are about to read.
    await anyio.sleep(FIRST_PRUNE_SECONDS)
    while True:
        pruned = await retention.prune(replace(limits, journaled=journal.last))
        await anyio.sleep(PRUNE_EVERY_SECONDS if not (pruned.deleted or pruned.expired) else INDEX_EVERY_SECONDS)


REPORT_SECONDS = 5.0
GONE_AFTER = timedelta(seconds=30)
LISTEN_SECONDS = 1.0
MOST_REPORTED = 500  # sessions: one that is not told of is reached all the same
EVENTS_AT_ONCE = 200


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
            self._told, self._told_at = news, now
        self.daemons = await self._store.daemons.list()
        oldest = self._clock.now() - GONE_AFTER
        others = [each for each in self.daemons if each.id != self._daemon and each.seen_at > oldest]
        self._sessions.hear_of(self._machine, [(each.machine, _reports(each.sessions)) for each in others])

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


def _reports(text: str) -> Sequence[SessionReport]:
    """Return what a daemon says of its sessions; one of another version may say it otherwise."""
    try:
        return msgspec.json.decode(text, type=list[SessionReport])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
