"""The part of the store's contract that is about events: the rows that the journal's lines are written from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from harken.model import (
    Mailbox,
    Message,
)

RECOVERY = "recovery"
"""What a line of the journal has for `harken recover` alone, beside what it tells people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the journal. `n` is gap-free in commit order; `message` is set for `received`."""

    n: int
    at: datetime
    kind: str
    data: Mapping[str, object]
    message: Message | None = None

    @property
    def told(self) -> Mapping[str, object]:
        """The data without what is in the journal for its recovery alone."""
        return {name: value for name, value in self.data.items() if name != RECOVERY}


BeforeCommit = Callable[[Collection[Mailbox]], None]
"""Called where the store writes, in any thread, before each commit with the mailboxes that grow by it.

It must be quick and not raise. What it announces may not come true, when the commit fails; but nothing is committed
that it has not announced.
"""

AfterCommit = Callable[[Sequence[Event]], None]
"""Called where the store writes, in any thread, after each commit with its events, in order. It must not raise."""


class EventStore(Protocol):
    """What happened, in commit order."""

    async def record(self, kind: str, data: Mapping[str, object]) -> Event:
        """Add an event that belongs to no message."""
        ...

    async def after(self, number: int, limit: int) -> list[Event]:
        """Return events with `n > number`, in order, up to `MAX_READ_CHARS` of text."""
        ...

    async def own_after(self, number: int, limit: int) -> list[Event]:
        """Like `after`, of the events that this daemon committed, where several share the store."""
        ...

    async def last(self) -> int:
        """Return the highest event number, 0 when there is none."""
        ...

    async def continue_after(self, number: int) -> None:
        """Let events go on above a number that was used before, by this store or the one it replaces.

        Journals `recovered`. Does nothing when they are above it already.
        """
        ...
