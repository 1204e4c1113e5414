"""One agent's MCP connection: the lines of a socket on one side, the SDK's server on the other.

Two things happen before the SDK sees a line: `server/discover` is declined for hosts that need, for push, the 2025
handshake (a connection that negotiated 2026-07-28 has no way to push), and the order of requests, answers and
cancellations is noted, because it is evidence. Hints (log ping, resource update) go straight to the wire.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping

import anyio
import mcp_types as types
from anyio.abc import ByteStream, TaskGroup
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from harken import render
from harken.hosts.hook import Hello
from harken.hosts.registry import host_named, host_of_client, push_channels
from harken.model import DeliveryId, SessionKey
from harken.sessions.proof import CallLog
from harken.sessions.session import Note, Session
from harken.surfaces.mcp.server import INBOX_URI, AgentServer, Outlet, client_name, request_key
from harken.surfaces.mcp.services import AgentServices, Ask
from harken.surfaces.wire import LineReader, LineTooLong

MAX_OPEN = 1_024
TOO_MANY = -32000
Notify = Callable[[str, Mapping[str, object]], bool]
Greet = Callable[[Session, Hello, Notify, Ask | None], None]


class Connection:
    """Serves one edge until it goes away."""

    def __init__(
        self,
        stream: ByteStream,
        lines: LineReader,
        *,
        hello: Hello,
        means: AgentServices,
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
        self._tasks: TaskGroup | None = None

    async def serve(self) -> None:
        """Relay between the socket and the SDK's server until either side ends."""
        to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        server = self._agent.build()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._write)
                tasks.start_soon(self._read, to_server)
                options = server.create_initialization_options(
                    experimental_capabilities={each.capability: {} for each in push_channels().values()}
                )
                await server.run(from_client, self._outlet, options)
                tasks.cancel_scope.cancel()
        finally:
            self._outlet.close()
            with anyio.CancelScope(shield=True):
                # Where the link to another machine broke, its edge comes back, as after a restart.
                await self._agent.leave(is_cut=self._lines.is_cut and bool(self._origin.satellite))

    def push(self, note: Note) -> None:
        """Hand over a hint without waiting; it is dropped when the client does not keep up."""
        if self._agent.is_modern:
            if self._tasks is not None:
                self._tasks.start_soon(self._agent.publish_growth)
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

    async def _read(self, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with to_server:
            while (line := await self._next_line()) is not None:
                if not line.strip():
                    continue
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValidationError as exc:
                    await self._reject(line, exc)
                    continue
                if not await self._admit(message):
                    continue
                try:
                    await to_server.send(SessionMessage(message))
                except anyio.BrokenResourceError:
                    return

    async def _next_line(self) -> bytes | None:
        try:
            return await self._lines.read()
        except LineTooLong:
            return None

    async def _admit(self, message: types.JSONRPCMessage) -> bool:
        """Note what a message means for the evidence; return whether the SDK may see it."""
        if isinstance(message, types.JSONRPCNotification):
            self._note_cancellation(message)
        if not isinstance(message, types.JSONRPCRequest):
            return True
        if len(self._open) >= MAX_OPEN:
            await self._outlet.send_error(
                message.id, TOO_MANY, "Too many requests wait for an answer; read those first."
            )
            return False
        self._open.add(request_key(message.id))
        if message.method == "tools/call":
            self._calls.begin(request_key(message.id))
        if message.method == "server/discover" and host_of_client(client_name(message.params)).needs_handshake:
            self._open.discard(request_key(message.id))
            await self._outlet.send_error(message.id, types.METHOD_NOT_FOUND, "Method not found")
            return False
        return True

    def _note_cancellation(self, message: types.JSONRPCNotification) -> None:
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

    async def _reject(self, line: bytes, error: ValidationError) -> None:
        """Answer what is not JSON-RPC, under its id where it has one: the client waits for that."""
        is_json = error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid"
        if is_json:
            await self._outlet.send_error(_id_of(line), types.INVALID_REQUEST, "This is not a JSON-RPC 2.0 message.")
        else:
            text = "This line is not valid JSON, is nested too deep or has half a surrogate pair."
            await self._outlet.send_error(_id_of(line), types.PARSE_ERROR, text)

    async def _write(self) -> None:
        await self._outlet.run()
        # Nobody takes lines any more; whoever still has one to hand over would wait for ever.
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    def _note_answer(self, request: str) -> None:
        self._open.discard(request)
        self._calls.answer(request)


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
