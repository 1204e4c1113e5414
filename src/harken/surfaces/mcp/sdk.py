"""What the official SDK serves: `/mcp` for agents elsewhere, and clients of the modern era on the socket.

Only this module imports the SDK, and it is imported with the first of these: no other agent needs it. `SdkServer` joins
the SDK's server to the methods of an `AgentServer`.

Agents elsewhere speak Streamable HTTP, in both eras, and come with a token.

Each client has an `AgentServer` of its own, as each edge has, and the SDK's transport in front of it. A client of 2025
is one MCP session; of 2026, where requests stand alone, it is one program that comes with one token. What the evidence
needs is noted around the transport: when a call arrived, when its answer was written, and whether the other side took
it. An answer that is lost with its connection can be fetched for a while by clients that resume streams, and is then
offered again.

The token was checked before, by `daemon/public/gate.py`, which also ends what is open when a token is revoked.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, cast

import anyio
import mcp_types as types
import msgspec
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from harken import __version__, render
from harken.errors import Unavailable
from harken.hosts.hook import Hello
from harken.inbox.caller import Caller
from harken.memory import json_bytes, sound_json
from harken.model import DeliveryId
from harken.sessions.proof import CallLog
from harken.sessions.session import Note, Session
from harken.surfaces.mcp.server import INBOX_URI, AgentServer, MethodHandler, Outlet, client_name, request_key
from harken.surfaces.mcp.services import (
    HANDSHAKE_VERSIONS,
    INVALID_REQUEST,
    NO_MESSAGE,
    PARSE_ERROR,
    AgentRequest,
    AgentServices,
    ClientCapabilities,
    ClientInfo,
    Json,
    RpcError,
)
from harken.surfaces.wire import ASKED_AT, CARRIER, HOLDER, HttpCarrier, SentAnswer

_log = logging.getLogger("harken.mcp")

MAX_CLIENTS: Final = 16  # of one token
MAX_BODY: Final = 4 << 20
MAX_KEPT: Final = 200  # messages of a session that can be fetched again
MAX_KEPT_BYTES: Final = 4 << 20
AWAY_SECONDS: Final = 900.0  # as long as a lease: then what it was given may go to another session
FORGET_SECONDS: Final = 86_400.0  # after which a client of 2025 has to begin anew
RESUME_SECONDS: Final = 60.0  # how long an answer waits for a client that resumes its stream
ACKNOWLEDGE_LOOK_SECONDS: Final = 0.005
ACKNOWLEDGE_LOOKS: Final = 100  # systems delay an acknowledgement by 40 to 200 ms
RETRY_MILLISECONDS: Final = 1_000
LOOK_SECONDS: Final = 15.0
OK: Final = 200
SESSION_HEADER: Final = "mcp-session-id"
VERSION_HEADER: Final = "mcp-protocol-version"
RESUMABLE_SINCE: Final = "2025-11-25"
_GREETINGS: Final = frozenset({"initialize", "server/discover"})
_NUMBER: Final = "harken.call"
_DATA: Final = b"data: "

Context = ServerRequestContext[Any, Any]

_RESULTS: Final[Mapping[str, type[types.Result]]] = MappingProxyType(
    {
        "tools/list": types.ListToolsResult,
        "tools/call": types.CallToolResult,
        "prompts/list": types.ListPromptsResult,
        "prompts/get": types.GetPromptResult,
        "resources/list": types.ListResourcesResult,
        "resources/templates/list": types.ListResourceTemplatesResult,
        "resources/read": types.ReadResourceResult,
    }
)


class SdkServer:
    """The SDK's server of one client."""

    def __init__(self, agent: AgentServer, number_of: Callable[[Context], str] | None = None) -> None:
        self._agent = agent
        self._number_of = number_of or _number
        self._bus = InMemorySubscriptionBus()

    def build(self) -> Server[Any]:
        """Return it, with the methods of the agent."""
        server: Server[Any] = Server(
            "harken", version=__version__, title="Harken", on_subscriptions_listen=self._listen
        )
        for name, handler in self._agent.methods().items():
            server.add_request_handler(name, types.RequestParams, self._handler(handler, _RESULTS.get(name)))
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)
        # Instead of the SDK's tracing, which costs a span per request, and nobody collects them here.
        server.middleware[:] = [self._greet]
        return server

    async def publish_growth(self) -> None:
        """Tell `subscriptions/listen` streams that the inbox grew."""
        await self._bus.publish(ResourceUpdated(uri=INBOX_URI))

    def _handler(
        self, handler: MethodHandler, kind: type[types.Result] | None
    ) -> Callable[[Context, types.RequestParams], Awaitable[HandlerResult]]:
        async def handle(context: Context, _params: types.RequestParams) -> HandlerResult:
            try:
                result = await handler(self._request(context))
            except RpcError as exc:
                raise MCPError(exc.code, exc.message, exc.data) from exc
            # As the SDK's own type it gets what the modern era demands besides.
            return result if kind is None else kind.model_validate(result, by_name=False)

        return handle

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        try:
            await self._agent.enter_reading(self._request(context))
        except RpcError as exc:
            raise MCPError(exc.code, exc.message, exc.data) from exc
        return await ListenHandler(self._bus)(context, params)

    async def _initialized(self, context: Context, _params: object) -> None:
        """Register the session of a client that may say nothing more for hours: it is here and can be hinted."""
        await self._agent.enter(self._request(context))

    async def _greet(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer a greeting with the instructions for this client; the SDK knows one text for all.

        In one era it takes a server that can be listened to for one that announces new lists of tools and the like.
        """
        result = await call_next(ctx)
        if ctx.method not in _GREETINGS or not isinstance(result, dict):
            return result
        return {**result, **self._agent.greet(client_name(ctx.params), result["capabilities"])}

    def _request(self, context: Context) -> AgentRequest:
        session, info = context.session, context.session.client_params
        declared = session.client_capabilities

        async def send(method: str, params: Json, related: types.RequestId | None) -> None:
            frame = types.Notification[Json, str](method=method, params=params)
            # The SDK's type is a closed list, its code is not.
            await session.send_notification(cast("types.ServerNotification", frame), related_request_id=related)

        return AgentRequest(
            method=context.method,
            params=context.params or {},
            protocol=context.protocol_version,
            id=context.request_id,
            number=self._number_of(context),
            client=ClientInfo(info.client_info.name, info.client_info.version) if info is not None else None,
            capabilities=ClientCapabilities(extensions=declared.extensions) if declared is not None else None,
            notify=lambda method, params: send(method, params, context.request_id),
            announce=lambda method, params: send(method, params, None),
        )


class SocketServer:
    """The SDK's server of one connection of the socket, with a client of the modern era."""

    def __init__(self, agent: AgentServer, outlet: Outlet) -> None:
        self._server = SdkServer(agent)
        self._outlet = outlet
        self._to_sdk, self._lines = anyio.create_memory_object_stream[SessionMessage | Exception](0)

    async def serve(self) -> None:
        """Serve until cancelled."""
        server = self._server.build()
        async with self._to_sdk, self._lines:
            await server.run(self._lines, _SdkOutlet(self._outlet), server.create_initialization_options())

    async def take(self, line: bytes) -> bool:
        """Take a line; return whether the SDK still takes any."""
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            await self._outlet.send_error(None, INVALID_REQUEST, NO_MESSAGE)
            return True
        try:
            await self._to_sdk.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    async def publish_growth(self) -> None:
        """Tell `subscriptions/listen` streams that the inbox grew."""
        await self._server.publish_growth()


class _SdkOutlet:
    """The stream that the SDK writes to."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    async def send(self, item: SessionMessage, /) -> None:
        """Take a message of the SDK."""
        message = item.message
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            await self._outlet.answer(message.id, data)
        else:
            await self._outlet.say(data)

    async def aclose(self) -> None:
        """Do nothing: the SDK closes its stream before our own last lines are out. `Outlet.close` ends it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        return


class _AskedMessage(msgspec.Struct):
    """What is looked at of a request before the SDK parses it."""

    id: int | str | None = None
    method: str = ""
    params: dict[str, Any] | None = None


class _SaidMessage(msgspec.Struct):
    """What is looked at of a message on its way out."""

    id: int | str | None = None
    method: str = ""


class KeptMessages(EventStore):
    """The newest messages of one session's streams, for a client that comes back."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._kept: OrderedDict[str, tuple[str, types.JSONRPCMessage | None, int]] = OrderedDict()
        self._bytes = 0

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        """Keep a message; the oldest goes when there are too many."""
        name = str(next(self._numbers))
        size = 0 if message is None else len(message.model_dump_json(by_alias=True, exclude_unset=True))
        self._kept[name] = (stream_id, message, size)
        self._bytes += size
        while len(self._kept) > MAX_KEPT or self._bytes > MAX_KEPT_BYTES:
            self._bytes -= self._kept.popitem(last=False)[1][2]
        return name

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what followed on the stream of a message that the client had."""
        known = self._kept.get(last_event_id)
        if known is None:
            return None
        names = list(self._kept)
        for name in names[names.index(last_event_id) + 1 :]:
            stream, message, _size = self._kept.get(name, ("", None, 0))
            if stream == known[0] and message is not None:
                await send_callback(EventMessage(message, name))
        return known[0]


@dataclass(slots=True, eq=False)
class _Exchange:
    """One HTTP request of a client, and the call in it."""

    number: str = ""  # of the tool call; empty for anything else
    request: int | str | None = None
    is_resumable: bool = False
    is_written: bool = False
    is_json: bool = False
    carrier: HttpCarrier | None = None

    @property
    def is_over(self) -> bool:
        """Whether its connection has ended."""
        return self.carrier is not None and self.carrier.is_over


class _EndedWithAnswer:
    """Sends the answer to a call together with the end of its stream, which the SDK sends right after it.

    A client closes the connection when it has its answer. An end that comes later makes its system reset the
    connection, as it does when an answer was not read.
    """

    def __init__(self, exchange: _Exchange, send: Send) -> None:
        self._exchange = exchange
        self._send = send
        self._held: Message | None = None

    async def send(self, message: Message) -> bytes:
        """Send a message, or hold it for the next one; return the part of the body that was sent."""
        if message["type"] != "http.response.body":
            await self._send(message)
            return b""
        if self._held is not None:
            message = {**message, "body": self._held["body"] + message.get("body", b"")}
        body: bytes = message.get("body", b"")
        if self._held is None and message.get("more_body", False) and self._is_answer(body):
            self._held = message
            return b""
        self._held = None
        await self._send(message)
        return body

    async def finish(self) -> bytes:
        """Send what is held: the request is over."""
        held, self._held = self._held, None
        if held is None or self._exchange.is_over:
            return b""
        await self._send(held)
        body: bytes = held["body"]
        return body

    def _is_answer(self, body: bytes) -> bool:
        exchange = self._exchange
        if not exchange.number or exchange.is_json:
            return False
        return any(said.id == exchange.request and not said.method for said in _messages(body, is_json=False))


class RemoteAgent:
    """One client elsewhere: the handlers, the SDK's transport, and what its answers carried."""

    def __init__(self, holder: Caller, means: AgentServices, *, is_modern: bool) -> None:
        self.holder = holder
        self.is_modern = is_modern
        self.used_at = anyio.current_time()
        self.in_flight = 0
        self._edge = secrets.token_hex(12)
        self._inbox = means.inbox
        self._calls = CallLog(self._edge)
        self._numbers = count(1)
        self._unsure: dict[str, SentAnswer] = {}  # the answers that were written last, by the number of the call
        self._looking = anyio.Lock()
        self._waiting: dict[str, _Exchange] = {}  # calls without a written answer
        self._has_hint = False
        self._tasks: TaskGroup | None = None
        self._end = anyio.CancelScope()
        self._agent = AgentServer(
            hello=Hello(edge=self._edge),
            means=means,
            calls=self._calls,
            pusher=self,
            greeted=_unasked,
            holder=holder,
        )
        self._server = SdkServer(self._agent, _number_of)
        self._manager = StreamableHTTPSessionManager(
            self._server.build(),
            event_store=KeptMessages(),
            retry_interval=RETRY_MILLISECONDS,
            session_idle_timeout=None,
            max_request_body_size=MAX_BODY,
            max_sessions=1,
        )

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Be there until it has been away for too long, or is ended."""
        try:
            with self._end:
                async with self._manager.run(), anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    task_status.started()
                    await self._until_forgotten()
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave()

    def end(self) -> None:
        """End it now."""
        self._end.cancel()

    @property
    def is_ended(self) -> bool:
        """Whether it takes no more requests."""
        return self._end.cancel_called

    async def handle(self, scope: Scope, receive: Receive, send: Send, *, began: Callable[[str], None]) -> None:
        """Serve a request; `began` is told the id of the MCP session that it begins."""
        with self._present():
            body, asked = await _read(scope, receive)
            if asked is None:
                await _refuse(send, 400, PARSE_ERROR, NO_MESSAGE)
                return
            exchange, is_over = await self._note_request(scope, asked), False
            ending = _EndedWithAnswer(exchange, send)

            async def sending(message: Message) -> None:
                nonlocal is_over
                if message["type"] == "http.response.start":
                    is_over = scope["method"] == "DELETE" and message["status"] == OK
                    headers = Headers(raw=message.get("headers", []))
                    exchange.is_json = headers.get("content-type", "").startswith("application/json")
                    if name := headers.get(SESSION_HEADER, ""):
                        began(name)
                self._note_written(exchange, await ending.send(message))

            try:
                await self._manager.handle_request(scope, _again(body, receive), sending)
            finally:
                with anyio.CancelScope(shield=True):
                    self._note_written(exchange, await ending.finish())
                    await self._note_over(exchange)
        if is_over:
            self.end()

    # -- what the evidence needs -------------------------------------------------------------------------------

    async def _note_request(self, scope: Scope, asked: _AskedMessage) -> _Exchange:
        exchange = _Exchange(carrier=scope.get("extensions", {}).get(CARRIER))
        if exchange.carrier is not None:
            exchange.carrier.attend()
        if asked.method == "notifications/cancelled":
            await self._note_cancelled((asked.params or {}).get("requestId"))
        elif asked.method == "tools/call" and asked.id is not None:
            # Of clients of 2026 each request stands alone: two may have one id.
            exchange.number = f"{next(self._numbers)}" if self.is_modern else request_key(asked.id)
            exchange.request = asked.id
            version = Headers(scope=scope).get(VERSION_HEADER, "")
            exchange.is_resumable = not self.is_modern and version >= RESUMABLE_SINCE
            scope["state"] = {**scope.get("state", {}), _NUMBER: exchange.number}
            asked_at = scope.get("extensions", {}).get(ASKED_AT, {}).get("at", math.inf)
            # On another connection, or behind another one on this, a call may have been on its way all the time.
            overlapping = {number for number, written in self._unsure.items() if written.at > asked_at}
            self._calls.begin(exchange.number, overlapping)
            self._waiting[exchange.number] = exchange
            await self._give_up_lost(overlapping)
        return exchange

    async def _give_up_lost(self, overlapping: Collection[str]) -> None:
        """A call arrived: it proves no answer that the other side has not taken."""
        written = {number: each for number, each in self._unsure.items() if number not in overlapping}
        self._unsure = {number: self._unsure[number] for number in overlapping}
        async with self._looking:
            for number in await _lost(written):
                if self._calls.discard(number, is_proven_by_calls=False) and self._agent.session is not None:
                    await self._inbox.proofs.release(self._agent.session.key, [self._calls.carrier(number)])

    async def _note_cancelled(self, request: object) -> None:
        number = request_key(request)
        session = self._agent.session
        # A client of 2026 cancels a call by closing its stream; what it names here is not the number of a call.
        if session is None or self.is_modern:
            return
        if self._calls.discard(number):
            await self._inbox.proofs.release(session.key, [self._calls.carrier(number)])
        await self._note_loss(number)

    def _note_written(self, exchange: _Exchange, body: bytes) -> None:
        if not self._waiting or not body or exchange.is_over:
            return
        for said in _messages(body, is_json=exchange.is_json):
            if said.id is None or said.method:
                continue
            # On a stream that was resumed, it is the answer to an earlier request.
            number = exchange.number if exchange.request == said.id else request_key(said.id)
            found = self._waiting.get(number)
            if found is None or (self.is_modern and found is not exchange):
                continue
            del self._waiting[number]
            found.is_written = True
            if exchange.carrier is not None:
                self._unsure[number] = exchange.carrier.sent()
            self._calls.answer(number)

    async def _note_over(self, exchange: _Exchange) -> None:
        """The request is over. Without an answer that was written, what it carried did not arrive."""
        if not exchange.number or exchange.is_written or self._waiting.get(exchange.number) is not exchange:
            return
        if exchange.is_resumable and self._tasks is not None and not self.is_ended:
            self._tasks.start_soon(self._await_resumption, exchange)
        else:
            await self._note_loss(exchange.number)

    async def _await_resumption(self, exchange: _Exchange) -> None:
        await anyio.sleep(RESUME_SECONDS)
        if self._waiting.get(exchange.number) is exchange:
            await self._note_loss(exchange.number)

    async def _note_loss(self, number: str) -> None:
        """A call will get no answer: what was offered to it did not arrive."""
        self._waiting.pop(number, None)
        if self._calls.cancel(number) and self._agent.session is not None:
            await self._inbox.proofs.withdraw(self._agent.session.key, self._calls.carrier(number))

    # -- whether it is here ------------------------------------------------------------------------------------

    @contextmanager
    def _present(self) -> Iterator[None]:
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self.used_at = anyio.current_time()

    async def _until_forgotten(self) -> None:
        while True:
            await anyio.sleep(LOOK_SECONDS)
            idle = 0.0 if self.in_flight else anyio.current_time() - self.used_at
            if idle < AWAY_SECONDS:
                continue
            await self._leave()
            if self.is_modern or idle >= FORGET_SECONDS:
                return

    async def _leave(self) -> None:
        """Its agent is gone, as far as is known: what is unproven may go to another session."""
        self._calls.abandon()
        self._unsure.clear()
        await self._agent.leave()

    # -- a connection that can be given a hint -----------------------------------------------------------------

    def push(self, note: Note) -> None:
        """Hand over a hint without waiting; it is dropped when the last one is still on its way."""
        if self._tasks is None or self._has_hint:
            return
        self._has_hint = True
        self._tasks.start_soon(self._hint, note)

    async def _hint(self, note: Note) -> None:
        try:
            if self._agent.is_modern:
                await self._server.publish_growth()
                return
            if self._agent.wants_pings:
                data = render.log_ping(note.message, note.unread)
                await self._say("notifications/message", {"level": "info", "logger": "harken.inbox", "data": data})
            if self._agent.is_subscribed:
                await self._say("notifications/resources/updated", {"uri": INBOX_URI})
        finally:
            self._has_hint = False

    async def _say(self, method: str, params: Mapping[str, object]) -> None:
        if self._agent.announce is None or self._agent.is_modern:
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._agent.announce(method, dict(params))

    def notify(self, method: str, params: Mapping[str, object]) -> bool:
        """Send any notification, as a probe does. A client of 2026 cannot be sent one."""
        if self._tasks is None or self._agent.announce is None or self.is_modern:
            return False
        self._tasks.start_soon(self._say, method, params)
        return True

    def settle(self, turn: str = "") -> Collection[DeliveryId]:
        """Return, once, what answers that were written have carried in a turn."""
        return self._calls.settle(turn)

    def abandon(self, but_of: str = "") -> Collection[str]:
        """Return, once, the carriers of answers that were written and that nothing proves any more."""
        return self._calls.abandon(but_of)


class RemoteAgents:
    """The clients elsewhere of one daemon: an ASGI application for requests with a token that was checked."""

    def __init__(self, means: AgentServices) -> None:
        self._means = means
        self._tasks: TaskGroup | None = None
        self._sessions: dict[str, RemoteAgent] = {}  # by the ids of MCP sessions, of clients of 2025
        self._programs: dict[tuple[Caller, str], RemoteAgent] = {}  # by token and name, of clients of 2026
        self._agents: set[RemoteAgent] = set()  # all of them, those that begin too
        self._beginning = anyio.Lock()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            task_status.started()
            await anyio.sleep_forever()

    def end(self, holder: str) -> None:
        """End the clients of a token that was revoked."""
        for agent in self._of(holder):
            agent.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; raises `HarkenError` when there is no room for its client."""
        holder: Caller = scope["state"][HOLDER]
        headers = Headers(scope=scope)
        version = headers.get(VERSION_HEADER)
        if version is not None and version not in HANDSHAKE_VERSIONS:
            body, asked = await _read(scope, receive)
            agent = await self._program(holder, client_name(asked.params if asked else None))
            await agent.handle(scope, _again(body, receive), send, began=_ignored)
            return
        name = headers.get(SESSION_HEADER, "")
        known = self._sessions.get(name)
        # A token that has expired may be followed by another of its name, which may do less.
        if known is not None and known.holder == holder and not known.is_ended:
            await known.handle(scope, receive, send, began=_ignored)
        elif name:
            await _no_session(send)
        else:
            await self._begin(holder, scope, receive, send)

    async def _begin(self, holder: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve what may begin an MCP session; a client that began none is forgotten at once."""
        agent = await self._new(holder, is_modern=False)
        names: list[str] = []

        def began(name: str) -> None:
            names.append(name)
            self._sessions[name] = agent

        try:
            await agent.handle(scope, receive, send, began=began)
        finally:
            # A client that was told its session has one, however the connection of that answer ended.
            if not names:
                agent.end()

    async def _program(self, holder: Caller, client: str) -> RemoteAgent:
        key = (holder, client[:80])
        # Requests that arrive together are of one agent: else a later call would not prove what the other had.
        async with self._beginning:
            known = self._programs.get(key)
            if known is None or known.is_ended:
                known = self._programs[key] = await self._new(holder, is_modern=True)
            return known

    async def _new(self, holder: Caller, *, is_modern: bool) -> RemoteAgent:
        mine = self._of(holder.holder)
        if len(mine) >= MAX_CLIENTS:
            idle = [each for each in mine if not each.in_flight]
            if not idle:
                raise Unavailable(f"{MAX_CLIENTS} clients use this token.", "Make a token for each agent.")
            min(idle, key=lambda each: each.used_at).end()
        if self._tasks is None:
            raise Unavailable("The daemon is starting.", "Try again in a moment.")
        agent = RemoteAgent(holder, self._means, is_modern=is_modern)
        self._agents.add(agent)
        await self._tasks.start(self._keep, agent)
        return agent

    async def _keep(self, agent: RemoteAgent, *, task_status: TaskStatus[None]) -> None:
        try:
            await agent.run(task_status=task_status)
        finally:
            agent.end()
            self._agents.discard(agent)
            self._sessions = {name: each for name, each in self._sessions.items() if each is not agent}
            self._programs = {name: each for name, each in self._programs.items() if each is not agent}

    def _of(self, holder: str) -> list[RemoteAgent]:
        return [each for each in self._agents if each.holder.holder == holder and not each.is_ended]


async def _lost(written: Mapping[str, SentAnswer]) -> Collection[str]:
    """Return which answers were not taken; a system may acknowledge one a little later than its program reads it."""
    taken = {number: answer.is_taken() for number, answer in written.items()}
    for _ in range(ACKNOWLEDGE_LOOKS):
        if None not in taken.values():
            break
        await anyio.sleep(ACKNOWLEDGE_LOOK_SECONDS)
        taken = {number: answer.is_taken() for number, answer in written.items()}
    return [number for number, is_taken in taken.items() if not is_taken]


def _unasked(_session: Session) -> None:
    """An agent elsewhere is asked nothing for you: its answer would be no more than its own."""


def _ignored(_name: str) -> None:
    """It has begun before."""


def _number(context: Context) -> str:
    return request_key(context.request_id)


def _number_of(context: Context) -> str:
    """Return the number of a call, as it was noted when the call arrived."""
    request = context.request
    number = request.scope.get("state", {}).get(_NUMBER) if isinstance(request, Request) else None
    return number or _number(context)


async def _read(scope: Scope, receive: Receive) -> tuple[Message, _AskedMessage | None]:
    """Return the body of a request, and what is looked at of it; None for what two parsers may read differently."""
    if scope["method"] != "POST":
        return {"type": "http.request", "body": b"", "more_body": False}, _AskedMessage()
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY or not message.get("more_body", False):
            break
    whole = sound_json(bytes(body))
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        asked = msgspec.json.decode(whole, type=_AskedMessage)
        return {"type": "http.request", "body": whole, "more_body": False}, asked
    return {"type": "http.request", "body": whole, "more_body": False}, None


def _again(body: Message, receive: Receive) -> Receive:
    """Return how a body is received that was received before."""
    given: list[Message] = [body]

    async def again() -> Message:
        return given.pop() if given else await receive()

    return again


def _messages(body: bytes, *, is_json: bool) -> Iterable[_SaidMessage]:
    """Yield the messages in a part of an answer."""
    parts = [body] if is_json else [line[len(_DATA) :] for line in body.splitlines() if line.startswith(_DATA)]
    for part in parts:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield msgspec.json.decode(part, type=_SaidMessage)


async def _no_session(send: Send) -> None:
    await _refuse(send, 404, INVALID_REQUEST, "There is no such session; begin one with initialize.")


async def _refuse(send: Send, status: int, code: int, text: str) -> None:
    body = json_bytes({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
