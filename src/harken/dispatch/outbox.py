"""Sends what is in the outbox, tries again, and parks what cannot be sent where people see it.

Each source has a lane of its own: one that is slow or away holds up nobody else's answers. A sender has it recorded
before a reply may leave, so that after a crash it is known that it may have been sent.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio

from harken.clock import Clock
from harken.errors import Conflict, HarkenError, NeedsPerson, Unavailable, Uncertain
from harken.model import OUTBOX, Mailbox, OutgoingReply
from harken.plugins import PluginFault, guard_awaited
from harken.sources.source import ReplySender
from harken.store.contract import Store
from harken.store.contract.outbox import OutboxRow

_log = logging.getLogger("harken.outbox")

BATCH = 20
FIRST_RETRY = timedelta(seconds=2)
LONGEST_RETRY = timedelta(minutes=15)
LOOK_EVERY_SECONDS = 5.0
LONGEST_DELAY = timedelta(minutes=59)
ASK_AGAIN = timedelta(minutes=1)
GIVE_UP_AFTER = timedelta(days=3)


NOBODY: Final = ""  # the lane of replies whose source is not there


def retry_delay(attempts: int, asked: float) -> timedelta:
    """Return how long to wait after a failed attempt: doubling, at least what upstream asked for, an hour at most."""
    doubled = timedelta(seconds=FIRST_RETRY.total_seconds() * (1 << min(attempts, 16)))
    return min(max(min(doubled, LONGEST_RETRY), timedelta(seconds=asked)), LONGEST_DELAY)


class Outbox:
    """The loop that empties the outbox."""

    def __init__(
        self, store: Store, senders: Mapping[str, ReplySender], clock: Clock, *, expected: Collection[str] = ()
    ) -> None:
        self._store = store
        self._senders = senders
        self._expected = expected  # sources that are configured, also those that are not ready
        self._clock = clock

    @property
    def lanes(self) -> Sequence[str]:
        """The sources that are sent to, each by itself; the last is for replies whose source is not there."""
        return (*self._senders, NOBODY)

    async def run(self, source: str) -> None:
        """Send what is due of a source, for ever: at once when something is added, else by looking now and then."""
        ring = anyio.Event()

        def wake(grown: Collection[Mailbox]) -> None:
            if OUTBOX in grown:
                ring.set()

        with self._store.changes.listen(wake):
            while True:
                ring = anyio.Event()
                while await self.send_due(source):
                    pass
                with anyio.move_on_after(LOOK_EVERY_SECONDS):
                    await ring.wait()

    async def send_due(self, source: str = NOBODY) -> int:
        """Try everything of a source that is due once; return how many were tried. Nobody's replies are parked."""
        without = self._senders if source == NOBODY else ()
        held: set[str] = set()  # conversations in which one could not be sent: none may overtake it
        rows = await self._store.outbox.due(BATCH, source=source, without=tuple(without))
        for row in rows:
            conversation = row.message.conversation
            if conversation and conversation in held:
                continue
            if not await self._send(row):
                held.add(conversation)
        return len(rows)

    async def _send(self, row: OutboxRow) -> bool:
        """Try a reply; return whether it is out of the way."""
        sender = self._senders.get(row.message.source)
        source = row.message.source
        if sender is None and source in self._expected:
            due = self._clock.now() + ASK_AGAIN
            return await self._later(
                row, f"the source {source} is not ready", due, is_uncertain=row.tried_at is not None
            )
        if sender is None:
            # A try that was cut short when its source was removed may have been sent.
            return await self._park(
                row, f"the source {source} cannot be answered", is_uncertain=row.tried_at is not None
            )
        reply = OutgoingReply(
            key=row.id,
            to=row.message,
            body=row.body,
            author=row.author,
            created_at=row.created_at,
            tried_at=row.tried_at,
            hand_over=partial(self._store.outbox.trying, row.id),
        )
        try:
            upstream_id = await guard_awaited(f"The source {source}", sender.send(reply))
        except Unavailable as exc:
            due = self._clock.now() + retry_delay(row.attempts, exc.retry_after)
            # That this try was not sent says nothing about an earlier one.
            is_uncertain = isinstance(exc, Uncertain) or row.tried_at is not None
            return await self._later(row, exc.message, due, is_uncertain=is_uncertain)
        except NeedsPerson as exc:
            # A sign-in that has ended is somebody's to renew: the answer waits for that, visibly.
            is_uncertain = row.tried_at is not None
            return await self._later(row, exc.message, self._clock.now() + ASK_AGAIN, is_uncertain=is_uncertain)
        except HarkenError as exc:
            is_uncertain = isinstance(exc, Conflict | PluginFault) or row.tried_at is not None
            return await self._park(row, exc.message, is_uncertain=is_uncertain)
        await self._store.outbox.sent(row.id, upstream_id)
        return True

    async def _later(self, row: OutboxRow, reason: str, due: datetime, *, is_uncertain: bool) -> bool:
        """Try again then; nobody wants an answer to go out weeks later by itself."""
        if self._clock.now() - row.created_at > GIVE_UP_AFTER:
            return await self._park(row, reason, is_uncertain=is_uncertain)
        await self._store.outbox.failed(row.id, reason, due_at=due, is_uncertain=is_uncertain)
        return False

    async def _park(self, row: OutboxRow, reason: str, *, is_uncertain: bool) -> bool:
        _log.warning("reply %s is parked: %s", row.id, reason)
        await self._store.outbox.failed(row.id, reason, due_at=None, is_uncertain=is_uncertain)
        return True
