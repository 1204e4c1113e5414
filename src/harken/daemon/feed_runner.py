"""Feeds: every one is followed from its checkpoint, and every batch is stored before the next is asked for.

Sources reconnect by themselves; what gets here is what they yield. While the store is away nothing more is read, so
that a source that can hold back does, and what was read is shown to people as not stored. A source can be started and
stopped while the daemon runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial

import anyio

from harken.daemon.supervisor import Supervisor
from harken.errors import NeedsPerson
from harken.ingest.intake import Intake
from harken.sources.source import Batch, Feed, Source
from harken.store.contract.messages import Checkpoint, CheckpointStore

ASK_AGAIN_SECONDS = 300.0
LAST_SECONDS = 2.0


class FeedRunner:
    """Follows the feeds of sources."""

    def __init__(self, intake: Intake, checkpoints: CheckpointStore) -> None:
        self._intake = intake
        self._checkpoints = checkpoints

    def start(self, source: Source, supervisor: Supervisor) -> None:
        """Follow every feed of a source until it is stopped."""
        for feed in source.feeds():
            supervisor.start(_loop_of(source, feed), partial(self._follow, source, feed))

    async def stop(self, source: Source, supervisor: Supervisor) -> None:
        """Follow a source no longer; what was read of it is stored first."""
        for loop in loops_of(source):
            await supervisor.stop(loop)

    async def _follow(self, source: Source, feed: Feed) -> None:
        while True:
            position = await self._checkpoints.get(source.name, feed.name)
            try:
                await self._take_all(source, feed, position)
            except NeedsPerson:
                # The source says in its health what to do; that it was done, nobody tells us.
                await anyio.sleep(ASK_AGAIN_SECONDS)
            else:
                return

    async def _take_all(self, source: Source, feed: Feed, position: str) -> None:
        in_hand: Batch | None = None
        try:
            async with aclosing(feed.follow(position)) as batches:
                async for batch in batches:
                    in_hand = batch
                    await self._take(source, feed, batch)
                    in_hand = None
        finally:
            # The daemon stops while a server speaks: what was read from it cannot be read again. In order, because the
            # checkpoint of what came later would step over what did not get stored before it.
            with anyio.move_on_after(LAST_SECONDS, shield=True):
                if in_hand is not None:
                    await self._take(source, feed, in_hand)
                await self._take(source, feed, feed.rest())

    async def _take(self, source: Source, feed: Feed, batch: Batch) -> None:
        checkpoint = None
        if batch.checkpoint is not None:
            checkpoint = Checkpoint(source.name, feed.name, batch.checkpoint)
        if batch.drafts or checkpoint is not None:
            appended = await self._intake.accept_at_last(batch.drafts, checkpoint, dropped=batch.dropped)
            new = [draft for draft, each in zip(batch.drafts, appended, strict=True) if each.is_new]
            feed.stored(new, known=len(appended) - len(new))
        elif batch.dropped:
            await self._intake.give_up(source.name, batch.dropped)


def loops_of(source: Source) -> Sequence[str]:
    """Return the names of the loops that follow a source."""
    return [_loop_of(source, feed) for feed in source.feeds()]


def _loop_of(source: Source, feed: Feed) -> str:
    return f"source {source.name}/{feed.name}"
