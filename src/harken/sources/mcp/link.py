"""What a link to an MCP server is on any transport, how it ends, and what it reports.

A link is one conversation at a time; `source.py` opens it again and again and decides when. It hands what it hears to
a `LinkReceiver` and waits there when too much is waiting to be stored: a fast server is read no faster than we store.
`ServerReplies` answers what a server asks, beside the reading and never in its way.

The second half is about the events of a server: which of them we subscribe to, where each subscription is, and asking
for them. Servers speak one of two dialects: the capability stands at the top or among the extensions, and errors have
two sets of numbers. Both are understood. An event that the server pushes is streamed; one that it does not push, or
that it refuses to push to us, is polled. The cursor of each subscription is part of the checkpoint, so that it is
stored together with the events before it. `http.py` and `stdio.py` carry the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeVar

import anyio

from harken.sources.mcp import protocol
from harken.sources.mcp.protocol import (
    METHOD_NOT_FOUND,
    Announcement,
    McpCheckpoint,
    RpcAnswer,
    RpcRequest,
    checkpoint_at,
    occurrence,
    parse_cursors,
    parse_place,
)

Ended = TypeVar("Ended")

MAX_WAITING: Final = 64

_log = logging.getLogger("harken.sources.mcp")


class LinkTrouble(Exception):
    """Why a link cannot go on. `reason` is a sentence for people, without anything secret."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LinkLost(LinkTrouble):
    """The connection failed or ended; trying again may help, after `retry_after` seconds if the server said so."""

    def __init__(self, reason: str, *, retry_after: float | None = None, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.is_refused = is_refused


class PushUnsupported(LinkTrouble):
    """The server is there and will never announce anything."""


class SessionGone(LinkTrouble):
    """The server does not know our session any more; a new one may begin at once."""


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """The server ended the stream properly, perhaps saying when to come back."""

    retry_after: float | None = None


class LinkReceiver(Protocol):
    """Who is told what a link hears."""

    def met(self, server: str) -> None:
        """Take note of what the server calls itself."""
        ...

    def opened(self, *, is_resumed: bool) -> None:
        """Take note that announcements arrive from now on; resumed: nothing was missed since the last time."""
        ...

    def missed(self) -> None:
        """Take note that the server has skipped something, though the connection stands."""
        ...

    def waits(self, reason: str) -> None:
        """Take note why nothing arrives yet."""
        ...

    def gave_up(self, count: int) -> None:
        """Take note of announcements that were too long to be read."""
        ...

    async def take(self, announcements: Sequence[Announcement], checkpoint: str | None = None) -> None:
        """Keep announcements, and the position after them, until they are stored; wait while too many are waiting."""
        ...


class Link(Protocol):
    """A way to one server. It is entered before use, and left to end it politely."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *details: object) -> None: ...

    async def listen(self, desk: LinkReceiver) -> LinkClosed:
        """Connect and hand everything announced to the desk until the connection ends; raises `LinkTrouble`."""
        ...


class IdleTimer:
    """When the last byte came."""

    def __init__(self) -> None:
        self.at = anyio.current_time()

    def beat(self) -> None:
        """Note that a byte came."""
        self.at = anyio.current_time()


@contextmanager
def bounded(seconds: float, doing: str) -> Iterator[None]:
    """Raise `LinkLost` when what is done in the block takes too long."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as exc:
        raise LinkLost(f"the server does not answer {doing} within {seconds:g} seconds") from exc


async def watched(
    read: Callable[[IdleTimer], Awaitable[Ended]],
    probe: Callable[[], Awaitable[str]],
    idle: Callable[[], float],
    *beside: Callable[[], Coroutine[Any, Any, None]],
) -> Ended:
    """Return what `read` returns; when no byte came for `idle` seconds, `probe` says why the server is lost.

    What is done `beside` it raises nothing, and is cancelled with it.
    """
    pulse = IdleTimer()
    ended: list[Ended] = []
    failed: list[LinkTrouble] = []

    async def run() -> None:
        try:
            ended.append(await read(pulse))
        except LinkTrouble as exc:
            failed.append(exc)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        for work in beside:
            group.start_soon(work)
        while True:
            await anyio.sleep_until(pulse.at + idle())
            if anyio.current_time() < pulse.at + idle():
                continue
            reason = await probe()
            if reason:
                failed.append(LinkLost(reason))
                group.cancel_scope.cancel()
            pulse.beat()
    if ended:
        return ended[0]
    raise failed[0]


class ServerReplies:
    """The answers of one conversation with the source `name`; `tell` sends one, and ends within the time-out."""

    def __init__(self, name: str, tell: Callable[[bytes], Awaitable[None]]) -> None:
        self._name = name
        self._tell = tell
        self._waiting: list[RpcRequest] = []
        self._unanswered = 0
        self._asked = anyio.Event()

    def add(self, requests: Sequence[RpcRequest]) -> None:
        """Let requests be answered soon. Never waits."""
        room = MAX_WAITING - len(self._waiting)
        self._waiting.extend(requests[:room])
        if self._waiting:
            self._asked.set()
        if len(requests) > room:
            if not self._unanswered:
                _log.warning("%s: the server asks faster than it takes answers: some get none", self._name)
            self._unanswered += len(requests) - room

    async def run(self) -> None:
        """Send the answers, until cancelled."""
        try:
            while True:
                await self._asked.wait()
                self._asked = anyio.Event()
                while self._waiting:
                    # Should it fail, the stream itself will tell what is wrong.
                    with suppress(LinkTrouble):
                        await self._tell(protocol.reply(self._waiting[0]))
                    del self._waiting[0]
        finally:
            if self._unanswered:
                _log.info("%s: %d requests of the server got no answer", self._name, self._unanswered)


LIST: Final = "events/list"
STREAM: Final = "events/stream"
POLL: Final = "events/poll"
PUSH_DELIVERY: Final = "push"
POLL_DELIVERY: Final = "poll"

MAX_SUBSCRIPTIONS: Final = 20
MAX_PAGES: Final = 10
MAX_CURSOR_CHARS: Final = 65_536
EVENTS_AT_ONCE: Final = 100
FIRST_POLL_SECONDS: Final = 1.0  # the shortest wait between two polls
LAST_POLL_SECONDS: Final = 3_600.0
POLL_SECONDS: Final = 30.0  # where the server does not say when to come again
SILENT_SECONDS: Final = 120.0  # a stream that has had a heartbeat has the next within 30

# Unknown method or params, and "not found", "forbidden" and "unsupported" in the two numberings of the extension.
NOT_FOR_US: Final = frozenset({METHOD_NOT_FOUND, -32602, -32011, -32012, -32014, -32023, -32024, -32026})
UNSUPPORTED: Final = frozenset({METHOD_NOT_FOUND, -32014, -32026})

AskServer = Callable[[str, Mapping[str, object]], Awaitable[RpcAnswer | None]]
"""Asks the server with a method and params; None where it has no answer that we could read."""


@dataclass(frozen=True, slots=True)
class EventSubscription:
    """One kind of event, and how it reaches us."""

    name: str
    is_pushed: bool
    can_poll: bool = False

    def asked(self, cursor: str) -> dict[str, object]:
        """Return the params that ask for it from a cursor on; without one, from now on."""
        return {"name": self.name, "arguments": {}, "cursor": cursor or None}


class EventPositions:
    """Where each subscription of one server is, and which of them cannot be had."""

    def __init__(self, where: str, checkpoint: str) -> None:
        self._where = where
        self.place: McpCheckpoint | None = parse_place(checkpoint, where)
        self.cursors = parse_cursors(checkpoint, where)
        self._refused = set[str]()
        self._unpushed = set[str]()

    def checkpoint(self) -> str:
        """Return all positions as a checkpoint."""
        return checkpoint_at(self._where, self.place, self.cursors)

    def move(self, name: str, cursor: str) -> str | None:
        """Take note of the cursor of a subscription; returns the checkpoint if there is a new one."""
        if not name or not cursor or len(cursor) > MAX_CURSOR_CHARS or self.cursors.get(name) == cursor:
            return None
        self.cursors[name] = cursor
        return self.checkpoint()

    def refuse(self, wanted: EventSubscription, code: int) -> None:
        """Take note that a subscription cannot be had in this way: it is polled if it can be, else left alone."""
        if wanted.is_pushed and wanted.can_poll and code in UNSUPPORTED:
            self._unpushed.add(wanted.name)
            return
        self._refused.add(wanted.name)
        self.cursors.pop(wanted.name, None)

    def is_refused(self, name: str) -> bool:
        """Whether a subscription cannot be had."""
        return name in self._refused

    def is_pushed(self, wanted: EventSubscription) -> bool:
        """Whether a subscription is streamed to us."""
        return wanted.is_pushed and wanted.name not in self._unpushed

    def wanted(self, listed: RpcAnswer) -> list[EventSubscription]:
        """Return what a page of the list offers that we can subscribe to without knowing more about it."""
        events = listed.result.get("events")
        found: list[EventSubscription] = []
        for event in events if isinstance(events, list) else []:
            name = event.get("name") if isinstance(event, dict) else None
            if not isinstance(name, str) or not name or name in self._refused:
                continue
            schema = event.get("inputSchema")
            if isinstance(schema, dict) and schema.get("required"):
                continue
            delivery = event.get("delivery") or [PUSH_DELIVERY]
            ways = delivery if isinstance(delivery, (list, str)) else ()
            is_pushed = PUSH_DELIVERY in ways and name not in self._unpushed
            if is_pushed or POLL_DELIVERY in ways:
                found.append(EventSubscription(name, is_pushed, POLL_DELIVERY in ways))
        return found


async def list_events(positions: EventPositions, ask: AskServer) -> list[EventSubscription]:
    """Return what to subscribe to: at most so many, each name once; nothing where the server has no events."""
    found: dict[str, EventSubscription] = {}
    page = ""
    for _ in range(MAX_PAGES):
        answer = await ask(LIST, {"cursor": page} if page else {})
        if answer is None or answer.error_code is not None:
            break
        for each in positions.wanted(answer):
            found.setdefault(each.name, each)
        further = answer.result.get("nextCursor")
        if not isinstance(further, str) or not further or len(found) >= MAX_SUBSCRIPTIONS:
            break
        page = further
    return list(found.values())[:MAX_SUBSCRIPTIONS]


@dataclass(frozen=True, slots=True)
class PollResult:
    """What one poll brought, and when to come again."""

    announcements: list[Announcement]
    cursor: str
    is_truncated: bool
    wait_seconds: float


def read_poll(answer: RpcAnswer, cursor: str) -> PollResult:
    """Return what an answer says; `cursor` is the one that was asked from."""
    result = answer.result
    events, given, wait = result.get("events"), result.get("cursor"), result.get("nextPollMs")
    announcements = [occurrence(each) for each in events if isinstance(each, dict)] if isinstance(events, list) else []
    further = given if isinstance(given, str) else ""
    asked = wait / 1000 if isinstance(wait, (int, float)) and not isinstance(wait, bool) else POLL_SECONDS
    seconds = min(max(asked, FIRST_POLL_SECONDS), LAST_POLL_SECONDS)
    if result.get("hasMore") is True:
        # One that says so and does not move would be asked without end.
        seconds = 0.0 if announcements and further != cursor else FIRST_POLL_SECONDS
    return PollResult(announcements, further, result.get("truncated") is True, seconds)


async def poll_events(
    wanted: EventSubscription,
    positions: EventPositions,
    ask: AskServer,
    desk: LinkReceiver,
    confirm: Callable[[PollResult], None],
) -> None:
    """Poll one event for ever; `confirm` is told of each answer."""
    while True:
        cursor = positions.cursors.get(wanted.name, "")
        answer = await ask(POLL, {**wanted.asked(cursor), "maxEvents": EVENTS_AT_ONCE})
        if answer is None:
            raise LinkLost(f"the server does not answer {POLL}")
        if answer.error_code is not None:
            if answer.error_code in NOT_FOR_US:
                positions.refuse(EventSubscription(wanted.name, is_pushed=False), answer.error_code)
                raise PushUnsupported(f"the server refuses {POLL} of {wanted.name} (error {answer.error_code})")
            raise LinkLost(f"the server refuses {POLL} (error {answer.error_code})")
        told = read_poll(answer, cursor)
        checkpoint = positions.move(wanted.name, told.cursor)
        if told.announcements or checkpoint is not None:
            await desk.take(told.announcements, checkpoint)
        confirm(told)
        await anyio.sleep(told.wait_seconds)
