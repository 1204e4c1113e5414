"""A server that misbehaves on purpose, and an ear that follows a source until it has heard what the test wants.

The server is a bare TCP server on loopback: a test says, visit by visit, what is written to the wire. Waits between
tries are not slept: the test sees each of them and lets it pass.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Final, Self

import anyio
import msgspec
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener

from harken.model import Draft
from harken.sources.feed import FeedTiming
from harken.sources.mcp.settings import read_settings
from harken.sources.mcp.source import McpSource
from harken.sources.source import Batch, SourceHealth
from harken.testing import FakeClock

SECONDS: Final = 10
SESSION: Final = "session-1"
MANY: Final = 1_000


def said(text: str, channel: str = "news") -> str:
    """Return an announcement as it is written."""
    return json.dumps({"jsonrpc": "2.0", "method": "channel/message", "params": {"channel": channel, "content": text}})


@dataclass(frozen=True, slots=True)
class Visit:
    """One request, and the wire to answer it on."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    wire: ByteStream

    @property
    def json(self) -> dict[str, object]:
        """The body as JSON."""
        loaded: dict[str, object] = json.loads(self.body)
        return loaded

    async def reply(self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        """Answer at once."""
        told = {"Content-Length": str(len(body)), **(headers or {})}
        await self.wire.send(_head(status, told) + body)

    async def reply_json(self, value: object, headers: Mapping[str, str] | None = None) -> None:
        """Answer with JSON."""
        await self.reply(200, {"Content-Type": "application/json", **(headers or {})}, json.dumps(value).encode())

    async def begin_stream(self, headers: Mapping[str, str] | None = None) -> None:
        """Begin an event stream."""
        told = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **(headers or {})}
        await self.wire.send(_head(200, told))

    async def write(self, data: bytes) -> None:
        """Write one chunk of a stream."""
        await self.wire.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, data: str, event_id: str = "", name: str = "") -> None:
        """Write one event."""
        lines = [f"event: {name}"] * bool(name) + [f"id: {event_id}"] * bool(event_id) + [f"data: {data}", "", ""]
        await self.write("\n".join(lines).encode())

    async def end(self) -> None:
        """End the stream properly."""
        await self.wire.send(b"0\r\n\r\n")

    async def hold(self) -> None:
        """Say nothing until the other side leaves."""
        try:
            while True:
                await self.wire.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return


Handler = Callable[[Visit], Awaitable[None]]


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


def answers(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Handler:
    """Return a handler that answers with a status."""

    async def handle(visit: Visit) -> None:
        await visit.reply(status, headers, body)

    return handle


def streams(*events: str, first_id: int = 0, held: bool = True) -> Handler:
    """Return a handler that sends events, with ids from `first_id` on unless that is 0, and then holds the stream."""

    async def handle(visit: Visit) -> None:
        await visit.begin_stream()
        for place, each in enumerate(events):
            await visit.event(each, str(first_id + place) if first_id else "")
        if held:
            await visit.hold()
        await visit.end()

    return handle


@dataclass
class Server:
    """What answers: GETs one after the other from `gets` (the last one again and again), POSTs by their method."""

    gets: list[Handler] = field(default_factory=list)
    posts: dict[str, list[Handler]] = field(default_factory=dict)
    session: str = SESSION
    visits: list[Visit] = field(default_factory=list)
    port: int = 0
    visited: anyio.Event = field(default_factory=anyio.Event)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def seen(self, method: str) -> list[Visit]:
        """Return the requests of one HTTP method so far."""
        return [visit for visit in self.visits if visit.method == method]

    def told(self) -> list[object]:
        """Return what was posted so far: the methods, or nothing for answers."""
        return [visit.json.get("method") for visit in self.seen("POST")]

    async def visit(self, method: str) -> Visit:
        """Wait for the first request of an HTTP method and return it."""
        with anyio.fail_after(SECONDS):
            while not (found := self.seen(method)):
                self.visited = anyio.Event()
                await self.visited.wait()
        return found[0]

    async def replies(self, count: int) -> list[dict[str, object]]:
        """Wait until so many of its own requests were answered and return the answers."""
        with anyio.fail_after(SECONDS):
            while len(found := [visit.json for visit in self.seen("POST") if "method" not in visit.json]) < count:
                self.visited = anyio.Event()
                await self.visited.wait()
        return found

    async def serve(self, wire: ByteStream) -> None:
        """Answer the requests of one connection."""
        reader = BufferedByteReceiveStream(wire)
        try:
            async with wire:
                while True:
                    visit = await _read(reader, wire)
                    self.visits.append(visit)
                    self.visited.set()
                    await self._handler(visit)(visit)
        except (
            anyio.IncompleteRead,
            anyio.EndOfStream,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
            OSError,
        ):
            return  # whoever asked has left, or the test cut the wire

    def _handler(self, visit: Visit) -> Handler:
        if visit.method == "GET":
            return self.gets.pop(0) if len(self.gets) > 1 else self.gets[0]
        if visit.method == "DELETE":
            return answers(200)
        method = str(visit.json.get("method"))
        if self.posts.get(method):
            queue = self.posts[method]
            return queue.pop(0) if len(queue) > 1 else queue[0]
        if method == "initialize":
            return self.initialize
        return self._empty_result if "id" in visit.json and "method" in visit.json else answers(202)

    async def initialize(self, visit: Visit) -> None:
        """Answer the handshake, as a server does that has nothing wrong."""
        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "odd", "version": "1"}}
        headers = {"Mcp-Session-Id": self.session} if self.session else {}
        await visit.reply_json({"jsonrpc": "2.0", "id": visit.json["id"], "result": info}, headers)

    async def _empty_result(self, visit: Visit) -> None:
        await visit.reply_json({"jsonrpc": "2.0", "id": visit.json["id"], "result": {}})


async def _read(reader: BufferedByteReceiveStream, wire: ByteStream) -> Visit:
    head = (await reader.receive_until(b"\r\n\r\n", 65_536)).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    body = await reader.receive_exactly(int(headers.get("content-length", "0")))
    return Visit(method, path, headers, body, wire)


@asynccontextmanager
async def serving(server: Server, tls: SSLContext | None = None) -> AsyncIterator[Server]:
    """Run a server on loopback."""
    plain = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=server.port)
    listener = plain if tls is None else TLSListener(plain, tls, standard_compatible=False)
    server.port = plain.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, server.serve)
        yield server
        group.cancel_scope.cancel()


class Waits:
    """The waits between tries: each is seen with the health at that moment, and passes when the test lets it."""

    def __init__(self, passing: int = MANY) -> None:
        self._sender, self._receiver = anyio.create_memory_object_stream[tuple[float, SourceHealth]](MANY)
        self._gate = anyio.Semaphore(passing)
        self.health: Callable[[], SourceHealth] | None = None

    async def __call__(self, seconds: float) -> None:
        """Wait, as the source asks."""
        if self.health is not None:
            await self._sender.send((seconds, self.health()))
        await self._gate.acquire()

    async def next(self) -> tuple[float, SourceHealth]:
        """Return the next wait and how the source was doing when it began."""
        with anyio.fail_after(SECONDS):
            return await self._receiver.receive()

    def let_pass(self) -> None:
        """Let one more wait pass."""
        self._gate.release()

    async def aclose(self) -> None:
        """Close both ends."""
        await self._sender.aclose()
        await self._receiver.aclose()


class Ear:
    """Follows a source and keeps what it hears."""

    def __init__(self, source: McpSource, clock: FakeClock, waits: Waits) -> None:
        self.source = source
        self.clock = clock
        self.waits = waits
        self.batches: list[Batch] = []
        self.count = 0
        self.has_ended = anyio.Event()
        self._changed = anyio.Event()
        self._known = set[str]()

    @property
    def drafts(self) -> list[Draft]:
        """Everything heard so far."""
        return [draft for batch in self.batches for draft in batch.drafts]

    @property
    def texts(self) -> list[str]:
        """The texts of everything heard so far."""
        return [draft.text for draft in self.drafts]

    @property
    def checkpoint(self) -> str:
        """The last checkpoint."""
        return next((batch.checkpoint for batch in reversed(self.batches) if batch.checkpoint is not None), "")

    async def hear(self, count: int, seconds: float = SECONDS) -> Self:
        """Wait until so many drafts were heard."""
        with anyio.fail_after(seconds):
            while self.count < count:
                self._changed = anyio.Event()
                await self._changed.wait()
        return self

    async def next_checkpoint(self) -> str:
        """Wait until there is a checkpoint."""
        with anyio.fail_after(SECONDS):
            while not self.checkpoint:
                self._changed = anyio.Event()
                await self._changed.wait()
        return self.checkpoint

    async def end(self) -> SourceHealth:
        """Wait until the feed ends by itself and return how the source is doing then."""
        with anyio.fail_after(SECONDS):
            await self.has_ended.wait()
        return self.source.health()

    async def run(self, checkpoint: str) -> None:
        """Follow until the end."""
        (feed,) = self.source.feeds()
        async with aclosing(feed.follow(checkpoint)) as batches:
            async for batch in batches:
                new = [draft for draft in batch.drafts if draft.upstream_id not in self._known]
                self._known.update(draft.upstream_id for draft in new if draft.upstream_id)
                feed.stored(new, known=len(batch.drafts) - len(new))
                self.batches.append(batch)
                self.count += len(batch.drafts)
                self._changed.set()
        self.has_ended.set()


@asynccontextmanager
async def following(
    entry: Mapping[str, object],
    *,
    checkpoint: str = "",
    passing: int = MANY,
    idle: float | None = None,
    monotonic: Callable[[], float] = anyio.current_time,
) -> AsyncIterator[Ear]:
    """Follow the server of an entry until the block is left."""
    clock, waits = FakeClock(), Waits(passing)
    settings = read_settings("odd", entry)
    if idle is not None:
        settings = msgspec.structs.replace(settings, idle=idle)  # shorter than a person may choose
    source = McpSource(settings, clock, FeedTiming(lambda: 1.0, waits, monotonic))
    waits.health = source.health
    ear = Ear(source, clock, waits)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(ear.run, checkpoint)
            yield ear
            group.cancel_scope.cancel()
    finally:
        await waits.aclose()
