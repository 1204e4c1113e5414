"""Sends what is in the outbox, tries again, and parks what cannot be sent where people see it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Protocol

import anyio

from harken.clock import Clock
from harken.errors import HarkenError, NeedsPerson, Unavailable
from harken.model import OUTBOX, Mailbox, Outgoing
from harken.store.base import OutboxRow, Store

_log = logging.getLogger("harken.outbox")

BATCH = 20
MAX_ATTEMPTS = 10
FIRST_RETRY = timedelta(seconds=2)
LONGEST_RETRY = timedelta(minutes=15)
LOOK_EVERY_SECONDS = 5.0
ASK_AGAIN = timedelta(minutes=1)
WAIT_FOR_PERSON = timedelta(days=3)


class ReplySender(Protocol):
    """Takes replies to the messages of one source.

    It is asked at least once; after a crash again, with the same `key`. Where upstream allows, it should do it once.
    """

    async def send(self, reply: Outgoing) -> str:
        """Deliver a reply; return upstream's id of it.

        Raises `Unavailable` (try again later), `NeedsPerson` (try again when a person has acted), `Refused` or
        `UserError` (do not try again).
        """
        ...


def retry_delay(attempts: int, asked: float) -> timedelta:
    """Return how long to wait after a failed attempt: doubling, at least what upstream asked for."""
    doubled = timedelta(seconds=FIRST_RETRY.total_seconds() * (1 << min(attempts, 16)))
    return max(min(doubled, LONGEST_RETRY), timedelta(seconds=asked))


class Outbox:
    """The loop that empties the outbox."""

    def __init__(self, store: Store, senders: Mapping[str, ReplySender], clock: Clock) -> None:
        self._store = store
        self._senders = senders
        self._clock = clock

    async def run(self) -> None:
        """Send what is due, for ever: at once when something is added, else by looking now and then."""
        ring = anyio.Event()

        def wake(grown: Collection[Mailbox]) -> None:
            if OUTBOX in grown:
                ring.set()

        with self._store.changes.listen(wake):
            while True:
                ring = anyio.Event()
                while await self.send_due():
                    pass
                with anyio.move_on_after(LOOK_EVERY_SECONDS):
                    await ring.wait()

    async def send_due(self) -> int:
        """Try everything that is due once; return how many were tried."""
        rows = await self._store.outbox_due(BATCH)
        for row in rows:
            await self._send(row)
        return len(rows)

    async def _send(self, row: OutboxRow) -> None:
        sender = self._senders.get(row.message.source)
        if sender is None:
            await self._park(row, f"the source {row.message.source} cannot be answered")
            return
        reply = Outgoing(key=row.id, to=row.message, body=row.body, author=row.author)
        try:
            upstream_id = await sender.send(reply)
        except Unavailable as exc:
            if row.attempts + 1 >= MAX_ATTEMPTS:
                await self._park(row, exc.message)
                return
            due = self._clock.now() + retry_delay(row.attempts, exc.retry_after)
            await self._store.outbox_failed(row.id, exc.message, due_at=due)
        except NeedsPerson as exc:
            if self._clock.now() - row.created_at > WAIT_FOR_PERSON:
                await self._park(row, exc.message)
                return
            # A sign-in that has ended is somebody's to renew: the answer waits for that, visibly.
            await self._store.outbox_failed(row.id, exc.message, due_at=self._clock.now() + ASK_AGAIN)
        except HarkenError as exc:
            await self._park(row, exc.message)
        else:
            await self._store.outbox_sent(row.id, upstream_id)

    async def _park(self, row: OutboxRow, reason: str) -> None:
        _log.warning("reply %s is parked: %s", row.id, reason)
        await self._store.outbox_failed(row.id, reason, due_at=None)
