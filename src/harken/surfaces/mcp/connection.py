"""One agent's MCP connection: the lines of a socket on one side, the methods of an `AgentServer` on the other.

`Connection` speaks JSON-RPC itself with clients of the handshake era. The first request decides the era of a
connection, for as long as it lasts: one that opens in the modern era is handed to the SDK, which is imported then.

Two things happen before either sees a line: `server/discover` is declined for hosts that need, for push, the 2025
handshake (a connection that negotiated 2026-07-28 has no way to push), and the order of requests, answers and
cancellations is noted, because it is evidence. Hints (log ping, resource update) go straight to the wire.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import anyio
import msgspec
from anyio.abc import ByteStream, TaskGroup
from msgspec import UNSET, UnsetType

from harken import __version__, render
from harken.errors import HarkenError
from harken.hosts.hook import Hello
from harken.hosts.registry import host_named, host_of_client, push_channels
from harken.memory import json_bytes
from harken.model import DeliveryId, SessionKey
from harken.sessions.proof import CallLog
from harken.sessions.session import Note, Session
from harken.surfaces.mcp.server import (
    INBOX_URI,
    LIST_CHANGED,
    AgentServer,
    GreetingParams,
    Outlet,
    PlainParams,
    client_name,
    read_params,
    request_key,
)
from harken.surfaces.mcp.services import (
    HANDSHAKE_VERSIONS,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NO_MESSAGE,
    PARSE_ERROR,
    AgentRequest,
    AgentServices,
    Ask,
    ClientCapabilities,
    ClientInfo,
    Json,
    ModernServer,
    RpcError,
)
from harken.surfaces.wire import LineReader, LineTooLong
from harken.verbs.verb import contained

_log = logging.getLogger("harken.mcp")

MAX_OPEN = 1_024
MAX_DEPTH: Final = 200
MAX_EARLY: Final = 8  # messages that are kept until the first request decides what becomes of them
TAKE_AWAY_SECONDS: Final = 5.0
TOO_MANY = -32000
_PROTOCOL_KEY: Final = "io.modelcontextprotocol/protocolVersion"

Notify = Callable[[str, Mapping[str, object]], bool]
Greet = Callable[[Session, Hello, Notify, Ask | None], None]
OpenModern: TypeAlias = Callable[[AgentServer, Outlet], Awaitable[ModernServer]]
"""Returns what serves a connection of the modern era."""


class _RpcFault(msgspec.Struct):
    code: int
    message: str


class RpcMessage(msgspec.Struct):
    """A JSON-RPC message of a client: a request, a notification, or the answer to a question."""

    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Json | None = None
    result: Json | UnsetType = UNSET
    error: _RpcFault | UnsetType = UNSET

    @property
    def request(self) -> int | str | None:
        """The id of the request that it is, or answers."""
        return None if isinstance(self.id, UnsetType) else self.id

    @property
    def is_request(self) -> bool:
        """Whether it waits for an answer."""
        return self.method is not UNSET and self.request is not None

    @property
    def is_valid(self) -> bool:
        """Whether it is one of the three."""
        is_answer = self.id is not UNSET and not (self.result is UNSET and self.error is UNSET)
        return self.method is not UNSET or is_answer

    @property
    def is_modern(self) -> bool:
        """Whether it can only be of the modern era. A client of either may greet with `initialize`."""
        meta = (self.params or {}).get("_meta")
        return self.method != "initialize" and isinstance(meta, dict) and _PROTOCOL_KEY in meta


def read_message(line: bytes) -> RpcMessage:
    """Return the message in a line; raises `RpcError` when there is none."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise RpcError(PARSE_ERROR, _NO_JSON) from exc
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and _is_deep(value):
        raise RpcError(PARSE_ERROR, _NO_JSON)
    try:
        message = msgspec.convert(value, RpcMessage)
    except msgspec.ValidationError as exc:
        raise RpcError(INVALID_REQUEST, NO_MESSAGE) from exc
    if not message.is_valid:
        raise RpcError(INVALID_REQUEST, NO_MESSAGE)
    return message


_NO_JSON: Final = "This line is not valid JSON, is nested too deep or has half a surrogate pair."


def _is_deep(value: object) -> bool:
    """Whether lists and objects are nested deeper than anybody needs."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for some in inner for each in some if isinstance(each, dict | list)]
        if not level:
            return False
    return True


@dataclass(slots=True, eq=False)
class _PersonAnswer:
    """What came back for a question to the person; None as long as nothing did, and when there will be nothing."""

    is_there: anyio.Event = field(default_factory=anyio.Event)
    result: Json | None = None

    def give(self, result: Json | None) -> None:
        self.result = result
        self.is_there.set()


class HandshakeServer:
    """JSON-RPC with one client of the handshake era."""

    def __init__(self, agent: AgentServer, outlet: Outlet) -> None:
        self._agent = agent
        self._outlet = outlet
        self._methods = agent.methods()
        self._client: ClientInfo | None = None
        self._capabilities: ClientCapabilities | None = None
        self._protocol = HANDSHAKE_VERSIONS[-1]
        self._is_greeted = False
        self._working: dict[int | str, anyio.CancelScope] = {}  # by request, those that can be cancelled
        self._asked: dict[int | str, _PersonAnswer] = {}
        self._questions = 0

    async def take(self, message: RpcMessage, tasks: TaskGroup) -> None:
        """Take a message. The greeting is answered before what follows it is read; all else takes a task."""
        if message.method is UNSET:
            self._take_answer(message)
        elif not message.is_request:
            await self._take_notification(message, tasks)
        else:
            scope = self._working[_known(message.request)] = anyio.CancelScope()
            if message.method == "initialize":
                await self._answer(message, scope)
            else:
                tasks.start_soon(self._answer, message, scope)

    def close(self) -> None:
        """The client is gone: no question will be answered any more."""
        for each in self._asked.values():
            each.give(None)

    async def _answer(self, message: RpcMessage, scope: anyio.CancelScope) -> None:
        request, method = message.request, str(message.method)
        with scope:
            try:
                data = await contained(method[:80], self._result(message), RpcError)
            except RpcError as exc:
                data = _error(request, exc)
            except HarkenError as exc:
                data = _error(request, RpcError(INTERNAL_ERROR, f"{exc.message} {exc.hint}".rstrip()))
            finally:
                # A client that reuses an id of a request that is not answered yet means the later one.
                if self._working.get(_known(request)) is scope:
                    del self._working[_known(request)]
            await self._outlet.answer(request, data)

    async def _result(self, message: RpcMessage) -> bytes:
        result = await self._handle(self._request(message))
        return json_bytes({"jsonrpc": "2.0", "id": message.request, "result": result})

    async def _handle(self, request: AgentRequest) -> Json:
        meta = request.params.get("_meta")
        if isinstance(meta, dict) and _PROTOCOL_KEY in meta and request.method != "initialize":
            text = "This connection began with the handshake: it takes no requests of the era without one."
            raise RpcError(INVALID_REQUEST, text)
        if meta is not None and not isinstance(meta, dict):
            raise RpcError(INVALID_PARAMS, "The params are wrong: `_meta` must be an object.")
        if request.method == "initialize":
            return self._greet(request)
        if request.method == "ping":
            read_params(request, PlainParams)
            return {}
        handler = self._methods.get(request.method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, "Method not found", request.method)
        if not self._is_greeted:
            raise RpcError(INVALID_PARAMS, "A connection begins with initialize.")
        return await handler(request)

    def _greet(self, request: AgentRequest) -> Json:
        said = read_params(request, GreetingParams)
        wanted = said.protocol_version
        self._protocol = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        self._client, self._capabilities, self._is_greeted = said.client_info, said.capabilities, True
        capabilities: Json = {
            "experimental": {each.capability: {} for each in push_channels().values()},
            "logging": {},
            "prompts": {LIST_CHANGED: False},
            "resources": {"subscribe": True, LIST_CHANGED: False},
            "tools": {LIST_CHANGED: False},
        }
        return {
            "protocolVersion": self._protocol,
            "serverInfo": {"name": "harken", "title": "Harken", "version": __version__},
            **self._agent.greet(client_name(request.params), capabilities),
        }

    async def _take_notification(self, message: RpcMessage, tasks: TaskGroup) -> None:
        params = message.params or {}
        if message.method == "notifications/cancelled":
            request = params.get("requestId")
            scope = self._working.get(_known(request))
            if scope is not None:
                scope.cancel()
        elif message.method == "notifications/initialized" and isinstance(params.get("_meta"), dict | None):
            self._is_greeted = True
            tasks.start_soon(self._begin, message)

    async def _begin(self, message: RpcMessage) -> None:
        """Register the session of a client that may say nothing more for hours: it is here and can be hinted."""
        try:
            await contained(str(message.method), self._agent.enter(self._request(message)), RpcError)
        except (HarkenError, RpcError) as exc:
            _log.warning("a session is not known before its first request: %s", exc)

    def _request(self, message: RpcMessage) -> AgentRequest:
        return AgentRequest(
            method=str(message.method),
            params=message.params or {},
            protocol=self._protocol,
            id=message.request,
            number=request_key(message.request),
            client=self._client,
            capabilities=self._capabilities,
            notify=self._say,
            announce=self._say,
            elicit=self._elicit,
        )

    async def _say(self, method: str, params: Json) -> None:
        try:
            await self._outlet.say(json_bytes({"jsonrpc": "2.0", "method": method, "params": params}))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def _elicit(self, text: str, form: Json) -> Json | None:
        """Ask the client to show a form; when this is cancelled, ask it to take the form away."""
        self._questions += 1
        number, answer, is_over = self._questions, _PersonAnswer(), False
        self._asked[number] = answer
        params = {"mode": "form", "message": text, "requestedSchema": form}
        asked = {"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": params}
        try:
            await self._outlet.say(json_bytes(asked))
            await answer.is_there.wait()
            is_over = True
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            is_over = True
        finally:
            del self._asked[number]
            if not is_over:
                with anyio.move_on_after(TAKE_AWAY_SECONDS, shield=True):
                    await self._say("notifications/cancelled", {"requestId": number, "reason": "answered elsewhere"})
        return answer.result

    def _take_answer(self, message: RpcMessage) -> None:
        asked = self._asked.get(_known(message.request))
        if asked is not None:
            asked.give(None if isinstance(message.result, UnsetType) else message.result)


class Connection:
    """Serves one edge until it goes away."""

    def __init__(
        self,
        stream: ByteStream,
        lines: LineReader,
        *,
        hello: Hello,
        means: AgentServices,
        open_modern: OpenModern,
        greet: Greet | None = None,
    ) -> None:
        self._lines = lines
        self._inbox = means.inbox
        self._origin = means.origin
        self._calls = CallLog(hello.edge)
        self._open: set[str] = set()
        self._agent = AgentServer(hello=hello, means=means, calls=self._calls, pusher=self, greeted=self._greeted)
        self._greet = greet
        self._hello = hello
        self._outlet = Outlet(stream, self._note_answer, self._note_loss)
        self._open_modern = open_modern
        self._early: list[tuple[RpcMessage, bytes]] = []
        self._handshake: HandshakeServer | None = None  # once the first request has come, one of these two
        self._modern: ModernServer | None = None
        self._tasks: TaskGroup | None = None

    async def serve(self) -> None:
        """Answer what comes until either side ends, then cancel what is still running."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._write)
                await self._read(tasks)
                tasks.cancel_scope.cancel()
        finally:
            if self._handshake is not None:
                self._handshake.close()
            self._outlet.close()
            with anyio.CancelScope(shield=True):
                # Where the link to another machine broke, its edge comes back, as after a restart.
                await self._agent.leave(is_cut=self._lines.is_cut and bool(self._origin.satellite))

    def push(self, note: Note) -> None:
        """Hand over a hint without waiting; it is dropped when the client does not keep up."""
        if self._agent.is_modern:
            if self._tasks is not None and self._modern is not None:
                self._tasks.start_soon(self._modern.publish_growth)
            return
        if self._agent.wants_pings:
            data = render.log_ping(note.message, note.unread)
            self._outlet.hint("notifications/message", {"level": "info", "logger": "harken.inbox", "data": data})
        if self._agent.is_subscribed:
            self._outlet.hint("notifications/resources/updated", {"uri": INBOX_URI})

    def _greeted(self, session: Session) -> None:
        """The session is known: let the daemon push to it, and ask its person."""
        if self._greet is not None:
            self._greet(session, self._hello, self._outlet.hint, self._agent.ask)

    def notify(self, method: str, params: Mapping[str, object]) -> bool:
        """Send any notification, as a probe does."""
        return self._outlet.hint(method, params)

    def settle(self, turn: str = "") -> Collection[DeliveryId]:
        """Return, once, what answers that were written have carried in a turn."""
        return self._calls.settle(turn)

    def abandon(self, but_of: str = "") -> Collection[str]:
        """Return, once, the carriers of answers that were written and that nothing proves any more."""
        return self._calls.abandon(but_of)

    async def _read(self, tasks: TaskGroup) -> None:
        while (line := await self._next_line()) is not None:
            if not line.strip():
                continue
            try:
                message = read_message(line)
            except RpcError as exc:
                # Under its id where it has one: the client waits for that.
                await self._outlet.send_error(_id_of(line), exc.code, exc.message)
                continue
            if await self._admit(message) and not await self._dispatch(message, line, tasks):
                return

    async def _dispatch(self, message: RpcMessage, line: bytes, tasks: TaskGroup) -> bool:
        """Let a message be served; return whether the next one can be."""
        if self._handshake is not None:
            await self._handshake.take(message, tasks)
            return True
        if self._modern is not None:
            return await self._modern.take(line)
        if message.is_request or len(self._early) < MAX_EARLY:
            self._early.append((message, line))
        if not message.is_request:
            return True
        early, self._early = self._early, []
        if message.is_modern:
            self._modern = await self._open_modern(self._agent, self._outlet)
            tasks.start_soon(self._modern.serve)
        else:
            self._handshake = HandshakeServer(self._agent, self._outlet)
        return all([await self._dispatch(*each, tasks) for each in early])

    async def _next_line(self) -> bytes | None:
        try:
            return await self._lines.read()
        except LineTooLong:
            return None

    async def _admit(self, message: RpcMessage) -> bool:
        """Note what a message means for the evidence; return whether it is to be served."""
        if not message.is_request:
            self._note_cancellation(message)
            return True
        if len(self._open) >= MAX_OPEN:
            await self._outlet.send_error(
                message.request, TOO_MANY, "Too many requests wait for an answer; read those first."
            )
            return False
        self._open.add(request_key(message.request))
        if message.method == "tools/call":
            self._calls.begin(request_key(message.request))
        if message.method == "server/discover" and host_of_client(client_name(message.params)).needs_handshake:
            self._open.discard(request_key(message.request))
            await self._outlet.send_error(message.request, METHOD_NOT_FOUND, "Method not found")
            return False
        return True

    def _note_cancellation(self, message: RpcMessage) -> None:
        if message.method != "notifications/cancelled" or not message.params:
            return
        request = request_key(message.params.get("requestId"))
        session = self._agent.session
        if session is None:
            self._agent.note_cancelled(request)
        elif not host_named(session.host).cancels_answered and self._discard(session, request):
            # The two have crossed: whoever has given a call up ignores its answer. Whether it did, nobody knows.
            self._give_again(session.key, request)
        self._note_loss(request)

    def _discard(self, session: Session, request: str) -> bool:
        """Let go of what an answered call has carried; return whether that was unproven."""
        # What was answered before a restart is with the session's turns.
        return self._calls.discard(request) or session.forget_carrier(self._calls.carrier(request))

    def _note_loss(self, request: str) -> None:
        """A request will get no answer: what was offered to it did not arrive."""
        self._open.discard(request)
        if self._calls.cancel(request):
            self._take_back(request)

    def _give_again(self, session: SessionKey, request: str) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(self._inbox.proofs.release, session, [self._calls.carrier(request)])

    def _take_back(self, request: str) -> None:
        session = self._agent.session
        if session is not None and self._tasks is not None:
            self._tasks.start_soon(self._inbox.proofs.withdraw, session.key, self._calls.carrier(request))

    async def _write(self) -> None:
        await self._outlet.run()
        # Nobody takes lines any more; whoever still has one to hand over would wait for ever.
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    def _note_answer(self, request: str) -> None:
        self._open.discard(request)
        self._calls.answer(request)


def _known(request: object) -> int | str:
    """Return what a request is known by: some clients send back as text what they sent as a number."""
    if isinstance(request, str) and len(request) <= _NUMBER_CHARS:
        try:
            return int(request)
        except ValueError:
            return request
    return request if isinstance(request, int | str) and not isinstance(request, bool) else _NOTHING


_NUMBER_CHARS: Final = 20
_NOTHING: Final = "\0"  # what no request is known by


def _error(request: object, error: RpcError) -> bytes:
    said: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        said["data"] = error.data
    return json_bytes({"jsonrpc": "2.0", "id": request, "error": said})


def _id_of(line: bytes) -> str | int | None:
    """Return the id of a line that was rejected. The standard parser reads what stricter ones refuse."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    found = value.get("id") if isinstance(value, dict) else None
    if isinstance(found, str):
        return None if any("\ud800" <= letter <= "\udfff" for letter in found) else found
    return found if isinstance(found, int) and not isinstance(found, bool) else None
