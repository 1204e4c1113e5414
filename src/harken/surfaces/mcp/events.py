"""MCP Events over an agent's connection: `events/list`, `events/poll` and `events/stream`, in both dialects.

The extension is a draft with two dialects. The capability stands at the top for one and among the extensions for the
other, so it is said in both places. A client that declares the extension gets the error numbers of the proposal, any
other those of the sketch that is in use. Webhooks need an address that others can reach and are not offered here.

What a subscriber is told is decided in `inbox/subscriptions.py`; here it gets its words and its frames. A stream is
read no faster than its client takes it: it keeps a cursor, not a queue. When the daemon is replaced, the edge asks the
new one for the same stream again, which would begin where it once began; so that one is ended at once, and the client
comes again with the last cursor that it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import anyio
import msgspec

from harken.clock import Clock
from harken.errors import Forbidden, HarkenError, UserError
from harken.inbox.callbacks import (
    MAX_OF_TOKEN,
    CallbackRequest,
    CallbackSubscription,
    CallbackSubscriptions,
    CallbackTrouble,
    TooManySubscriptions,
)
from harken.inbox.caller import Caller, Role
from harken.inbox.subscriptions import (
    ANSWERED,
    APPROVAL_WAITING,
    EVENT_TYPES,
    MAX_CURSOR_CHARS,
    QUESTION,
    RECEIVED,
    RUN_FINISHED,
    SESSION_WAITING,
    EventAudience,
    EventOccurrence,
    EventPage,
    EventPlace,
    EventSubscriber,
    EventSubscriptions,
    Subscription,
)
from harken.memory import json_bytes
from harken.model import Mailbox, timestamp
from harken.sessions.session import Session
from harken.surfaces.mcp.services import INVALID_PARAMS, INVALID_REQUEST, AgentRequest, Json, RpcError, event_json

EXTENSION: Final = "io.modelcontextprotocol/events"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
CAPABILITY: Final[Mapping[str, object]] = MappingProxyType({"listChanged": False})

PUSH, POLL, WEBHOOK = "push", "poll", "webhook"
MAX_STREAMS: Final = 32  # of one connection
MAX_POLLERS: Final = 32  # that people are shown of one connection
MAX_EVENTS: Final = 200  # of one answer
USUAL_EVENTS: Final = 50
MAX_WAIT_MS: Final = 50_000
NEXT_POLL_MS: Final = 5_000
HEARTBEAT_SECONDS: Final = 15.0
_MOST: Final = (1 << 53) - 1
_DAY_MS: Final = 86_400_000
_LONGEST_MS: Final = 3_650 * _DAY_MS

EventHandler: TypeAlias = Callable[[AgentRequest], Awaitable[Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorNumbers:
    """The numbers of errors in one dialect."""

    not_found: int
    forbidden: int
    exhausted: int
    unsupported: int
    callback: int


SKETCH: Final = ErrorNumbers(not_found=-32011, forbidden=-32012, exhausted=-32013, unsupported=-32014, callback=-32015)
PROPOSAL: Final = ErrorNumbers(
    not_found=-32023, forbidden=-32024, exhausted=-32025, unsupported=-32026, callback=-32027
)

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
_Cursor: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_CURSOR_CHARS)]


class _ListParams(msgspec.Struct, rename="camel"):
    cursor: _Cursor | None = None


class _StreamParams(msgspec.Struct, rename="camel"):
    name: str
    arguments: dict[str, Any] | None = None
    cursor: _Cursor | None = None
    max_age_ms: _Number | None = None


class _PollParams(_StreamParams, rename="camel"):
    max_events: Annotated[int, msgspec.Meta(ge=1, le=_MOST)] | None = None
    timeout_ms: _Number | None = None


class _Address(msgspec.Struct, rename="camel"):
    url: str
    mode: str = WEBHOOK
    secret: str = ""


class _UnsubscribeParams(msgspec.Struct, rename="camel"):
    name: str
    delivery: _Address
    arguments: dict[str, Any] | None = None


class _SubscribeParams(_StreamParams, rename="camel", kw_only=True):
    delivery: _Address
    ttl_ms: _Number | None = None


Params = TypeVar("Params", bound=msgspec.Struct)

_MESSAGE: Final = (
    "message_id", "mailbox", "source", "channel", "from", "sender_id", "trust", "attention", "priority", "kind",
    "characters", "received_at",
)  # fmt: skip
# All else is a string.
_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {"characters": "integer", "question": "boolean", "mailboxes": "array"}
)
_TEXT_BY_TOOL: Final = "The data says who and where; read the text with the tool inbox_read."
_DESCRIPTIONS: Final[Mapping[str, tuple[str, Sequence[str]]]] = MappingProxyType(
    {
        RECEIVED: (
            f"A message that is not your own arrived. `question`: its sender waits for an answer. {_TEXT_BY_TOOL}",
            (*_MESSAGE, "question"),
        ),
        ANSWERED: (
            f"Somebody else answered a message: your user, a rule or another agent. {_TEXT_BY_TOOL}",
            (*_MESSAGE, "reply_id", "by"),
        ),
        QUESTION: (f"A message arrived whose sender waits for an answer. {_TEXT_BY_TOOL}", _MESSAGE),
        RUN_FINISHED: (
            "A run of a rule ended. The data says which, and about which message.",
            (*_MESSAGE, "run", "action", "rule", "agent", "state"),
        ),
        APPROVAL_WAITING: (
            "An agent asks before it uses a tool, or a rule before it starts a run; look at it, and answer by a verb.",
            ("approval", "host", "tool", "session", "rule", "message_id"),
        ),
        SESSION_WAITING: (
            "Another agent that reads one of your mailboxes ended its turn, or waits for messages.",
            ("session", "agent", "consumer", "host", "mailboxes"),
        ),
    }
)


def listed(*, has_webhooks: bool = False, is_approver: bool = False) -> list[Json]:
    """Return what a client can subscribe to. What is posted is about a message: all else is over when it is told."""
    return [
        {
            "name": name,
            "description": description,
            "delivery": [POLL, PUSH, *([WEBHOOK] if has_webhooks and EVENT_TYPES[name].is_about_message else [])],
            "inputSchema": EVENT_TYPES[name].schema(),
            "payloadSchema": {
                "type": "object",
                "properties": {each: {"type": _TYPES.get(each, "string")} for each in fields},
                "required": list(fields),
            },
        }
        for name, (description, fields) in _DESCRIPTIONS.items()
        if is_approver or not EVENT_TYPES[name].is_for_approvers
    ]


class EventServer:
    """The event methods of one connection."""

    def __init__(
        self,
        subscriptions: EventSubscriptions,
        clock: Clock,
        *,
        enter: Callable[[AgentRequest], Awaitable[Session]],
        current: Callable[[], Session | None],
        resent: Collection[str],
        callbacks: CallbackSubscriptions | None = None,
        holder: Caller | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._enter = enter
        self._current = current
        self._resent = set(resent)
        self._callbacks = callbacks
        self._holder = holder
        self._approves = holder.approves if holder is not None else frozenset[Mailbox]()
        self._heartbeat_seconds = heartbeat_seconds
        self._streams = 0
        self._polls = 0  # that are not answered yet
        self._pollers: dict[bytes, EventSubscriber] = {}  # the last heard of last

    def methods(self) -> Mapping[str, EventHandler]:
        """Return what answers each of the methods."""
        return {
            "events/list": self._list,
            "events/poll": self._poll,
            "events/stream": self._stream,
            "events/subscribe": self._subscribe,
            "events/unsubscribe": self._unsubscribe,
        }

    async def _list(self, request: AgentRequest) -> Json:
        await self._enter(request)
        if _read(request, _ListParams).cursor is not None:
            raise RpcError(INVALID_PARAMS, "There is no such page: everything is on the first one.")
        return {
            "resultType": "complete",
            "events": listed(has_webhooks=self._callbacks is not None, is_approver=bool(self._approves)),
        }

    async def _subscribe(self, request: AgentRequest) -> Json:
        await self._enter(request)
        callbacks, holder = self._posting(request)
        params = _read(request, _SubscribeParams)
        wanted = await self._wanted(request, params)
        if params.delivery.mode != WEBHOOK or not wanted.type.is_about_message:
            raise self._unsupported(request, f"{wanted.type.name[:80]} is not delivered so; look into events/list.")
        life = None if params.ttl_ms is None else timedelta(milliseconds=min(params.ttl_ms, _LONGEST_MS))
        url, secret = params.delivery.url, params.delivery.secret
        asked = CallbackRequest(wanted=wanted, url=url, secret=secret, cursor=params.cursor, life=life)
        numbers = _numbers(request)
        try:
            grant = await callbacks.subscribe(holder, asked)
        except UserError as exc:
            raise RpcError(INVALID_PARAMS, f"{exc.message} {exc.hint}") from exc
        except CallbackTrouble as exc:
            raise RpcError(numbers.callback, "The address was not verified.", {"reason": exc.message}) from exc
        except TooManySubscriptions as exc:
            limit = {"limit": "subscriptions", "max": MAX_OF_TOKEN}
            raise RpcError(numbers.exhausted, f"{exc.message} {exc.hint}", limit) from exc
        except Forbidden as exc:
            raise self._forbidden(request, f"{exc.message} {exc.hint}") from exc
        found: Json = {
            "resultType": "complete",
            "id": grant.subscription.id,
            "refreshBefore": timestamp(grant.subscription.expires_at),
            "cursor": grant.cursor,
            "truncated": grant.is_truncated,
        }
        return found if grant.before is None else {**found, "deliveryStatus": _status(grant.before)}

    async def _unsubscribe(self, request: AgentRequest) -> Json:
        await self._enter(request)
        callbacks, holder = self._posting(request)
        params = _read(request, _UnsubscribeParams)
        kind = EVENT_TYPES.get(params.name)
        if kind is not None:
            try:
                given = kind.parse(params.arguments or {})
            except UserError as exc:
                raise RpcError(INVALID_PARAMS, f"{exc.message} {exc.hint}") from exc
            await callbacks.unsubscribe(holder, Subscription(kind, given), params.delivery.url)
        return {"resultType": "complete"}

    def _posting(self, request: AgentRequest) -> tuple[CallbackSubscriptions, Caller]:
        if self._callbacks is None or self._holder is None:
            text = "Nothing is delivered to an address from this connection; use events/stream or events/poll."
            raise self._unsupported(request, text)
        return self._callbacks, self._holder

    def _unsupported(self, request: AgentRequest, text: str) -> RpcError:
        return RpcError(_numbers(request).unsupported, text, {"feature": "delivery"})

    async def _poll(self, request: AgentRequest) -> Json:
        # All that wait look at each message; what is too much for one connection is answered at once.
        self._polls += 1
        try:
            return await self._page(request, may_wait=self._polls <= MAX_STREAMS)
        finally:
            self._polls -= 1

    async def _page(self, request: AgentRequest, *, may_wait: bool) -> Json:
        params = _read(request, _PollParams)
        wanted = await self._wanted(request, params)
        place = await self._subscriptions.place(params.cursor)
        limit = min(params.max_events or USUAL_EVENTS, MAX_EVENTS)
        # A subscriber that begins gets its first cursor at once: one that dies while it waits would have none.
        seconds = min(params.timeout_ms or 0, MAX_WAIT_MS) / 1000 if params.cursor is not None else 0.0
        page = await self._waited(request, wanted, place, limit, seconds if may_wait else 0.0)
        self._poller(wanted, await self._audience(request, wanted)).note(self._clock.now(), len(page.occurrences))
        return {
            "resultType": "complete",
            "events": [event_json(each) for _, each in page.occurrences],
            "cursor": await self._subscriptions.cursor(page.number),
            "truncated": place.is_truncated or page.is_truncated,
            "hasMore": page.has_more,
            "nextPollMs": NEXT_POLL_MS,
        }

    async def _waited(
        self, request: AgentRequest, wanted: Subscription, place: EventPlace, limit: int, seconds: float
    ) -> EventPage:
        """Return the page that follows a place, as soon as there is something on it, or when the time is over."""
        with self._subscriptions.following() as bell_of:
            bell = bell_of()
            audience = await self._audience(request, wanted)
            page = await self._subscriptions.page(wanted, audience, place.number, limit)
            with anyio.move_on_after(seconds):
                while seconds and not (page.occurrences or page.has_more or page.is_truncated or place.is_truncated):
                    await bell.wait()
                    if self._subscriptions.is_closed:
                        break
                    bell = bell_of()
                    audience = await self._audience(request, wanted)
                    page = await self._subscriptions.page(wanted, audience, page.number, limit)
            return page

    async def _stream(self, request: AgentRequest) -> Json:
        end: Json = {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: request.id}}
        key = json_bytes(request.id).decode()
        if key in self._resent:
            self._resent.discard(key)
            return end
        params = _read(request, _StreamParams)
        wanted = await self._wanted(request, params)
        if self._streams >= MAX_STREAMS:
            raise RpcError(
                _numbers(request).exhausted,
                f"This connection has {MAX_STREAMS} streams; end one of them first.",
                {"limit": "subscriptions", "max": MAX_STREAMS},
            )
        self._streams += 1
        subscriber = self._subscriptions.enter(wanted, await self._audience(request, wanted), PUSH)
        try:
            await self._subscriptions.deliver(
                wanted,
                await self._subscriptions.place(params.cursor),
                _Stream(request),
                audience_of=lambda: self._audience(request, wanted),
                subscriber=subscriber,
                heartbeat_seconds=self._heartbeat_seconds,
            )
        except RpcError as exc:
            error = {"code": exc.code, "message": exc.message, "data": exc.data}
            await _notify(request, "terminated", {"error": error})
        finally:
            self._subscriptions.leave(subscriber)
            self._streams -= 1
        return end

    def _poller(self, wanted: Subscription, audience: EventAudience) -> EventSubscriber:
        """Return the subscriber that polls for this; the longest unheard of many is forgotten."""
        key = json_bytes((wanted.type.name, msgspec.to_builtins(wanted.filter)))
        known = self._pollers.pop(key, None)
        if known is not None and (known.consumer, known.session) != (audience.consumer, audience.session):
            self._subscriptions.leave(known)
            known = None
        self._pollers[key] = known or self._subscriptions.enter(wanted, audience, POLL)
        if len(self._pollers) > MAX_POLLERS:
            self._subscriptions.leave(self._pollers.pop(next(iter(self._pollers))))
        return self._pollers[key]

    def close(self) -> None:
        """The connection is over, and with it the subscriptions that poll over it."""
        for each in self._pollers.values():
            self._subscriptions.leave(each)
        self._pollers.clear()

    async def _wanted(self, request: AgentRequest, params: _StreamParams) -> Subscription:
        """Return what a subscriber asks for; refuses what there is not, and what it may not read."""
        await self._enter(request)
        kind = EVENT_TYPES.get(params.name)
        if kind is None:
            names = ", ".join(EVENT_TYPES)
            raise RpcError(
                _numbers(request).not_found,
                f"There is no event {params.name[:80]!r}; there are {names}.",
                {"kind": "event"},
            )
        try:
            given = kind.parse(params.arguments or {})
        except UserError as exc:
            raise RpcError(INVALID_PARAMS, f"{exc.message} {exc.hint}") from exc
        oldest = None
        if params.max_age_ms is not None and params.cursor is not None:
            oldest = self._clock.now() - timedelta(milliseconds=min(params.max_age_ms, _LONGEST_MS))
        wanted = Subscription(kind, given, oldest)
        await self._audience(request, wanted)
        return wanted

    async def _audience(self, request: AgentRequest, wanted: Subscription) -> EventAudience:
        """Return who is told, as it is now: a session may come to read as another task, or one more mailbox."""
        if self._current() is None:
            raise RpcError(INVALID_REQUEST, "The connection has no session.")
        session = await self._enter(request)
        mailboxes = frozenset(session.mailboxes)
        named = wanted.filter.mailbox
        try:
            session.require_reading()
        except HarkenError as exc:
            raise self._forbidden(request, f"{exc.message} {exc.hint}") from exc
        if named and Mailbox(named) not in mailboxes:
            raise self._forbidden(request, f"You do not read {named[:80]!r}; you read {', '.join(session.mailboxes)}.")
        caller = Caller(role=Role.AGENT, consumer=session.consumer, session=session.key)
        if wanted.type.is_for_approvers and not self._approves:
            raise self._forbidden(request, "You may not approve. Your user can let a token: --may read,approve.")
        return EventAudience(
            mailboxes=mailboxes,
            approves=self._approves,
            consumer=session.consumer,
            session=session.key,
            sender=caller.sender.id,
        )

    def _forbidden(self, request: AgentRequest, text: str) -> RpcError:
        return RpcError(_numbers(request).forbidden, text, {"reason": text})


def _read(request: AgentRequest, kind: type[Params]) -> Params:
    given = {name: value for name, value in request.params.items() if name != "_meta"}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as exc:
        raise RpcError(INVALID_PARAMS, f"The params are wrong: {exc}.") from exc


def _status(found: CallbackSubscription) -> Json:
    """Return how delivering goes, for its subscriber."""
    status: Json = {
        "active": not found.is_suspended,
        "lastDeliveryAt": found.told_at and timestamp(found.told_at),
        "lastError": found.error or None,
    }
    return status if found.failing_from is None else {**status, "failedSince": timestamp(found.failing_from)}


def _numbers(request: AgentRequest) -> ErrorNumbers:
    """Return the error numbers that a client knows: one that declares the extension speaks as the proposal does."""
    declared = request.capabilities
    return PROPOSAL if declared is not None and EXTENSION in (declared.extensions or {}) else SKETCH


@dataclass(frozen=True, slots=True)
class _Stream:
    """The sink of `events/stream`: notifications on the request's connection."""

    request: AgentRequest

    async def active(self, cursor: str, *, is_truncated: bool) -> None:
        await _notify(self.request, "active", {"cursor": cursor, "truncated": is_truncated})

    async def event(self, told: EventOccurrence, cursor: str) -> None:
        await _notify(self.request, "event", {**event_json(told), "cursor": cursor})

    async def heartbeat(self, cursor: str) -> None:
        await _notify(self.request, "heartbeat", {"cursor": cursor})


async def _notify(request: AgentRequest, what: str, params: Json) -> None:
    """Send a frame of a stream, and wait until there is room for it."""
    await request.notify(f"notifications/events/{what}", {**params, "_meta": {SUBSCRIPTION_ID: request.id}})
