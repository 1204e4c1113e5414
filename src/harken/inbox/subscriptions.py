"""Subscriptions: what happened, as named events for programs that follow it, each with its filter and its cursor.

The journal's rows are the truth and are what is read, in the order in which they were committed. A cursor names the
store, its epoch and the last row that a subscriber was told about, so that it is good for as long as the store is,
over every restart. What cannot be told any more, because retention took the row or the message, makes a page
truncated; nothing is left out in silence. The text of a message decides whether a filter fits, and is not told.

Above are the surfaces, which say in which words an event is told: an `EventSink` each, whatever it writes to. The
ticker, which rings here, is the stream of the HTTP API: it tells you everything; a subscriber gets only what it may
read, and nothing that it said itself.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias

import anyio
import msgspec

from harken.automation import Mode, RunState
from harken.clock import Clock
from harken.errors import UserError
from harken.inbox.caller import EVERY_MAILBOX
from harken.inbox.ticker import Ticker
from harken.model import LOCAL, Consumer, Mailbox, Message, MessageId, SessionKey
from harken.rules.match import patterns_of
from harken.store.contract import Store
from harken.store.contract.events import RECOVERY, Event
from harken.store.contract.health import StoreIdentity

RECEIVED, ANSWERED, QUESTION = "message.received", "message.answered", "question.open"
RUN_FINISHED, SESSION_WAITING, APPROVAL_WAITING = "run.finished", "session.waiting", "approval.waiting"

ID_PREFIX: Final = "evt-"  # of the ids of events
MAX_FILTER_CHARS: Final = 200
MAX_CURSOR_CHARS: Final = 512
PAGE: Final = 50  # events that are told before the audience is looked at again
BATCH: Final = 100  # rows that are read at once: a message may be long
MAX_SCANNED: Final = 2_000  # rows that one page looks at
MAX_KEPT_CHARS: Final = 1_000_000  # of the newest rows, for the other subscribers

_Words: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_FILTER_CHARS)]
_MAILBOX: Final = "Only in this mailbox; without it, in every mailbox that you may read."
_RULE: Final = "Only of this rule."


class _Filter(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    mailbox: Annotated[_Words, msgspec.Meta(description=_MAILBOX)] = ""


class MessageFilter(_Filter, frozen=True, kw_only=True):
    """Which messages a subscriber wants to hear of."""

    channel: Annotated[
        _Words, msgspec.Meta(description="Only on this channel: `ci`, or `alerts/*` for all below `alerts/`.")
    ] = ""
    sender: Annotated[_Words, msgspec.Meta(description="Only from the sender with this id or name.")] = ""
    trust: Annotated[
        Literal["", "owner", "known", "unknown"],
        msgspec.Meta(description="Only from senders with this trust: your user, someone known, anyone else."),
    ] = ""
    text: Annotated[_Words, msgspec.Meta(description="Only if the text contains these words, in any case.")] = ""

    def fits(self, message: Message) -> bool:
        """Whether a message is wanted."""
        return (
            self.mailbox in ("", message.mailbox)
            and (not self.channel or self.channel in patterns_of(message.channel))
            and self.sender in ("", message.sender.id, message.sender.name)
            and self.trust in ("", message.trust.value)
            and self.text.casefold() in message.text.casefold()
        )


class AnswerFilter(_Filter, frozen=True, kw_only=True):
    """Which answers a subscriber wants to hear of."""


class RunFilter(_Filter, frozen=True, kw_only=True):
    """Which runs a subscriber wants to hear of."""

    rule: Annotated[_Words, msgspec.Meta(description=_RULE)] = ""


class SessionFilter(_Filter, frozen=True, kw_only=True):
    """Which sessions a subscriber wants to hear of."""

    agent: Annotated[_Words, msgspec.Meta(description="Only of the agent with this name.")] = ""


class ApprovalFilter(_Filter, frozen=True, kw_only=True):
    """Which questions for a yes or no a subscriber wants to hear of."""

    host: Annotated[_Words, msgspec.Meta(description="Only what this agent program asks.")] = ""
    rule: Annotated[_Words, msgspec.Meta(description=_RULE)] = ""


EventFilter: TypeAlias = MessageFilter | AnswerFilter | RunFilter | SessionFilter | ApprovalFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOccurrence:
    """Something that happened. `id` is the same whenever it is told; `message` is what it happened to, if it is one."""

    id: str
    name: str
    at: datetime
    message: Message | None
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventAudience:
    """Who is told: what it may read, for which mailboxes it may say yes or no, and by which names it speaks."""

    mailboxes: frozenset[Mailbox]
    approves: frozenset[Mailbox] = frozenset()
    consumer: Consumer
    session: SessionKey
    sender: str


@dataclass(frozen=True, slots=True)
class EventType:
    """A kind of event: the journal's rows it is found in, and how subscribers say which of them they want.

    To add one: a row in `EVENT_TYPES`, the function that finds it in a row of the journal, and what its data is in
    `surfaces/mcp/events.py`.
    """

    name: str
    kinds: tuple[str, ...]
    wanted: type[EventFilter]
    is_about_message: bool = True  # which has to be there still, for the event to be told
    is_for_approvers: bool = False

    def parse(self, arguments: object) -> EventFilter:
        """Return the filter that a subscriber gives; raises `UserError` with what is wrong with it."""
        try:
            return msgspec.convert(arguments, self.wanted)
        except msgspec.ValidationError as exc:
            known = ", ".join(each.name for each in msgspec.structs.fields(self.wanted))
            raise UserError(f"A filter of {self.name} is wrong: {exc}.", f"Its filters: {known}.") from exc

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of its filters."""
        _, components = msgspec.json.schema_components([self.wanted])
        (schema,) = components.values()
        return {key: value for key, value in schema.items() if key not in ("title", "description")}


EVENT_TYPES: Final[Mapping[str, EventType]] = MappingProxyType(
    {
        each.name: each
        for each in (
            EventType(RECEIVED, ("received",), MessageFilter),
            EventType(ANSWERED, ("answered",), AnswerFilter),
            EventType(QUESTION, ("received",), MessageFilter),
            EventType(RUN_FINISHED, ("run",), RunFilter),
            EventType(
                APPROVAL_WAITING, ("approval", "judged"), ApprovalFilter, is_about_message=False, is_for_approvers=True
            ),
            EventType(SESSION_WAITING, ("session",), SessionFilter, is_about_message=False),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one subscriber wants: an event, and which of them; nothing from before a time."""

    type: EventType
    filter: EventFilter
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPlace:
    """Where a subscriber is: the last row that it was told about, and whether it missed any on the way there."""

    number: int
    is_truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """What follows a place. Each occurrence has the number of its row; `number` is how far everything was looked at."""

    occurrences: Sequence[tuple[int, EventOccurrence]]
    number: int
    begin: int
    is_truncated: bool
    has_more: bool


def cursor_text(identity: StoreIdentity, number: int) -> str:
    """Return a cursor: opaque to its holder."""
    return base64.urlsafe_b64encode(f"1 {identity.id} {identity.epoch} {number}".encode()).decode().rstrip("=")


def read_cursor(text: str, identity: StoreIdentity, newest: int) -> EventPlace:
    """Return the place that a cursor names; one that this store cannot have given out begins now, truncated.

    A restored store goes on with numbers that the one before it has not used, so that a cursor from before then is
    good for what follows, while what was lost with that store is missing.
    """
    place = EventPlace(number=newest, is_truncated=True)
    try:
        padded = text + "=" * (-len(text) % 4)
        version, name, epoch, number = (
            base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii").split(" ")
        )
        said = int(number) if number.isascii() and number.isdigit() else -1
    except (binascii.Error, ValueError):
        return place
    if version != "1" or name != identity.id or said < 0:
        return place
    if epoch != str(identity.epoch) or said > newest:
        return EventPlace(number=min(said, newest), is_truncated=True)
    return EventPlace(number=said)


def occurrence(
    event: Event, wanted: Subscription, audience: EventAudience, message: Message | None
) -> EventOccurrence | None:
    """Return what a row of the journal is to a subscriber; None when it does not concern it."""
    if wanted.type.name == APPROVAL_WAITING:
        found = _asked(event, wanted.filter, audience, message)
        message = None  # a token may say yes or no where it reads nothing
    elif message is None:
        found = _waiting(event, wanted.filter, audience)
    elif message.mailbox not in audience.mailboxes or wanted.filter.mailbox not in ("", message.mailbox):
        return None
    else:
        found = _FOUND[wanted.type.name](event, wanted.filter, audience, message)
    if found is None:
        return None
    key, facts = found
    return EventOccurrence(id=f"{ID_PREFIX}{key}", name=wanted.type.name, at=event.at, message=message, facts=facts)


_Found: TypeAlias = tuple[str, Mapping[str, object]] | None


def _received(event: Event, wanted: EventFilter, audience: EventAudience, message: Message) -> _Found:
    if not isinstance(wanted, MessageFilter) or not wanted.fits(message):
        return None
    if message.source == LOCAL and message.sender.id == audience.sender:
        return None
    # Two that follow each other, or one that follows itself, would tell each other of each other's events for ever.
    is_echo = message.channel in EVENT_TYPES and message.upstream_id.startswith(f"{message.channel}/{ID_PREFIX}")
    if is_echo and wanted.channel != message.channel:
        return None
    return f"received-{message.id}", {"question": _is_question(event)}


def _question(event: Event, wanted: EventFilter, audience: EventAudience, message: Message) -> _Found:
    if not _is_question(event) or _received(event, wanted, audience, message) is None:
        return None
    return f"question-{message.id}", {}


def _is_question(event: Event) -> bool:
    needed = event.data.get(RECOVERY)
    return isinstance(needed, Mapping) and needed.get("is_question") is True


def _answered(event: Event, _wanted: EventFilter, audience: EventAudience, _message: Message) -> _Found:
    if event.data["consumer"] == audience.consumer:
        return None
    return f"answered-{event.data['reply']}", {"reply_id": event.data["reply"], "by": event.data["consumer"]}


def _run_finished(event: Event, wanted: EventFilter, _audience: EventAudience, _message: Message) -> _Found:
    data = event.data
    if data["state"] == RunState.RUNNING.value:
        return None
    if not isinstance(wanted, RunFilter) or wanted.rule not in ("", data["rule"]):
        return None
    facts = {each: data[each] for each in ("run", "action", "rule", "agent", "state")}
    return f"run-{data['run']}", facts


def _waiting(event: Event, wanted: EventFilter, audience: EventAudience) -> _Found:
    data = event.data
    named = data["mailboxes"]
    shared = sorted(audience.mailboxes.intersection(named if isinstance(named, list) else ()))
    if not shared or wanted.mailbox not in ("", *shared) or data["session"] == audience.session:
        return None
    if not isinstance(wanted, SessionFilter) or wanted.agent not in ("", data["agent"]):
        return None
    facts = {each: data[each] for each in ("session", "agent", "consumer", "host")}
    return f"waiting-{event.n}", {**facts, "mailboxes": shared}


def _asked(event: Event, wanted: EventFilter, audience: EventAudience, message: Message | None) -> _Found:
    """Return what waits for a yes or no: of a host, for those who approve everything; of a rule, by its message."""
    data, is_host = event.data, event.kind == "approval"
    is_new = data["change"] == "asked" if is_host else data["action"] and data["mode"] == Mode.CONFIRM.value
    mailbox = message.mailbox if message is not None else None
    is_theirs = EVERY_MAILBOX in audience.approves or (not is_host and mailbox in audience.approves)
    if not is_new or not is_theirs or not isinstance(wanted, ApprovalFilter):
        return None
    host, rule = str(data.get("host", "")), str(data.get("rule", ""))
    if wanted.mailbox not in ("", mailbox) or wanted.host not in ("", host) or wanted.rule not in ("", rule):
        return None
    facts = {each: str(data.get(each, "")) for each in ("host", "tool", "session", "rule", "message_id")}
    return f"approval-{event.n}", {"approval": data["approval" if is_host else "action"], **facts}


_FOUND: Final[Mapping[str, Callable[[Event, EventFilter, EventAudience, Message], _Found]]] = MappingProxyType(
    {
        RECEIVED: _received,
        ANSWERED: _answered,
        QUESTION: _question,
        RUN_FINISHED: _run_finished,
    }
)


class EventSink(Protocol):
    """Where the events of one subscription go. Each call returns when there is room for the next."""

    async def active(self, cursor: str, *, is_truncated: bool) -> None:
        """Everything after the cursor follows; truncated: something before it was missed."""
        ...

    async def event(self, told: EventOccurrence, cursor: str) -> None:
        """Something happened; everything up to the cursor was told."""
        ...

    async def heartbeat(self, cursor: str) -> None:
        """Nothing happened up to the cursor that was not told."""
        ...


@dataclass(slots=True, kw_only=True)
class EventSubscriber:
    """Who is subscribed to what now, for people to see. `way`: how it is told."""

    consumer: Consumer
    session: SessionKey
    event: str
    filter: Mapping[str, object]
    way: str
    since: datetime
    asked_at: datetime
    told: int = 0
    told_at: datetime | None = None

    @property
    def sentence(self) -> str:
        """What it is subscribed to, in words."""
        wanted = ", ".join(f"{name} {value}" for name, value in self.filter.items())
        return f"{self.event} by {self.way}{f' ({wanted})' if wanted else ''}"

    def note(self, now: datetime, told: int = 0) -> None:
        """It asked, or was told of so many."""
        self.asked_at = now
        self.told += told
        self.told_at = now if told else self.told_at


@dataclass(slots=True)
class _Rows:
    """The newest rows that were read: all who are up to date read the same."""

    after: int = -1
    events: Sequence[Event] = field(default_factory=tuple)


class EventSubscriptions:
    """Reads what happened for all subscribers of a daemon. Their cursors are theirs; here is only who they are now."""

    def __init__(self, store: Store, ticker: Ticker, clock: Clock) -> None:
        self._store = store
        self._ticker = ticker
        self._clock = clock
        self._subscribers: dict[int, EventSubscriber] = {}
        self._identity: StoreIdentity | None = None
        self._reading = anyio.Lock()
        self._rows = _Rows()

    async def place(self, cursor: str | None) -> EventPlace:
        """Return the place that a cursor names; without one it is now."""
        newest = await self._store.events.last()
        return EventPlace(number=newest) if cursor is None else read_cursor(cursor, await self._of_store(), newest)

    async def cursor(self, number: int) -> str:
        """Return the cursor of a place."""
        return cursor_text(await self._of_store(), number)

    async def page(self, wanted: Subscription, audience: EventAudience, after: int, limit: int) -> EventPage:
        """Return what follows a number for a subscriber: so many at most, of a bounded number of rows."""
        found: list[tuple[int, EventOccurrence]] = []
        number, scanned, begin, is_truncated = after, 0, after, False
        while scanned < MAX_SCANNED and len(found) < limit:
            events = await self._after(number)
            if not events:
                return EventPage(
                    occurrences=found, number=number, begin=begin, is_truncated=is_truncated, has_more=False
                )
            if events[0].n > number + 1:
                # Retention took what was between, or it was lost with an earlier store.
                is_truncated = True
                begin = events[0].n - 1 if not found else begin
            messages = await self._messages(events, wanted)
            for event in events:
                if len(found) == limit:
                    break
                is_gone, told = self._told(event, wanted, audience, messages)
                is_truncated = is_truncated or is_gone
                if told is not None:
                    found.append((event.n, told))
                number = event.n
            scanned += len(events)
        has_more = number < max(self._ticker.newest, await self._store.events.last())
        return EventPage(occurrences=found, number=number, begin=begin, is_truncated=is_truncated, has_more=has_more)

    def subscribers(self) -> Sequence[EventSubscriber]:
        """Return who is subscribed now, the first one first."""
        return list(self._subscribers.values())

    def enter(self, wanted: Subscription, audience: EventAudience, way: str) -> EventSubscriber:
        """Let people see a subscriber, until it leaves."""
        now = self._clock.now()
        found = EventSubscriber(
            consumer=audience.consumer,
            session=audience.session,
            event=wanted.type.name,
            filter=msgspec.to_builtins(wanted.filter),
            way=way,
            since=now,
            asked_at=now,
        )
        self._subscribers[id(found)] = found
        return found

    def leave(self, subscriber: EventSubscriber) -> None:
        """A subscriber is gone."""
        self._subscribers.pop(id(subscriber), None)

    async def deliver(
        self,
        wanted: Subscription,
        place: EventPlace,
        sink: EventSink,
        *,
        audience_of: Callable[[], Awaitable[EventAudience]],
        subscriber: EventSubscriber,
        heartbeat_seconds: float,
    ) -> None:
        """Tell a sink what follows a place until the daemon ends; raises what `audience_of` and the sink raise."""
        number, is_truncated, is_first = place.number, place.is_truncated, True
        with self.following() as bell_of:
            while not self.is_closed:
                bell = bell_of()
                page = await self.page(wanted, await audience_of(), number, PAGE)
                is_truncated = is_truncated or page.is_truncated
                if is_first or is_truncated:
                    await sink.active(await self.cursor(page.begin), is_truncated=is_truncated)
                is_first = is_truncated = False
                for row, each in page.occurrences:
                    await sink.event(each, await self.cursor(row))
                    subscriber.note(self._clock.now(), told=1)
                number = page.number
                if not page.has_more:
                    await self._pause(bell, number, sink, heartbeat_seconds)

    async def _pause(self, bell: anyio.Event, number: int, sink: EventSink, seconds: float) -> None:
        """Wait until something happened; a heartbeat says meanwhile how far everything was told."""
        while not bell.is_set():
            with anyio.move_on_after(seconds):
                await bell.wait()
                return
            await sink.heartbeat(await self.cursor(number))

    @contextmanager
    def following(self) -> Iterator[Callable[[], anyio.Event]]:
        """Be rung while the context is open: take the bell before looking, and wait for it afterwards."""
        with self._ticker.follow():
            yield lambda: self._ticker.bell

    @property
    def is_closed(self) -> bool:
        """Whether the daemon ends, and with it every subscription."""
        return self._ticker.is_closed

    def _told(
        self, event: Event, wanted: Subscription, audience: EventAudience, messages: Mapping[MessageId, Message]
    ) -> tuple[bool, EventOccurrence | None]:
        """Return whether something cannot be told any more, and what can."""
        if event.kind not in wanted.type.kinds:
            return False, None
        message = event.message or messages.get(_about(event))
        if message is None and wanted.type.is_about_message:
            return True, None
        told = occurrence(event, wanted, audience, message)
        if told is not None and wanted.oldest is not None and event.at < wanted.oldest:
            return True, None
        return False, told

    async def _messages(self, events: Sequence[Event], wanted: Subscription) -> Mapping[MessageId, Message]:
        ids = [_about(each) for each in events if each.kind in wanted.type.kinds and each.message is None]
        named = [each for each in dict.fromkeys(ids) if each]
        return await self._store.messages.get_many(named) if named else {}

    async def _after(self, number: int) -> Sequence[Event]:
        async with self._reading:
            if self._rows.after == number and self._rows.events:
                return self._rows.events
            events = await self._store.events.after(number, BATCH)
            is_small = sum(len(each.message.text) for each in events if each.message is not None) <= MAX_KEPT_CHARS
            self._rows = _Rows(number, events) if is_small else _Rows()
            return events

    async def _of_store(self) -> StoreIdentity:
        if self._identity is None:
            self._identity = await self._store.health.identity()
        return self._identity


def _about(event: Event) -> MessageId:
    return MessageId(str(event.data.get("message_id") or ""))
