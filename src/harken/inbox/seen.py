"""Marking what you have seen, position by position, in a mailbox or a channel."""

from __future__ import annotations

from typing import Final

from harken.inbox.caller import NO_SESSION
from harken.model import WATCH, Reader
from harken.store.contract import Store
from harken.store.contract.timeline import TimelineScope

SEEN_AT_ONCE: Final = 500  # what one transaction marks; other writers wait no longer than for that
MOST_SEEN: Final = 10_000
FARTHEST: Final = 2**62  # beyond every position, and still a number that a store can take
_PERSON: Final = Reader(consumer=WATCH, session=NO_SESSION)


async def mark_seen(store: Store, scope: TimelineScope, *, since: int = 0, up_to: int = FARTHEST, evidence: str) -> int:
    """Mark the messages between two positions as seen by you; return how many were not. Idempotent.

    Of a mailbox, the oldest 10,000 in one call; of a channel, those among its newest 500.
    """
    marked = 0
    for _ in range(MOST_SEEN // SEEN_AT_ONCE if scope.mailbox else 1):
        unseen = await store.timeline.unseen(scope, up_to, SEEN_AT_ONCE, since=since)
        marked += len(await store.deliveries.acknowledge(_PERSON, unseen, evidence)) if unseen else 0
        if len(unseen) < SEEN_AT_ONCE:
            break
    return marked
