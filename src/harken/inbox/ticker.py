"""The ticker: what the journal records, told as it happens to everyone who follows.

The store is the truth and is what is read: a commit only rings, and each follower reads on from the number it has. The
newest steps are read and encoded once for all; a follower that is behind them reads for itself, so none misses
anything, and one that does not take what it is given costs a number. Above is the stream of the HTTP API. It is not the
journal: that is the file, written before this rings.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import anyio

from harken.memory import json_bytes
from harken.model import TASK, Mailbox, Message, MessageId, timestamp
from harken.store.contract.events import Event, EventStore
from harken.store.contract.messages import MessageStore

QUEUED, OFFERED, SEEN, ANSWERED = "message.queued", "message.offered", "message.seen", "message.answered"
CHANGED, TASK_CHANGED, SESSION_CHANGED, RESET = "message.changed", "task.changed", "session.changed", "reset"
JUDGED, ACTION_CHANGED, RUN_CHANGED, RULES_CHANGED = "message.judged", "action.changed", "run.changed", "rules.changed"
QUESTION_CHANGED, CONVERSATION_CHANGED = "question.changed", "conversation.changed"
APPROVAL_CHANGED, SESSION_HALTED = "approval.changed", "session.halted"

MAX_NAMED = 200
"""Of one event of the journal so many messages are named; the rest are told as a number."""

TimelineScope = tuple[Mailbox, int]
"""The mailbox of a message, and its sequence number."""

NAMES = (
    QUEUED, OFFERED, SEEN, ANSWERED, CHANGED, QUESTION_CHANGED, CONVERSATION_CHANGED, JUDGED, ACTION_CHANGED,
    RUN_CHANGED, RULES_CHANGED, APPROVAL_CHANGED, TASK_CHANGED, SESSION_CHANGED, SESSION_HALTED, RESET,
)  # fmt: skip

_OF_AUTOMATION: Final[Mapping[str, tuple[str, Sequence[str]]]] = MappingProxyType(
    {
        "judged": (JUDGED, ("message_id", "rule", "mode", "outcome", "action")),
        "action": (ACTION_CHANGED, ("message_id", "action", "rule", "mode", "state")),
        "run": (RUN_CHANGED, ("message_id", "run", "action", "rule", "agent", "state")),
    }
)
"""What these events of the journal are called, and what they say. Reasons are left out: a run may have made them up."""

_OF_HALT: Final = ("session", "consumer", "agent", "host", "halt")
_OF_APPROVAL: Final = ("approval", "change", "state", "host", "session", "choice", "by")

_Fields = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TickerEvent:
    """One event as readers get it. `data` is a line of JSON; without a mailbox it concerns all."""

    name: str
    data: bytes
    mailbox: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickerStep:
    """What one event of the journal, number `n`, became: none, one or several. 0: it is not in the journal."""

    n: int
    events: Sequence[TickerEvent]


def mentioned(events: Collection[Event]) -> set[MessageId]:
    """Return the messages with a mailbox that must be known to say what happened."""
    return {
        MessageId(str(each["message_id"])) for event in events for _, each in _parts(event) if "mailbox" not in each
    }


def step(event: Event, places: Mapping[MessageId, TimelineScope]) -> TickerStep:
    """Return what an event of the journal is here. `places` are those of what it mentions, as far as stored."""
    head: _Fields = {"n": event.n, "at": timestamp(event.at)}
    return TickerStep(
        n=event.n, events=[_event(name, head | _placed(fields, places)) for name, fields in _parts(event)]
    )


def reset(n: int, after: int) -> TickerStep:
    """Return the step that says: what happened after `after` cannot all be told, and the ticker goes on after `n`."""
    return TickerStep(n=n, events=[_event(RESET, {"n": n, "after": after})])


def unnumbered(name: str) -> TickerStep:
    """Return the step of something that is not in the journal."""
    return TickerStep(n=0, events=[_event(name, {})])


def _event(name: str, fields: _Fields) -> TickerEvent:
    return TickerEvent(name=name, data=json_bytes(fields), mailbox=str(fields.get("mailbox") or ""))


def _placed(fields: _Fields, places: Mapping[MessageId, TimelineScope]) -> _Fields:
    if "mailbox" in fields:
        return fields
    # One that retention took meanwhile has no place any more.
    mailbox, seq = places.get(MessageId(str(fields["message_id"])), (None, None))
    return fields | {"mailbox": mailbox, "seq": seq}


def _parts(event: Event) -> Iterator[tuple[str, _Fields]]:
    """Yield the name and the fields of each event on the ticker; `mailbox` is left out where the journal has none."""
    data: Mapping[str, Any] = event.data
    match event.kind:
        case "received":
            if event.message is not None:
                yield QUEUED, _header(event.message)
        case "offered":
            told = {"consumer": data["consumer"], "session": data["session"], "surface": data["surface"]}
            yield from _each(OFFERED, _deliveries(data), {"state": "offered", **told})
        case "seen":
            told = {"consumer": data["consumer"], "evidence": data["evidence"]}
            yield from _each(SEEN, _deliveries(data), {"state": "seen", **told})
        case "answered":
            told = {"consumer": data["consumer"], "author": data["author"], "reply_id": data["reply"]}
            named = {"message_id": data["message_id"], "delivery_id": data["delivery"]}
            yield from _each(ANSWERED, [named], {"state": "answered", **told})
        case "withdrawn":
            yield from _each(CHANGED, [{"message_id": each} for each in data["messages"]], {"state": "queued"})
        case "expired" | "refused":
            told = {"state": event.kind, "consumer": data["consumer"], "mailbox": data["mailbox"]}
            yield from _each(CHANGED, [{"message_id": each} for each in data["ids"]], told)
        case "settled" | "reminded" | "escalated":
            yield QUESTION_CHANGED, {"message_id": data["message_id"], "state": event.kind}
        case "task":
            yield TASK_CHANGED, {**event.told, "mailbox": f"{TASK}{data['task']}"}
        case _:
            yield from _others(event)


def _others(event: Event) -> Iterator[tuple[str, _Fields]]:
    if event.kind in _OF_AUTOMATION:
        name, fields = _OF_AUTOMATION[event.kind]
        yield name, {field: event.data[field] for field in fields}
    elif event.kind == "triage":
        yield CONVERSATION_CHANGED, {field: event.data[field] for field in ("message_id", "state")}
    elif event.kind == "approval":
        yield APPROVAL_CHANGED, {field: event.data[field] for field in _OF_APPROVAL} | {"mailbox": None}
    elif event.kind == "halted":
        yield SESSION_HALTED, {field: event.data[field] for field in _OF_HALT} | {"mailbox": None}
    elif event.kind in ("paused", "resumed", "rules"):
        yield RULES_CHANGED, {"change": event.kind, "mailbox": None}


def _deliveries(data: Mapping[str, Any]) -> Sequence[_Fields]:
    return [{"message_id": message, "delivery_id": delivery} for delivery, message in data["deliveries"].items()]


def _each(name: str, named: Sequence[_Fields], told: _Fields) -> Iterator[tuple[str, _Fields]]:
    for each in named[:MAX_NAMED]:
        yield name, each | told
    if len(named) > MAX_NAMED:
        yield name, {"message_id": None, "count": len(named) - MAX_NAMED, "mailbox": None} | told


def _header(message: Message) -> _Fields:
    return {
        "message_id": message.id,
        "mailbox": message.mailbox,
        "seq": message.seq,
        "state": "queued",
        "source": message.source,
        "channel": message.channel,
        "from": message.sender.label,
        "sender_id": message.sender.id,
        "trust": message.trust.value,
        "attention": message.attention.value,
        "priority": message.priority.value,
        "kind": message.kind.value,
        "thread": message.thread,
        "refers_to": message.refers_to,
    }


RECENT = 512  # steps that are kept for all
BATCH = 100  # events that are read at once: a message may be long
MAX_READS = 4  # followers that read for themselves at once: the rest of the daemon reads too
RING_SECONDS = 0.02  # between two rings: a hundred followers that wake at each of many commits would be all we do
POKE_SECONDS = 0.25  # sessions do something with every call: people need not see each


class Ticker:
    """One per daemon, made in its event loop. `publish` may be called from any thread, the rest only in the loop."""

    def __init__(self) -> None:
        # asyncio, because anyio cannot ring the loop from a foreign thread without holding that thread up.
        self._loop = asyncio.get_running_loop()
        self._events: EventStore | None = None
        self._messages: MessageStore | None = None
        self._newest = 0
        self._recent: deque[TickerStep] = deque(maxlen=RECENT)  # without gaps
        self._reading = anyio.Lock()
        self._catching_up = anyio.Semaphore(MAX_READS)
        self._bell = anyio.Event()
        self._is_due = False  # a ring is on its way
        self._rang_at = 0.0
        self._followers = 0
        self._pokes: dict[str, int] = {}
        self._poked: set[str] = set()
        self._is_closed = False

    async def attach(self, events: EventStore, messages: MessageStore) -> None:
        """Begin to follow a store: until then there is nothing to be told."""
        self._newest = max(self._newest, await events.last())
        self._events, self._messages = events, messages

    @property
    def newest(self) -> int:
        """The number of the newest event: a reader that looks at the store now and follows after it misses nothing."""
        return self._newest

    @property
    def is_closed(self) -> bool:
        """Whether it has ended, and with it every follower."""
        return self._is_closed

    @property
    def followers(self) -> int:
        """How many follow now."""
        return self._followers

    def publish(self, events: Sequence[Event]) -> None:
        """Ring for what was just committed. Never raises or waits: it runs where the store writes, in any thread."""
        # Before looking for followers: one that comes now sees it by itself.
        self._newest = max(self._newest, events[-1].n)
        if self._followers and not self._is_due:
            self._is_due = True
            with suppress(RuntimeError):  # the loop is closed: nobody follows any more
                self._loop.call_soon_threadsafe(self._ring_soon)

    def advance(self, number: int) -> None:
        """Ring for what another daemon committed, up to this number. Call it in the loop."""
        if number > self._newest:
            self._newest = number
            self._ring()

    def poke(self, name: str = SESSION_CHANGED) -> None:
        """Tell soon, once for all that happens until then, of something that is not in the journal."""
        if not self._followers or name in self._poked:
            return
        self._poked.add(name)
        self._loop.call_later(POKE_SECONDS, self._count_poke, name)

    def close(self) -> None:
        """End it: every follower returns at once."""
        self._is_closed = True
        self._ring()

    @contextmanager
    def follow(self, after: int | None = None, *, names: Collection[str] = (), mailbox: str = "") -> Iterator[Follower]:
        """Follow from after a number, or from now; only events of these names and of this mailbox, if given."""
        self._followers += 1
        try:
            yield Follower(self, after, names=frozenset(names), mailbox=mailbox)
        finally:
            self._followers -= 1

    def _ring_soon(self) -> None:
        self._loop.call_later(max(0.0, self._rang_at + RING_SECONDS - self._loop.time()), self._ring_due)

    def _ring_due(self) -> None:
        self._is_due = False  # before the ring: what is published from here on asks for another
        self._rang_at = self._loop.time()
        self._ring()

    def _ring(self) -> None:
        bell, self._bell = self._bell, anyio.Event()
        bell.set()

    def _count_poke(self, name: str) -> None:
        self._poked.discard(name)
        self._pokes[name] = self._pokes.get(name, 0) + 1
        self._ring()

    # -- for followers -----------------------------------------------------------------------------------------

    @property
    def bell(self) -> anyio.Event:
        """What is set when there may be something new. Take it before looking."""
        return self._bell

    def pokes(self) -> Mapping[str, int]:
        """How often each thing that is not in the journal happened."""
        return dict(self._pokes)

    async def steps(self, after: int) -> Sequence[TickerStep]:
        """Return what follows a number, as much as is read at once; the first is its successor unless some are gone."""
        if after >= self._newest:
            return ()
        if found := self._kept(after):
            return found
        if self._recent and after < self._recent[-1].n:
            async with self._catching_up:
                return await self._read(after)
        async with self._reading:
            # Whoever waited here finds what the first one read.
            return self._kept(after) or self._keep(after, await self._read(after))

    def _kept(self, after: int) -> Sequence[TickerStep]:
        if not self._recent:
            return ()
        place = after + 1 - self._recent[0].n
        return list(islice(self._recent, place, place + BATCH)) if place >= 0 else ()

    def _keep(self, after: int, steps: Sequence[TickerStep]) -> Sequence[TickerStep]:
        for each in steps:
            if self._recent and self._recent[-1].n + 1 != each.n:
                self._recent.clear()
            self._recent.append(each)
        return self._kept(after) or steps

    async def _read(self, after: int) -> Sequence[TickerStep]:
        if self._events is None or self._messages is None:
            return ()
        events = await self._events.after(after, BATCH)
        places: dict[MessageId, TimelineScope] = {}
        ids = list(mentioned(events))
        for begin in range(0, len(ids), MAX_NAMED):
            found = await self._messages.get_many(ids[begin : begin + MAX_NAMED])
            # Only the place is kept: texts are long, and these may be many.
            places |= {each.id: (each.mailbox, each.seq) for each in found.values()}
        return [step(event, places) for event in events]


class Follower:
    """One reader's place in the ticker. Made by `Ticker.follow`."""

    def __init__(self, ticker: Ticker, after: int | None, *, names: frozenset[str], mailbox: str) -> None:
        self._ticker = ticker
        self._names = names
        self._mailbox = mailbox
        self._pokes = ticker.pokes()
        self._asked = after
        self.position = ticker.newest if after is None else min(after, ticker.newest)

    async def next(self, seconds: float) -> Sequence[TickerStep]:
        """Return what is new as soon as something is; nothing when the seconds are over or the ticker has ended.

        `position` is then how far everything was told, and where to follow on. Raises what reading the store raises.
        """
        if self._asked is not None and self._asked > self.position:
            # A number that this store has not reached: it was another one's.
            asked, self._asked = self._asked, None
            return [reset(self.position, asked)]
        with anyio.move_on_after(seconds):
            while not self._ticker.is_closed:
                bell = self._ticker.bell
                if found := await self._look():
                    return found
                await bell.wait()
        return []

    async def _look(self) -> Sequence[TickerStep]:
        told: list[TickerStep] = []
        while not told and (steps := await self._ticker.steps(self.position)):
            # No wait from here on: what the position has passed must be returned.
            for each in steps:
                if each.n > self.position + 1:
                    told.append(reset(each.n - 1, self.position))
                if (wanted := self._wanted(each)) is not None:
                    told.append(wanted)
                self.position = each.n
        pokes = self._ticker.pokes()
        new = [name for name, count in pokes.items() if self._pokes.get(name, 0) < count]
        self._pokes = pokes
        return [*told, *(unnumbered(name) for name in new if not self._names or name in self._names)]

    def _wanted(self, each: TickerStep) -> TickerStep | None:
        if not self._names and not self._mailbox:
            return each if each.events else None
        events = [
            event
            for event in each.events
            if (not self._names or event.name in self._names)
            and (not self._mailbox or event.mailbox in ("", self._mailbox))
        ]
        return TickerStep(n=each.n, events=events) if events else None
