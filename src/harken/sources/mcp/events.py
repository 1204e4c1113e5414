"""The events of a server: which of them we subscribe to, where each subscription is, and asking for them.

Servers speak one of two dialects: the capability stands at the top or among the extensions, and errors have two sets
of numbers. Both are understood. An event that the server pushes is streamed; one that it does not push, or that it
refuses to push to us, is polled. The cursor of each subscription is part of the checkpoint, so that it is stored
together with the events before it. `http.py` and `stdio.py` carry the requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import anyio

from harken.sources.mcp.link import LinkLost, LinkReceiver, PushUnsupported
from harken.sources.mcp.protocol import (
    METHOD_NOT_FOUND,
    Announcement,
    McpCheckpoint,
    RpcAnswer,
    checkpoint_at,
    occurrence,
    parse_cursors,
    parse_place,
)

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
