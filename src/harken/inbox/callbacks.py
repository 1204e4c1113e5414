"""Callback subscriptions: holders of tokens who have events posted to an address of theirs, until a time.

A receiver is asked before it is told anything, and what the token may read is looked at again before every post. What
happened is found by `EventSubscriptions`, waits in the outbox, and leaves by `posting.py`. Above is the surface that
the holder asks.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from harken.clock import Clock, Signal
from harken.errors import Conflict, Forbidden, NotFound, Unavailable, UserError
from harken.inbox.access import holder_of
from harken.inbox.caller import Caller, Grant, lets
from harken.inbox.subscriptions import (
    EVENT_TYPES,
    PAGE,
    EventAudience,
    EventFilter,
    EventOccurrence,
    EventSubscriptions,
    Subscription,
)
from harken.memory import json_bytes
from harken.model import INBOX, OUTBOX, WATCH, Mailbox
from harken.store.contract import Store
from harken.store.contract.outbox import CallbackSubscription, EventPost, OutboxRow
from harken.store.contract.tokens import Token

if TYPE_CHECKING:  # what posts is imported where other machines are let in
    from harken.inbox.posting import CallbackWire

__all__ = [
    "CallbackDelivery",
    "CallbackRequest",
    "CallbackSubscription",
    "CallbackSubscriptions",
    "CallbackTrouble",
    "TooManySubscriptions",
]

_log = logging.getLogger("harken.callbacks")

NOT_FOR_MAILBOX: Final = "its token is not for this mailbox"
LAPSED: Final = "it was not renewed in time"
MAX_KEPT_PLACES: Final = 1_000
DAY: Final = timedelta(days=1)
SHORTEST_LIFE: Final = timedelta(minutes=1)
OVERLAP: Final = timedelta(hours=1)  # of two secrets
MAX_OF_TOKEN: Final = 32
MAX_CHALLENGES: Final = 10  # of one place in a minute: an address is asked in the name of its own subscriber only
RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 240.0)
GIVE_UP_AFTER: Final = 3  # events in a row that were parked; then the subscription is suspended
MAX_POSTS: Final = 32  # at once
MAX_GAP_TRIES: Final = 5
LOOK_SECONDS: Final = 30.0
STRIDE: Final = 500  # events that concern nobody, until their number is stored all the same
FORBIDDEN: Final = -32012


class TooManySubscriptions(Forbidden):
    """A token has as many as it may have, or a place was asked too often."""


class CallbackTrouble(Forbidden):
    """A receiver does not want to be told, or cannot be reached. The message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRequest:
    """Where a holder of a token wants to be told of what, from where on, and for how long."""

    wanted: Subscription
    url: str
    secret: str = field(repr=False)
    cursor: str | None = None
    life: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackGrant:
    """A subscription as it is now, the cursor of its place, and how it was doing before it was renewed."""

    subscription: CallbackSubscription
    cursor: str
    is_truncated: bool
    before: CallbackSubscription | None


def subscription_id(token: str, url: str, event: str, arguments: str) -> str:
    """Return the id of a subscription: the same for the same holder, address, event and filter."""
    said = json_bytes([token, url, event, arguments])
    return f"sub_{hashlib.sha256(said).hexdigest()[:32]}"


def filter_text(wanted: EventFilter) -> str:
    """Return a filter as JSON, always written in the same way."""
    return msgspec.json.encode(wanted, order="sorted").decode()


class CallbackSubscriptions:
    """Subscribe, renew and unsubscribe by an address, for holders of tokens. What is posted is `CallbackDelivery`'s."""

    def __init__(self, store: Store, subscriptions: EventSubscriptions, clock: Clock, wire: CallbackWire) -> None:
        self._store = store
        self._subscriptions = subscriptions
        self._clock = clock
        self._wire = wire
        self._challenges: dict[str, list[datetime]] = {}

    async def subscribe(self, holder: Caller, asked: CallbackRequest) -> CallbackGrant:
        """Make or renew a subscription, once its receiver has said that it wants it."""
        self._wire.check(asked.url, asked.secret)
        now, token = self._clock.now(), await self._token_of(holder)
        wanted = await self._wanted(token, asked)
        before = await self._store.subscriptions.find(wanted.id)
        if before is not None and before.expires_at <= now:
            await self._store.subscriptions.end(before.id, LAPSED)
            before = None
        own = [each for each in await self._store.subscriptions.list() if each.token == token.id]
        if before is None and len(own) >= MAX_OF_TOKEN:
            raise TooManySubscriptions(f"This token has {MAX_OF_TOKEN} subscriptions.", "End one of them first.")
        if not any(each.url == asked.url and each.expires_at > now for each in own):
            await self._verify(wanted)
        kept = await self._store.subscriptions.keep(wanted, OVERLAP)
        if before is not None and before.has_gap:
            await self._store.subscriptions.told_gap(kept.id)
        is_truncated = wanted.has_gap if before is None else before.has_gap
        if before is None and wanted.has_gap:
            await self._store.subscriptions.told_gap(kept.id)
        cursor = await self._subscriptions.cursor(await self._watermark(kept))
        return CallbackGrant(subscription=kept, cursor=cursor, is_truncated=is_truncated, before=before)

    async def unsubscribe(self, holder: Caller, wanted: Subscription, url: str) -> None:
        """End a subscription. Idempotent."""
        token = await self._token_of(holder)
        found = subscription_id(token.id, url, wanted.type.name, filter_text(wanted.filter))
        await self._store.subscriptions.end(found, "its subscriber ended it")

    async def list(self) -> Sequence[CallbackSubscription]:
        """Return all subscriptions, for people to see."""
        return await self._store.subscriptions.list()

    async def _wanted(self, token: Token, asked: CallbackRequest) -> CallbackSubscription:
        now, arguments = self._clock.now(), filter_text(asked.wanted.filter)
        place = await self._subscriptions.place(asked.cursor)
        audience = await audience_of(self._store, token)
        page = await self._subscriptions.page(asked.wanted, audience, place.number, 1)
        return CallbackSubscription(
            id=subscription_id(token.id, asked.url, asked.wanted.type.name, arguments),
            token=token.id,
            holder=token.name,
            url=asked.url,
            event=asked.wanted.type.name,
            arguments=arguments,
            secret=asked.secret,
            made_at=now,
            renewed_at=now,
            expires_at=now + max(SHORTEST_LIFE, min(asked.life or DAY, DAY)),
            oldest=asked.wanted.oldest,
            number=max(place.number, page.begin),
            has_gap=place.is_truncated or page.is_truncated,
        )

    async def _token_of(self, holder: Caller) -> Token:
        for token in await self._store.tokens.list():
            if token.name == holder.holder and not ended_because(token, self._clock.now()):
                return token
        raise Forbidden("Only the holder of a token can have events posted to it.", "Use events/stream or events/poll.")

    async def _verify(self, wanted: CallbackSubscription) -> None:
        now = self._clock.now()
        recent = [at for at in self._challenges.get(wanted.place, ()) if at > now - timedelta(minutes=1)]
        if len(recent) >= MAX_CHALLENGES:
            raise TooManySubscriptions("This address was asked too often.", "Wait a minute.")
        if len(self._challenges) >= MAX_KEPT_PLACES:
            self._challenges.clear()
        self._challenges[wanted.place] = [*recent, now]
        if reason := await self._wire.verify(wanted):
            raise CallbackTrouble(reason, "Answer the challenge at the address that you name.")

    async def _watermark(self, of: CallbackSubscription) -> int:
        row = await self._store.subscriptions.next_post(of.id)
        return of.number if row is None else row.event - 1


def ended_because(token: Token | None, now: datetime) -> str:
    """Return why a token may not be told anything any more, or nothing."""
    if token is None or token.revoked_at is not None:
        return "its token was revoked"
    if token.expires_at is not None and token.expires_at <= now:
        return "its token has expired"
    return "" if token.scope is not None and lets(token.scope, "read", Grant.READ) else "its token may not read"


async def audience_of(store: Store, token: Token) -> EventAudience:
    """Return what the holder of a token is told about, as it is now."""
    holder = holder_of(token)
    mailboxes: Iterable[Mailbox] | None = holder.mailboxes
    if mailboxes is None:
        mailboxes = {INBOX, *(place.mailbox for place in await store.deliveries.consumers() if place.consumer == WATCH)}
    return EventAudience(
        mailboxes=frozenset(mailboxes),
        approves=holder.approves,
        consumer=holder.consumer,
        session=holder.session,
        sender=holder.sender.id,
    )


class CallbackDelivery:
    """Posts to each subscription what happened, in order. One daemon of a store runs it at a time.

    What happened first becomes rows of the outbox, together with how far was looked; so a daemon that follows a killed
    one posts an event again, with the same id, and steps over none.
    """

    def __init__(
        self,
        store: Store,
        subscriptions: EventSubscriptions,
        clock: Clock,
        wire: CallbackWire,
        words: Callable[[EventOccurrence], Mapping[str, object]],
    ) -> None:
        self._store = store
        self._subscriptions = subscriptions
        self._clock = clock
        self._wire = wire
        self._words = words  # what an event is in JSON
        self._lanes = set[str]()
        self._posting = anyio.Semaphore(MAX_POSTS)

    async def run(self) -> None:
        """Post for ever."""
        changed = Signal()
        with self._store.changes.listen(changed.ring, only=[OUTBOX]):
            async with anyio.create_task_group() as tasks:
                while True:
                    for each in await self._store.subscriptions.list():
                        if each.id not in self._lanes:
                            self._lanes.add(each.id)
                            tasks.start_soon(self._serve, each.id)
                    await changed.wait(LOOK_SECONDS)

    async def _serve(self, subscription: str) -> None:
        lane = _SubscriptionLane(subscription)
        try:
            with self._subscriptions.following() as bell_of:
                pause: float | None = 0.0
                while pause is not None and not self._subscriptions.is_closed:
                    bell = bell_of()
                    pause = await self._next(lane)
                    with anyio.move_on_after(pause or 0.0):
                        await bell.wait()
        finally:
            self._lanes.discard(subscription)

    async def _next(self, lane: _SubscriptionLane) -> float | None:
        """Do what is to be done next; return how long to wait after it, None when the subscription is over."""
        try:
            return await self._step(lane)
        except (Unavailable, Conflict, NotFound) as exc:
            # The store is away, or another daemon does this now: this one is about to be told.
            _log.info("subscription %s: %s", lane.subscription, exc.message)
            return LOOK_SECONDS

    async def _step(self, lane: _SubscriptionLane) -> float | None:
        found = await self._store.subscriptions.find(lane.subscription)
        standing = None if found is None else await self._standing(found)
        if found is None or standing is None:
            return None
        if found.is_suspended:
            return LOOK_SECONDS
        if found.has_gap and lane.gap_tries < MAX_GAP_TRIES and self._now() >= lane.gap_due:
            await self._tell_gap(lane, found)
        row = await self._store.subscriptions.next_post(found.id)
        wanted, audience = standing
        if row is None:
            return await self._look(lane, found, wanted, audience)
        if row.due_at > self._now():
            return (row.due_at - self._now()).total_seconds()
        if row.message.mailbox in audience.mailboxes:
            await self._post(found, row)
        else:
            await self._store.subscriptions.failed(found.id, row.id, NOT_FOR_MAILBOX, due_at=None)
        return 0.0

    async def _standing(self, found: CallbackSubscription) -> tuple[Subscription, EventAudience] | None:
        """Return what a subscription is told of, as its token says now; end one that may not be told any more."""
        token = next((each for each in await self._store.tokens.list() if each.id == found.token), None)
        why, is_lapsed, wanted = ended_because(token, self._now()), found.expires_at <= self._now(), _wanted_of(found)
        if token is None or why or is_lapsed or wanted is None:
            await self._end(found, why or ("" if is_lapsed else "there is no such event any more"))
            return None
        audience = await audience_of(self._store, token)
        if wanted.filter.mailbox and wanted.filter.mailbox not in audience.mailboxes:
            await self._end(found, NOT_FOR_MAILBOX)
            return None
        return wanted, audience

    async def _look(
        self, lane: _SubscriptionLane, found: CallbackSubscription, wanted: Subscription, audience: EventAudience
    ) -> float:
        """Put what happened since into the outbox."""
        page = await self._subscriptions.page(wanted, audience, max(lane.number, found.number), PAGE)
        lane.number = page.number
        if page.occurrences or page.is_truncated or page.number - found.number >= STRIDE:
            posts = [
                EventPost(
                    number=number, id=each.id, message=each.message.id, body=json_bytes(self._words(each)).decode()
                )
                for number, each in page.occurrences
                if each.message is not None
            ]
            gap = page.is_truncated
            lane.gap_tries = 0 if gap else lane.gap_tries
            await self._store.subscriptions.queue(found.id, posts, since=found.number, number=page.number, has_gap=gap)
            return 0.0
        return 0.0 if page.has_more else LOOK_SECONDS

    def _body(self, each: EventOccurrence) -> str:
        return json_bytes(self._words(each)).decode()

    def _now(self) -> datetime:
        return self._clock.now()

    async def _post(self, found: CallbackSubscription, row: OutboxRow) -> None:
        said = {**msgspec.json.decode(row.body, type=dict[str, Any]), "cursor": await self._cursor(row.event)}
        async with self._posting:
            answer = await self._wire.post(found, row.upstream_id, json_bytes(said))
        if not answer.error:
            await self._store.subscriptions.posted(found.id, row.id)
            return
        is_last = answer.is_final or row.attempts >= len(RETRY_SECONDS)
        due = None if is_last else self._now() + timedelta(seconds=RETRY_SECONDS[row.attempts])
        await self._store.subscriptions.failed(found.id, row.id, answer.error, due_at=due, suspend_after=GIVE_UP_AFTER)

    async def _tell_gap(self, lane: _SubscriptionLane, found: CallbackSubscription) -> None:
        row = await self._store.subscriptions.next_post(found.id)
        answer = await self._wire.tell(found, "gap", cursor=await self._cursor(row.event - 1 if row else found.number))
        if not answer.error:
            await self._store.subscriptions.told_gap(found.id)
            return
        lane.gap_due = self._now() + timedelta(seconds=RETRY_SECONDS[lane.gap_tries])
        lane.gap_tries += 1
        await self._store.subscriptions.failed(found.id, None, answer.error, due_at=None)

    async def _end(self, found: CallbackSubscription, why: str) -> None:
        """Remove a subscription; its receiver is told once, if it was not simply left to lapse."""
        await self._store.subscriptions.end(found.id, why or LAPSED)
        if why:
            error = {"code": FORBIDDEN, "message": "Forbidden", "data": {"reason": why}}
            await self._wire.tell(found, "terminated", error=error)

    async def _cursor(self, number: int) -> str:
        return await self._subscriptions.cursor(number)


@dataclass(slots=True)
class _SubscriptionLane:
    """How far one daemon has looked for a subscription, and when it says again what was missed."""

    subscription: str
    number: int = 0
    gap_tries: int = 0
    gap_due: datetime = field(default_factory=lambda: datetime.fromtimestamp(0, UTC))


def _wanted_of(found: CallbackSubscription) -> Subscription | None:
    kind = EVENT_TYPES.get(found.event)
    if kind is None:
        return None
    try:
        return Subscription(kind, kind.parse(msgspec.json.decode(found.arguments)), found.oldest)
    except UserError:
        return None  # a filter of another version
