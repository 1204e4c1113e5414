"""The part of the store's contract that is about deliveries: who was given what, what is proven, and cursors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
    Reader,
    Selection,
    SessionKey,
    Trust,
)

AUDIBLE = frozenset(Attention) - {Attention.COUNT}

MAX_OFFER_CHARS = 400_000
"""An offer ends with the message that brings its texts to this: what carries it has a limit too."""


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
class MuteFilter:
    """What may not wake a reader now: channels and senders that are muted, or everything."""

    channels: frozenset[str] = frozenset()
    senders: frozenset[str] = frozenset()
    is_total: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferFilter:
    """What may go through a surface: attention, trust, mutes, ids and number. Equal are those that let the same go."""

    attentions: frozenset[Attention] = AUDIBLE
    trusts: frozenset[Trust] = frozenset(Trust)
    mutes: MuteFilter = field(default_factory=MuteFilter)
    only: frozenset[MessageId] | None = None  # nothing but these
    without: frozenset[MessageId] = frozenset()  # and none of these
    since: datetime | None = None  # nothing that was received before
    # And of all that, only what one answer carries whole is offered.
    choose: Choose | None = field(default=None, compare=False)

    def lets(self, message: Message) -> bool:
        """Whether a message may go through; `choose` is not asked."""
        mutes = self.mutes
        return (
            not mutes.is_total
            and message.attention in self.attentions
            and message.trust in self.trusts
            and message.channel not in mutes.channels
            and message.sender.id not in mutes.senders
            and message.sender.name not in mutes.senders
            and (self.only is None or message.id in self.only)
            and message.id not in self.without
            and (self.since is None or message.received_at >= self.since)
        )


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


class DeliveryStore(Protocol):
    """Offers, leases, proofs and cursors."""

    async def enroll(self, consumer: Consumer, mailbox: Mailbox, since: datetime, *, most: int | None = None) -> bool:
        """Give a consumer its cursor in a mailbox, once; return whether it was new. Idempotent.

        A new consumer begins with the first message received at `since` or later, and with the newest `most` at most
        (None: however many), all of them above the last that retention removed. What is stored before that is left out:
        counted by its reason, kept with the consumer and journaled in `consumer`. Nor does it get what an agent (any
        consumer but `watch` and `rules`) has seen by then. `watch`, the person, reads every mailbox from its first
        message without being enrolled; so does a consumer that marks or answers a message first.
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

        Only of what is in `where` at that moment: what else comes wakes no reader. Where it chooses, what it cuts is
        something to give too: a reader hears of what is too long for it. Of several sessions of a consumer that wait,
        the one with the highest `rank` at that moment is served first; `rank` and `where` are called from any thread.
        What one of them was given, whole or cut, serves no other one that would be given the same. A caller that is
        cancelled has been offered nothing: what was offered to it meanwhile is withdrawn.
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
        """End the leases of every session of this daemon that is not in the given ones: those are gone.

        With `kinds`, only of sessions with a key that begins with one of these.
        """
        ...

    async def transfer(self, session: SessionKey, to: SessionKey) -> int:
        """Let a session's open offers be another's: it is the same one, and its own name is known only now."""
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
        """Return the deliveries of a message. A reader of its mailbox, not past it and without a row: queued."""
        ...

    async def ledgers(self, ids: Collection[MessageId]) -> Mapping[MessageId, Sequence[Delivery]]:
        """Return the deliveries of each of some messages; none are left out."""
        ...

    async def consumers(self, mailboxes: Collection[Mailbox] | None = None) -> list[ConsumerState]:
        """Return every consumer's place in every mailbox it reads, or only in some mailboxes."""
        ...
