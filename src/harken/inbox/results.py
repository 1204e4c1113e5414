"""What the use cases return. Values for surfaces to show; the JSON of each is in `verbs/shapes.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from harken.inbox.forecast import Forecast
from harken.ingest.pairing import RefusedPairing
from harken.model import (
    Consumer,
    Delivery,
    DeliveryState,
    Draft,
    Mailbox,
    Message,
    MessageId,
    Offer,
    Selection,
    SenderRule,
    Task,
    TaskState,
)
from harken.sessions.session import Session
from harken.store.contract.deliveries import ConsumerState, Omission, OpenOffer, SurfaceRecord
from harken.store.contract.outbox import OutboxRow as ReplyRow
from harken.store.contract.people import Mute

__all__ = [
    "Details", "LedgerEntry", "Omission", "OpenOffer", "PullResult", "QueueStats", "ReplyRow", "SendResult", "Status",
    "SurfaceRecord", "TaskProgress",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """A message that was accepted, and truthfully what will happen to it."""

    message: Message
    is_new: bool
    forecast: Forecast
    file: str = ""  # where its text is in the folder of its task, if it was put there


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """What was handed out, what is only listed because it does not fit, and how much still waits."""

    offers: Sequence[Offer]
    remaining: int
    cut: Sequence[Offer] = ()
    too_long: frozenset[MessageId] = frozenset()  # fit no answer

    @classmethod
    def of(cls, given: Selection, remaining: int) -> PullResult:
        """Return what an answer carries, with how much waits beside it."""
        return cls(offers=given.whole, cut=given.cut, too_long=given.too_long, remaining=remaining)

    @property
    def is_next(self) -> bool:
        """Whether the next answer carries some whole of what is only listed in this one."""
        return any(offer.message.id not in self.too_long for offer in self.cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One consumer's line in the ledger of a message; without a delivery it is still queued."""

    consumer: Consumer
    state: DeliveryState
    delivery: Delivery | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """A message, its ledger, who was not given it when they began, and the replies to it."""

    message: Message
    ledger: Sequence[LedgerEntry]
    not_given: Sequence[Consumer]
    replies: Sequence[ReplyRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """What waits for one consumer."""

    depth: int
    dropped_total: int
    oldest: datetime | None
    by_channel: Mapping[str, int]
    left_out: Mapping[Mailbox, Omission]  # what it was not given when it began, where that is something


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """A task, where it is, what its session does (a `Presence`, or `gone`), and how much it has not seen."""

    task: Task
    state: TaskState
    presence: str
    pending: int
    sessions: Sequence[Session] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a person wants to know at a glance."""

    sessions: Sequence[Session]
    consumers: Sequence[ConsumerState]
    senders: Sequence[SenderRule]
    mutes: Sequence[Mute]
    parked: Sequence[ReplyRow]
    waiting_replies: int
    not_stored: Sequence[Draft]
    refused_pairings: Sequence[RefusedPairing]
    store: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLine:
    """A channel in the list. `unread` is counted among its newest hundred."""

    source: str
    channel: str
    count: int
    unread: int
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCard:
    """A channel in the list, and its newest message (None: retention has just removed it)."""

    line: ChannelLine
    newest: Message | None
