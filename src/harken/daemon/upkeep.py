"""The chores: search index, retention, scheduled messages, missing journal lines, leases of sessions that are gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

import anyio
import anyio.to_thread

from harken.clock import Clock
from harken.config.settings import Settings
from harken.errors import Unavailable
from harken.inbox.inbox import Inbox
from harken.model import SCHEDULE, Occasion, ScheduledMessage, SessionKey
from harken.store.contract import Changes
from harken.store.contract.deliveries import DeliveryStore
from harken.store.contract.events import EventStore
from harken.store.contract.messages import MessageStore
from harken.store.contract.retention import Limits, RetentionStore
from harken.store.journal import Journal

INDEX_EVERY_SECONDS = 1.0
INDEX_BATCH = 200
CATCH_UP_EVERY_SECONDS = 2.0
SYNC_EVERY_SECONDS = 10.0
SCHEDULE_EVERY_SECONDS = 15.0
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


class ScheduleKeeper:
    """Lets scheduled messages enter their mailboxes when they are due.

    It looks every few seconds, so that a clock that was set, or a machine that slept, delays nothing for long; while
    `is_bound_to_sessions`, also when a session changes.
    """

    def __init__(self, inbox: Inbox, changes: Changes, clock: Clock) -> None:
        self._inbox = inbox
        self._changes = changes
        self._clock = clock
        self._ring = anyio.Event()
        self.is_bound_to_sessions = False

    async def run(self) -> None:
        """Release what is due, for ever."""
        with self._changes.listen(lambda _: self._ring.set(), only=(SCHEDULE,)):
            while True:
                self._ring = anyio.Event()
                with ExitStack() as watched:
                    seconds = SCHEDULE_EVERY_SECONDS
                    with suppress(Unavailable):  # a full disk: they stay, and are tried again
                        waiting = await self._inbox.scheduled()
                        # Sessions change with each tool call: they are looked at only while a message waits for one.
                        self.is_bound_to_sessions = any(each.schedule.occasion is not Occasion.TIME for each in waiting)
                        if self.is_bound_to_sessions:
                            watched.enter_context(self._inbox.sessions.observing(self._ring.set))
                        await self._inbox.release_due()
                        seconds = self._patience(waiting)
                    with anyio.move_on_after(seconds):
                        await self._ring.wait()

    def _patience(self, waiting: Sequence[ScheduledMessage]) -> float:
        """Return how long to sleep at most."""
        now = self._clock.now()
        times = [each.schedule.due_at for each in waiting if each.schedule.due_at and each.schedule.due_at > now]
        soonest = min(times, default=None)
        return (
            SCHEDULE_EVERY_SECONDS if soonest is None else min(SCHEDULE_EVERY_SECONDS, (soonest - now).total_seconds())
        )


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
