"""The part of the store's contract that is about replies on their way out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from harken.model import Consumer, Message, MessageId, OutboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A reply waiting to leave. State: `queued`, `sent`, `parked`."""

    id: OutboxId
    message: Message
    body: str
    state: str
    attempts: int
    created_at: datetime
    due_at: datetime
    author: str
    error: str = ""
    upstream_id: str = ""
    tried_at: datetime | None = None  # it may have been sent then


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKey:
    """Names one request of one edge, so that a request sent again after a restart is done once."""

    edge: str
    request: str


class OutboxStore(Protocol):
    """Replies, from the moment they were given until they have left or are parked."""

    async def add(
        self, message: MessageId, body: str, *, author: str, consumer: Consumer, call: CallKey | None = None
    ) -> OutboxRow:
        """Put a reply into the outbox and mark the consumer's delivery `answered`. Journals `answered`.

        With a `call` that was done before, returns that reply's row and changes nothing.
        """
        ...

    async def due(self, limit: int, *, source: str = "", without: Collection[str] = ()) -> Sequence[OutboxRow]:
        """Return the queued replies that are due, oldest first: of one source, or of all but some.

        None overtakes an earlier one of its conversation that waits to be tried again.

        No delay is longer than an hour.
        """
        ...

    async def trying(self, row: OutboxId, *, attempts: int | None = None) -> None:
        """Record that a reply is about to be handed to its source: from now on it may have been sent.

        Raises `Conflict` when another daemon hands it over, when it was sent, and when it was tried since so many
        `attempts` were counted.
        """
        ...

    async def let_go(self, rows: Collection[OutboxId] | None = None) -> None:
        """Let other daemons try replies that this one hands over, or had handed over when it ended (None: all).

        Each may have been sent. Rings for `OUTBOX` when there are any.
        """
        ...

    async def list(self, *, state: str = "") -> Sequence[OutboxRow]:
        """Return the newest 200 replies, of one state or all."""
        ...

    async def to_message(self, message: MessageId) -> Sequence[OutboxRow]:
        """Return the replies to a message, oldest first."""
        ...

    async def sent_ids(self, source: str, limit: int) -> Sequence[str]:
        """Return upstream's ids of the newest replies that left through a source, the oldest of them first."""
        ...

    async def sent(self, row: OutboxId, upstream_id: str) -> None:
        """Record that a reply has left. Idempotent. Journals `replied`."""
        ...

    async def retry(self, rows: Collection[OutboxId], *, is_unsent: bool = False) -> Sequence[OutboxRow]:
        """Let parked replies be due now; return them. Journals `retried` for each.

        With `is_unsent` it is known that none of them was sent. Those that are not parked are returned as they are.
        Raises `NotFound`, with nothing changed.
        """
        ...

    async def failed(self, row: OutboxId, error: str, *, due_at: datetime | None, is_uncertain: bool = False) -> None:
        """Record a failed attempt: try again at `due_at`, or park it (None). Journals `parked` when parked.

        It has surely not been sent, unless `is_uncertain`. Changes nothing while another daemon hands it over.
        """
        ...

    async def to_messages(self, ids: Collection[MessageId]) -> Mapping[MessageId, Sequence[OutboxRow]]:
        """Return the replies to each of some messages, oldest first; none are left out."""
        ...

    async def counts(self) -> Mapping[str, int]:
        """Return how many replies are `queued` and how many `parked`; both are there, also with none."""
        ...
