"""The part of the store's contract that is about what is on its way out: replies, and events for callbacks.

A callback subscription has events posted to an address. What it is told of are rows of the outbox, which are made in
the same transaction that moves its number, so that each event is there once, and none is stepped over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol
from urllib.parse import urlsplit

from harken.model import Consumer, Message, MessageId, OutboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A reply waiting to leave, or an event for a callback subscription. State: `queued`, `sent`, `parked`."""

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
    subscription: str = ""  # that it is an event for; its `upstream_id` is the event's
    event: int = 0  # its number


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKey:
    """Names one request of one edge, so that a request sent again after a restart is done once."""

    edge: str
    request: str


class OutboxStore(Protocol):
    """Replies, from the moment they were given until they have left or are parked.

    Events for callback subscriptions are rows here too: they are listed and retried like replies. What is due, and what
    answers a message, are replies alone; `SubscriptionStore` has the rest.
    """

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
        """Return the newest 200 rows, of one state or all: replies, and events for callback subscriptions."""
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
        Raises `NotFound`, with nothing changed. Of an event, its subscription is not suspended any more.
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
        """Return how many replies and events are `queued` and how many `parked`; both are there, also with none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackSubscription:
    """Events that are posted to an address until a time, for the holder of a token.

    `arguments` is the filter, as JSON; everything up to the event `number` was looked at. The secrets sign what is
    posted. `failing_from`: every try since then has failed. No event of the journal holds a secret or all of the url.
    """

    id: str
    token: str
    holder: str
    url: str = field(repr=False)
    event: str
    arguments: str
    secret: str = field(repr=False)
    former_secret: str = field(default="", repr=False)
    former_until: datetime | None = None
    made_at: datetime
    renewed_at: datetime
    expires_at: datetime
    oldest: datetime | None = None
    number: int
    has_gap: bool = False
    is_suspended: bool = False
    given_up: int = 0
    failing_from: datetime | None = None
    error: str = ""
    told: int = 0
    told_at: datetime | None = None

    @property
    def place(self) -> str:
        """The address without its path, which may be secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPost:
    """An event on its way into the outbox: its number, its id, the message it is about, and what is posted."""

    number: int
    id: str
    message: MessageId
    body: str


class SubscriptionStore(Protocol):
    """Callback subscriptions, and their events in the outbox. Changes ring for `OUTBOX`. Journals `subscription`."""

    async def keep(self, wanted: CallbackSubscription, overlap: timedelta) -> CallbackSubscription:
        """Make a subscription, or renew the one that has this id; return it as it is then.

        Of one that is there, `expires_at` is taken over and a suspension ends; a new secret replaces its own, which
        goes on signing for the `overlap`. Everything else stays.
        """
        ...

    async def find(self, subscription: str) -> CallbackSubscription | None:
        """Return a subscription."""
        ...

    async def list(self) -> Sequence[CallbackSubscription]:
        """Return all subscriptions, the oldest first."""
        ...

    async def queue(
        self, subscription: str, posts: Sequence[EventPost], *, since: int, number: int, has_gap: bool = False
    ) -> None:
        """Put events into the outbox and move a subscription from `since` to a number, in one transaction.

        With `has_gap`, something was missed before them. Raises `Conflict` when it is not at `since`, `NotFound`.
        """
        ...

    async def next_post(self, subscription: str) -> OutboxRow | None:
        """Return the first event that waits to be posted."""
        ...

    async def posted(self, subscription: str, row: OutboxId) -> None:
        """Record that an event has arrived: it leaves the outbox. Idempotent."""
        ...

    async def told_gap(self, subscription: str) -> None:
        """Record that the subscriber knows that it missed something. Idempotent."""
        ...

    async def failed(
        self,
        subscription: str,
        row: OutboxId | None,
        error: str,
        *,
        due_at: datetime | None,
        suspend_after: int | None = None,
    ) -> None:
        """Record a failed try: the event is tried again at `due_at`, or parked (None).

        After so many in a row that were parked, the subscription is suspended. Without a row only the error is noted.
        """
        ...

    async def end(self, subscription: str, reason: str) -> None:
        """Remove a subscription and its events. Idempotent."""
        ...
