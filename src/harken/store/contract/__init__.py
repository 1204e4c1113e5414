"""The contract of a store, in the words of the domain. Backends pass `tests/contracts/store.py`.

Promises that hold for every method:

- A method that writes is one transaction: after it returns, everything it did survives a crash; if it raises,
  nothing happened. Journal events are rows of that same transaction. What cannot be had again (messages,
  checkpoints, replies, decisions) survives power loss too; offers and proofs may then be lost, which at worst
  offers a message once more.
- After the commit and before the method returns, the store gives the events to its `AfterCommit` (the journal file),
  and only then rings `Changes`. So a line is on disk before anyone is pushed.
- Sequence numbers are per mailbox, start at 1, have no gaps and follow commit order: whoever reads `seq > n` can
  never step over a message that commits later.
- Driver exceptions never leave: `Unavailable` when the disk is full or the database away (nothing was changed),
  `UserError` when the database cannot be used at all (newer schema, damaged file), `NotFound`, `Conflict`.
- Reads see every write that returned before the read began.

It is not a policy: who may do what, what is pushed where, and how long a lease lasts is decided above.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from harken.model import (
    Attention,
    Choose,
    Consumer,
    Delivery,
    DeliveryId,
    Mailbox,
    Message,
    MessageId,
    NewMessage,
    Reader,
    Selection,
    SenderRule,
    SessionKey,
    Trust,
)
from harken.store.contract.automation import ActionStore, RuleStore, RunStore
from harken.store.contract.health import Vitals
from harken.store.contract.outbox import OutboxStore
from harken.store.contract.questions import QuestionStore
from harken.store.contract.retention import KeepingRows
from harken.store.contract.tasks import TaskStore
from harken.store.contract.timeline import Looking


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A feed's opaque upstream position, stored with the messages that precede it."""

    source: str
    feed: str
    value: str


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What became of one new message: stored now, or known already."""

    message: Message
    is_new: bool


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which messages to show; empty fields do not filter."""

    mailbox: str = ""
    among: tuple[Mailbox, ...] | None = None  # any of these, and nothing if there are none; None: all
    channel: str = ""
    sender: str = ""
    source: str = ""
    thread: str = ""
    since: datetime | None = None
    until: datetime | None = None
    after: int = 0  # seq, exclusive
    before: int = 0  # seq, exclusive; 0 = no bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What waits for a consumer: everything that is not final. `oldest` is when the oldest of it was received.

    `leased` of it are offered now: handed over and not proven yet.
    """

    count: int
    leased: int = 0
    oldest: datetime | None = None
    by_channel: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOffer:
    """An offer without proof: which call or hook carried it."""

    delivery_id: DeliveryId
    carrier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """How many messages of a mailbox a consumer was not given when it began. They had numbers up to `up_to`.

    `older` were received before its window; `surplus` were too many for it, or for what the mailbox keeps. What another
    agent had seen by then is not counted here: it is `expired` in the ledger.
    """

    older: int = 0
    surplus: int = 0
    up_to: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """A consumer's place in one mailbox; `leased` of what is unread is offered now and not proven yet.

    `left_out` is as it was when the consumer began; None for one that began before this was counted.
    """

    consumer: Consumer
    mailbox: Mailbox
    cursor: int
    head: int
    unread: int
    leased: int = 0
    left_out: Omission | None = field(default_factory=Omission)


@dataclass(frozen=True, slots=True)
class Mute:
    """What may not push for a while: `kind` is `session`, `channel` or `sender`. It is stored and can be pulled."""

    kind: str
    name: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class MuteFilter:
    """What may not wake a reader now: channels and senders that are muted, or everything."""

    channels: frozenset[str] = frozenset()
    senders: frozenset[str] = frozenset()
    is_total: bool = False


AUDIBLE = frozenset(Attention) - {Attention.COUNT}


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferFilter:
    """What may go through a surface: how far it may push, whose word it is, what is not muted now, which, how much."""

    attentions: frozenset[Attention] = AUDIBLE
    trusts: frozenset[Trust] = frozenset(Trust)
    mutes: MuteFilter = field(default_factory=MuteFilter)
    only: frozenset[MessageId] | None = None  # nothing but these
    without: frozenset[MessageId] = frozenset()  # and none of these
    since: datetime | None = None  # nothing that was received before
    choose: Choose | None = None  # and of all that, only what one answer carries whole is offered


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceRecord:
    """How deliveries to a consumer through one surface went lately: the evidence that it works."""

    consumer: Consumer
    surface: str
    offered: int
    seen: int
    last_offered_at: datetime
    last_seen_at: datetime | None
    evidence: str  # of the last one seen


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a mailbox keeps, and how long what expired unread stays to be seen.

    Events above `journaled` have no line yet and stay (None: all have one).
    """

    max_count: int
    max_age_seconds: float
    expired_stays_seconds: float = 0.0
    journaled: int | None = None


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What one round of retention did."""

    expired: int
    deleted: int


MOST_OFFER_CHARS = 400_000
"""An offer ends with the message that brings its texts to this: what carries it has a limit too."""

MOST_READ_CHARS = 64_000_000
"""What gives a list of messages or events ends with the one that brings their texts to this, however many were asked
for: memory is not bounded by a count."""

BeforeCommit = Callable[[Collection[Mailbox]], None]
"""Called in the writing thread before each commit with the mailboxes that grow by it. It must be quick and not raise.

What it announces may not come true, when the commit fails; but nothing is committed that it has not announced.
"""

AfterCommit = Callable[[Sequence[Event]], None]
"""Called in the writing thread after each commit with its events, in order. It must not raise."""


class Changes(Protocol):
    """Tells that something was committed. Rings for every daemon that shares the store."""

    def listen(self, wake: Callable[[Collection[Mailbox]], None]) -> AbstractContextManager[None]:
        """Call `wake` in the event loop after a commit, while the context is open.

        It gets the mailboxes in which something can be offered now: they grew, or a lease was ended. A new reply
        rings for `OUTBOX`, what changes about rules, actions and runs for `ACTIONS`. `wake` must be quick and not
        raise. A ring may be spurious, never missing.
        """
        ...


class Store(Looking, Vitals, KeepingRows, Protocol):
    """See the module docstring for what holds for every method."""

    @property
    def changes(self) -> Changes:
        """The change feed."""
        ...

    @property
    def rules(self) -> RuleStore:
        """What rules made of messages, and the rules in force."""
        ...

    @property
    def actions(self) -> ActionStore:
        """What rules and people asked for."""
        ...

    @property
    def runs(self) -> RunStore:
        """Headless agent executions."""
        ...

    @property
    def outbox(self) -> OutboxStore:
        """Replies on their way out."""
        ...

    @property
    def questions(self) -> QuestionStore:
        """Messages whose senders wait for an answer."""
        ...

    @property
    def tasks(self) -> TaskStore:
        """Tasks and their links."""
        ...

    # -- messages ---------------------------------------------------------------------------------------------

    async def append(
        self, messages: Sequence[NewMessage], checkpoint: Checkpoint | None = None, *, dropped: int = 0
    ) -> list[AppendResult]:
        """Store messages in the given order, and the checkpoint that follows them, together or not at all.

        A message whose `dedup_key` is known is not stored again: its entry has the first one and `is_new=False`.
        That holds for ever, also after retention removed the first one (then `message` is a stub with its id).
        Journals `received` per new message, and `dropped` with the count when the source had to drop some.
        """
        ...

    async def message(self, ref: str) -> Message:
        """Return a message by id, by a unique beginning of its id, or by `mailbox#seq` (`#seq`, `seq`: in `inbox`).

        Raises `NotFound`, or `UserError` when a beginning fits several.
        """
        ...

    async def page(self, where: Filter, limit: int, *, newest_first: bool = False) -> list[Message]:
        """Return messages in order of receipt, oldest or newest first; up to `MOST_READ_CHARS` of text."""
        ...

    async def search(self, text: str, where: Filter, limit: int) -> list[Message]:
        """Return messages that contain all the words, newest first, up to `MOST_READ_CHARS` of text.

        Any text is a valid query.
        """
        ...

    async def index(self, limit: int) -> int:
        """Make up to `limit` stored messages searchable; return how many: none when all are.

        Of long ones fewer at once. Not part of accepting: it may lag.
        """
        ...

    async def checkpoint(self, source: str, feed: str) -> str:
        """Return the stored checkpoint, or an empty string."""
        ...

    # -- deliveries and cursors -------------------------------------------------------------------------------

    async def enroll(self, consumer: Consumer, mailbox: Mailbox, since: datetime, *, most: int | None = None) -> bool:
        """Give a consumer its cursor in a mailbox, once; return whether it was new. Idempotent.

        A new consumer begins with the first message received at `since` or later, and with the newest `most` at most
        (None: however many), all of them above the last that retention removed. What is stored before that is left
        out: counted by its reason, kept with the consumer and journaled in `consumer`. Nor does it get what an agent
        (any consumer but `watch` and `rules`) has seen by then. `watch`, the person, reads every mailbox from its first
        message without being enrolled; so does whoever marks or answers a message first.
        """
        ...

    async def omissions(self, reader: Reader) -> Mapping[Mailbox, Omission]:
        """Return what a reader was not given when it began, for those of its mailboxes in which that is something."""
        ...

    async def unread(self, reader: Reader, *, by_channel: bool = False) -> Unread:
        """Count what is not final for the consumer. Constant time without `by_channel`."""
        ...

    async def peek(
        self, reader: Reader, limit: int, *, channel: str = "", after: str = "", where: OfferFilter | None = None
    ) -> list[Message]:
        """Return what an offer would give now, oldest first, and change nothing. `after` is a message id.

        With a `where`, as many as there are up to the limit, however long they are: it does not choose.
        """
        ...

    async def offer(
        self,
        reader: Reader,
        limit: int,
        *,
        surface: str,
        carrier: str,
        lease_until: datetime,
        channel: str = "",
        after: str = "",
        where: OfferFilter | None = None,
    ) -> Selection:
        """Hand out what waits for the consumer: high priority first, then in order of receipt.

        Eligible is what is not final and not leased: never offered, or offered and its lease is over or released.
        The latter are repeats. With a `where`, no more than it covers. Each becomes `offered` to the reader's session
        until `lease_until`, in one transaction, so two sessions never get the same message at once. Journals `offered`.

        With a `where` that chooses, only what it lets go whole is offered; all else stays as it was. It is asked
        inside the transaction, in any thread, and is shown more than `limit` when some of them are too long: what no
        answer carries does not stand before what one does. It may be asked more than once; its last word counts.
        """
        ...

    async def offer_when_ready(
        self,
        reader: Reader,
        limit: int,
        *,
        surface: str,
        carrier: str,
        lease: timedelta,
        rank: Callable[[], float],
        where: Callable[[], OfferFilter],
        seconds: float,
    ) -> Selection:
        """Like `offer`, and with nothing to give wait for it; empty when `seconds` are over.

        Only of what is in `where` at that moment: whatever else comes wakes nobody. Where it chooses, what it cuts is
        something to give too: a reader hears of what is too long for it.
        Of several sessions of a consumer that wait, the one with the highest `rank` at that moment is served first;
        `rank` and `where` are called from any thread. What one of them was given, whole or cut, serves no other one
        that would be given the same. A caller that is cancelled has been offered nothing: what was offered to it
        meanwhile is withdrawn.
        """
        ...

    async def prove(
        self, deliveries: Collection[DeliveryId], evidence: str, *, consumer: Consumer | None = None
    ) -> list[Delivery]:
        """Move offered deliveries (only of this consumer, if given) to `seen`, and their cursors on.

        Unknown ones, final ones and those of other consumers are ignored.

        Idempotent. Returns those that changed. Journals `seen` with the evidence.
        """
        ...

    async def acknowledge(self, reader: Reader, messages: Collection[MessageId], evidence: str) -> list[Delivery]:
        """Mark messages `seen` for a consumer, offered before or not. Idempotent; raises `NotFound`."""
        ...

    async def release(self, session: SessionKey, carriers: Collection[str] | None = None) -> int:
        """End the leases of a session, of these carriers or (None) all, so that what is unproven is offered again."""
        ...

    async def renew(
        self, session: SessionKey, deliveries: Collection[DeliveryId], *, carrier: str, lease_until: datetime
    ) -> int:
        """Lease to a session again what was released and is nobody's: it has arrived after all."""
        ...

    async def withdraw(self, session: SessionKey, carrier: str) -> int:
        """Undo an offer that was never handed over, because its caller had gone.

        What it offered for the first time is queued as if nothing had happened; its repeats are released. Journals
        `withdrawn`.
        """
        ...

    async def undo(self, deliveries: Collection[DeliveryId], carrier: str) -> int:
        """Like `withdraw`, of these, whichever session they are of by now: it may have got a name meanwhile."""
        ...

    async def release_except(self, sessions: Collection[SessionKey], *, kinds: Collection[str] = ()) -> int:
        """End the leases of every session that is not in the given ones: those are gone.

        With `kinds`, only of those whose keys begin with one of these.
        """
        ...

    async def transfer(self, session: SessionKey, to: SessionKey) -> int:
        """Let a session's open offers be another's: it is the same one, whose own name is known only now."""
        ...

    async def reassign(
        self, deliveries: Collection[DeliveryId], *, consumer: Consumer, session: SessionKey, carrier: str
    ) -> list[DeliveryId]:
        """Let open offers of a consumer be a session's, by a carrier: who had them is known only now.

        Returns those that are. Unknown ones, final ones and those of other consumers are ignored; leases stay.
        """
        ...

    async def open_offers(self, session: SessionKey) -> list[OpenOffer]:
        """Return the offers of a session that have no proof yet."""
        ...

    async def seen_by(self, messages: Collection[MessageId]) -> Mapping[MessageId, Sequence[Consumer]]:
        """Return which consumers have seen or answered each of some messages; none are left out."""
        ...

    async def surfaces(self, since: datetime) -> list[SurfaceRecord]:
        """Return, per consumer and surface, how what was offered since a time went."""
        ...

    async def ledger(self, message: MessageId) -> list[Delivery]:
        """Return the deliveries of a message. Whoever reads its mailbox, is not past it and has no row: queued."""
        ...

    async def consumers(self, mailboxes: Collection[Mailbox] | None = None) -> list[ConsumerState]:
        """Return every consumer's place in every mailbox it reads, or only in some mailboxes."""
        ...

    # -- access -----------------------------------------------------------------------------------------------

    async def set_sender(self, rule: SenderRule) -> None:
        """Decide about a sender; the newest decision counts. Journals `access`."""
        ...

    async def senders(self) -> list[SenderRule]:
        """Return all decisions."""
        ...

    async def set_mute(self, mute: Mute, *, is_on: bool) -> None:
        """Begin or end a mute. Idempotent. Journals `muted` or `unmuted`."""
        ...

    async def mutes(self) -> list[Mute]:
        """Return the mutes in force now."""
        ...

    # -- journal and upkeep -----------------------------------------------------------------------------------

    async def record(self, kind: str, data: Mapping[str, object]) -> Event:
        """Add an event that belongs to no message."""
        ...

    async def events(self, after: int, limit: int) -> list[Event]:
        """Return events with `n > after`, in order, up to `MOST_READ_CHARS` of text."""
        ...

    async def continue_after(self, number: int) -> None:
        """Let events go on above a number that was used before, by this store or the one it replaces.

        Journals `recovered`. Does nothing when they are above it already.
        """
        ...

    async def last_event(self) -> int:
        """Return the highest event number, 0 when there is none."""
        ...

    async def prune(self, limits: Limits) -> RetentionReport:
        """Apply retention to every mailbox.

        What is over the limits and still open for a consumer becomes `expired` (journaled, with its ids) and stays
        visible; what is over the limits and was final for everyone before this call is deleted, what expired not
        before `expired_stays_seconds` are over. Journals `pruned`, with the numbers of what was deleted.
        Dedup keys stay.
        """
        ...

    async def stats(self) -> Mapping[str, int]:
        """Return counts for people: messages, deliveries, mailboxes, events, actions, runs, bytes, not yet indexed."""
        ...
