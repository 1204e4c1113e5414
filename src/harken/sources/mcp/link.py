"""What a link to an MCP server is on any transport, how it ends, and what it reports.

A link is one conversation at a time; `source.py` opens it again and again and decides when. It hands what it hears to
a `LinkReceiver` and waits there when too much is waiting to be stored: a fast server is read no faster than we store.
`ServerReplies` answers what a server asks, beside the reading and never in its way.

The second half is about the events of a server: which of them we subscribe to, where each subscription is, and asking
for them. Servers speak one of two dialects: the capability stands at the top or among the extensions, and errors have
two sets of numbers. Both are understood. An event that the server pushes is streamed; one that it does not push, or
that it refuses to push to us, is polled, and one that cannot be polled either is posted to us, where others can reach
us: to an `EventDoor`. The cursor of each subscription is part of the checkpoint, so that it is stored together with the
events before it, or after what was posted. `http.py` and `stdio.py` carry the requests.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol, Self, TypeVar
from urllib.parse import urlencode

import anyio

from harken.clock import Clock
from harken.errors import Forbidden, UserError
from harken.memory import json_bytes
from harken.model import Draft
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
from harken.sources.payload import decoded
from harken.sources.source import Accept, DoorAnswer, PostedRequest

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
POST: Final = "events/subscribe"
PUSH_DELIVERY: Final = "push"
POLL_DELIVERY: Final = "poll"
POST_DELIVERY: Final = "webhook"

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
    can_post: bool = False
    is_posted: bool = False

    def asked(self, cursor: str) -> dict[str, object]:
        """Return the params that ask for it from a cursor on; without one, from now on."""
        return {"name": self.name, "arguments": {}, "cursor": cursor or None}


class EventPositions:
    """Where each subscription of one server is, and which of them cannot be had."""

    def __init__(self, where: str, checkpoint: str, *, can_be_posted: bool = False) -> None:
        self._where = where
        self._can_be_posted = can_be_posted
        self.place: McpCheckpoint | None = parse_place(checkpoint, where)
        self.cursors = parse_cursors(checkpoint, where)
        self._refused = set[str]()
        self._unpushed = set[str]()
        self._unpolled = set[str]()

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
        """Take note that a subscription cannot be had in this way: it is had in the next one, or else left alone."""
        if wanted.is_pushed and (wanted.can_poll or wanted.can_post) and code in UNSUPPORTED:
            self._unpushed.add(wanted.name)
            return
        if not wanted.is_pushed and not wanted.is_posted and wanted.can_post and code in UNSUPPORTED:
            self._unpolled.add(wanted.name)
            return
        self._refused.add(wanted.name)
        self.cursors.pop(wanted.name, None)

    @property
    def given_up(self) -> int:
        """How many ways cannot be had of subscriptions that can be had in another."""
        return len(self._unpushed) + len(self._unpolled)

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
            can_poll = POLL_DELIVERY in ways and name not in self._unpolled
            can_post = POST_DELIVERY in ways and self._can_be_posted
            if is_pushed or can_poll or can_post:
                is_posted = can_post and not is_pushed and not can_poll
                found.append(EventSubscription(name, is_pushed, can_poll, can_post, is_posted))
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
                positions.refuse(replace(wanted, is_pushed=False), answer.error_code)
                raise PushUnsupported(f"the server refuses {POLL} of {wanted.name} (error {answer.error_code})")
            raise LinkLost(f"the server refuses {POLL} (error {answer.error_code})")
        told = read_poll(answer, cursor)
        checkpoint = positions.move(wanted.name, told.cursor)
        if told.announcements or checkpoint is not None:
            await desk.take(told.announcements, checkpoint)
        confirm(told)
        await anyio.sleep(told.wait_seconds)


MAX_POST_BYTES: Final = 262_144
STAMP_SECONDS: Final = 300
MAX_SIGNATURES: Final = 8
LIFE_MS: Final = 3_600_000  # for which an event is asked to be posted
FIRST_RENEWAL_SECONDS: Final = 1.0
LAST_RENEWAL_SECONDS: Final = 21_600.0
RENEW_AT: Final = 0.5  # of the time that was granted
DOORS: Final = "/events/"
NO_CONTENT: Final = 204
# As `NOT_FOR_US`, and what a server says that could not verify our address.
NOT_POSTED: Final = NOT_FOR_US | {-32015, -32027}


@dataclass(slots=True)
class _PostedEvent:
    """An event that is posted to us: where it is noted, and what its server has said of the subscription."""

    positions: EventPositions
    desk: LinkReceiver
    is_asking: bool = False  # only then a challenge is answered
    identifier: str = ""
    said: anyio.Event = field(default_factory=anyio.Event)
    error_code: int | None = None


class EventDoor:
    """Where one server posts events to us. Each event has an address and a secret of its own, made of one key.

    So what a server goes on posting after a restart is known at once. What is posted is stored before it is answered,
    and an event that comes again is stored once, by its id.
    """

    def __init__(
        self, name: str, base: str, key: bytes, clock: Clock, draft_of: Callable[[Announcement], Draft | None]
    ) -> None:
        self._name = name
        self._base = base.rstrip("/")
        self._key = key
        self._clock = clock
        self._draft_of = draft_of
        self._events: dict[str, _PostedEvent] = {}
        self.stored: Callable[[Draft, int], None] = lambda _draft, _known: None

    @property
    def path(self) -> str:
        """Its path."""
        return f"{DOORS}{self._name}"

    @property
    def max_bytes(self) -> int:
        """How long a body may be."""
        return MAX_POST_BYTES

    def delivery(self, event: str) -> Mapping[str, object]:
        """Return where a server is to post an event, and how it signs."""
        query = urlencode({"event": event, "key": self._made("address", event).hex()[:32]})
        secret = f"whsec_{base64.b64encode(self._made('secret', event)).decode()}"
        return {"mode": POST_DELIVERY, "url": f"{self._base}{self.path}?{query}", "secret": secret}

    def now(self) -> datetime:
        """Return the time."""
        return self._clock.now()

    @contextmanager
    def following(self, event: str, positions: EventPositions, desk: LinkReceiver) -> Iterator[_PostedEvent]:
        """Note what is posted of an event, while the context is open."""
        posted = self._events[event] = _PostedEvent(positions, desk)
        try:
            yield posted
        finally:
            if self._events.get(event) is posted:
                del self._events[event]

    async def take(self, posted: PostedRequest, accept: Accept) -> DoorAnswer:
        """Judge what a server posted, have it stored, and answer."""
        event = posted.query.get("event", "")
        self._check(event, posted)
        try:
            said = decoded(posted.body.decode("utf-8"))
        except (ValueError, RecursionError) as exc:
            raise UserError("This is no JSON.", "Post an event.") from exc
        if not isinstance(said, dict):
            raise UserError("This is no event.", "Post an event.")
        kind, known = said.get("type"), self._events.get(event)
        if kind is not None:
            return await self._control(event, str(kind), said, known)
        told, event_id = protocol.occurrence(said), said.get("eventId")
        if said.get("name") != event or not isinstance(event_id, str) or not event_id:
            raise UserError("This is not the event of this address.", "Post it where it belongs.")
        draft = self._draft_of(told)
        if draft is not None:
            (is_new,) = await accept([draft])
            self.stored(draft, 0 if is_new else 1)
        await _moved(known, event, told.cursor)
        return DoorAnswer(status=NO_CONTENT)

    async def _control(
        self, event: str, kind: str, said: Mapping[str, object], known: _PostedEvent | None
    ) -> DoorAnswer:
        if kind == "verification":
            challenge = said.get("challenge")
            if known is None or not known.is_asking or not isinstance(challenge, str):
                raise Forbidden("Nothing was asked for.")
            return DoorAnswer(status=200, body=json_bytes({"challenge": challenge}))
        if kind == "gap" and known is not None:
            known.desk.missed()
            cursor = said.get("cursor")
            await _moved(known, event, cursor if isinstance(cursor, str) else "")
        elif kind == "terminated" and known is not None:
            error = said.get("error")
            code = error.get("code") if isinstance(error, dict) else None
            known.error_code = code if isinstance(code, int) else 0
            known.said.set()
        elif kind not in ("gap", "terminated"):
            raise UserError("This is neither an event nor about one.", "Post an event.")
        return DoorAnswer(status=NO_CONTENT)

    def _check(self, event: str, posted: PostedRequest) -> None:
        """Refuse what is not from the server that was told this secret, or is too old."""
        own_id, stamp = posted.headers.get("webhook-id", ""), posted.headers.get("webhook-timestamp", "")
        key = posted.query.get("key", "").encode("utf-8", "replace")
        if not event or not hmac.compare_digest(key, self._made("address", event).hex()[:32].encode()):
            raise Forbidden("Nothing is posted here.")
        is_number = stamp.isascii() and stamp.isdecimal() and len(stamp) <= len("9999999999")
        if not own_id or not is_number or abs(self._clock.now().timestamp() - int(stamp)) > STAMP_SECONDS:
            raise Forbidden("Its time is not now.")
        said = f"{own_id}.{stamp}.".encode("utf-8", "replace") + posted.body
        wanted = b"v1," + base64.b64encode(hmac.digest(self._made("secret", event), said, hashlib.sha256))
        given = posted.headers.get("webhook-signature", "").encode("utf-8", "replace").split(b" ")[:MAX_SIGNATURES]
        if not sum(hmac.compare_digest(each, wanted) for each in given):
            raise Forbidden("Its signature is wrong.")
        known = self._events.get(event)
        identifier = posted.headers.get("x-mcp-subscription-id", "")
        if known is not None and known.identifier and identifier and identifier != known.identifier:
            raise Forbidden("It is of another subscription.")

    def _made(self, what: str, event: str) -> bytes:
        return hmac.digest(self._key, f"{what} {event}".encode("utf-8", "surrogatepass"), hashlib.sha256)


async def _moved(known: _PostedEvent | None, event: str, cursor: str) -> None:
    checkpoint = None if known is None else known.positions.move(event, cursor)
    if known is not None and checkpoint is not None:
        await known.desk.take([], checkpoint)


async def post_events(
    wanted: EventSubscription,
    positions: EventPositions,
    ask: AskServer,
    desk: LinkReceiver,
    *,
    door: EventDoor,
    confirm: Callable[[RpcAnswer], None],
) -> None:
    """Have one event posted to us, and renew that for ever; `confirm` is told of each answer."""
    with door.following(wanted.name, positions, desk) as posted:
        while True:
            cursor = positions.cursors.get(wanted.name, "")
            posted.is_asking = True
            try:
                answer = await ask(
                    POST, {**wanted.asked(cursor), "delivery": door.delivery(wanted.name), "ttlMs": LIFE_MS}
                )
            finally:
                posted.is_asking = False
            if answer is None:
                raise LinkLost(f"the server does not answer {POST}")
            if answer.error_code is not None:
                if answer.error_code in NOT_POSTED:
                    positions.refuse(wanted, answer.error_code)
                    raise PushUnsupported(f"the server refuses {POST} of {wanted.name} (error {answer.error_code})")
                raise LinkLost(f"the server refuses {POST} (error {answer.error_code})")
            identifier, further = answer.result.get("id"), answer.result.get("cursor")
            posted.identifier = identifier if isinstance(identifier, str) else ""
            # What was posted meanwhile may have brought a later one.
            if not positions.cursors.get(wanted.name):
                await _moved(posted, wanted.name, further if isinstance(further, str) else "")
            confirm(answer)
            with anyio.move_on_after(_renewal(answer.result.get("refreshBefore"), door.now())):
                await posted.said.wait()
            if posted.said.is_set():
                positions.refuse(wanted, posted.error_code or 0)
                raise PushUnsupported(f"the server ended the subscription of {wanted.name} (error {posted.error_code})")


def _renewal(until: object, now: datetime) -> float:
    """Return when a subscription is renewed, in seconds."""
    try:
        ends = datetime.fromisoformat(until) if isinstance(until, str) else None
    except ValueError:
        ends = None
    if ends is None:
        return LAST_RENEWAL_SECONDS
    left = ((ends if ends.tzinfo else ends.replace(tzinfo=UTC)) - now).total_seconds() * RENEW_AT
    return min(max(left, FIRST_RENEWAL_SECONDS), LAST_RENEWAL_SECONDS)
