"""A service on loopback that does to a client whatever a test says, and time that passes when it is told to.

It is no Microsoft Graph and knows none of its rules: it answers, hangs, breaks off and resets, visit by visit.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from harken.sources.microsoft.client import GraphClient, GraphTiming
from harken.testing import FakeClock

SECONDS: Final = 60
ROUNDS: Final = 20
DROP_SECONDS: Final = 0.02
FIRST: Final = "eyJ0b2tlbg.c2VjcmV0LXRva2VuLW9mLWFubg.first"
FRESH: Final = "eyJ0b2tlbg.c2VjcmV0LXRva2VuLW9mLWFubg.fresh"

_MAX_HEAD: Final = 65_536


class Fault(Enum):
    """What can happen instead of a whole answer."""

    RESET = "reset"
    HANG = "hang"
    CUT = "cut"
    DRIP = "drip"


@dataclass(frozen=True, slots=True)
class Visit:
    """One request."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """What is written back, and whether less of it than promised."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    fault: Fault | None = None


def told(value: object, status: int = 200, **headers: str) -> Reply:
    """Return a reply of JSON; underscores in the names of headers are hyphens."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, {"Content-Type": "application/json", **named}, json.dumps(value).encode())


def refused(status: int, code: str = "badRequest", message: str = "No.", **headers: str) -> Reply:
    """Return an error as Graph writes it."""
    return told({"error": {"code": code, "message": message}}, status, request_id="upstream-1", **headers)


@dataclass
class Service:
    """Answers each visit by what `answer` returns for it."""

    answer: Callable[[Visit], Reply]
    visits: list[Visit] = field(default_factory=list)
    port: int = 0
    visited: anyio.Event = field(default_factory=anyio.Event)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}/v1.0"

    async def serve(self, stream: SocketStream) -> None:
        """Answer one request and close."""
        async with stream:
            try:
                visit = await _heard(stream)
                self.visits.append(visit)
                self.visited.set()
                await _write(stream, self.answer(visit))
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


def script(*replies: Reply) -> Callable[[Visit], Reply]:
    """Return an answer that goes through the replies; the last one again and again."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


@asynccontextmanager
async def serving(answer: Callable[[Visit], Reply]) -> AsyncIterator[Service]:
    """Serve on a free port until the block ends."""
    service = Service(answer)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        service.port = listener.extra(SocketAttribute.local_port)
        group.start_soon(listener.serve, service.serve)
        yield service
        group.cancel_scope.cancel()


@dataclass
class Purse:
    """Tokens of a sign-in: the first one until a fresh one is asked for."""

    held: str = FIRST
    refreshes: int = 0
    fresh: str = FRESH

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return the token, and let others run meanwhile: a fresh one takes longer."""
        self.refreshes += is_fresh
        for _ in range(ROUNDS if is_fresh else 1):
            await anyio.lowlevel.checkpoint()
        if is_fresh:
            self.held = self.fresh
        return self.held


@dataclass
class Time:
    """Time in which every wait is over at once, and is remembered."""

    clock: FakeClock = field(default_factory=FakeClock)
    now: float = 1_000.0
    waits: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        """Return the present."""
        return self.now

    async def wait(self, seconds: float) -> None:
        """Let the time pass."""
        self.waits.append(seconds)
        self.now += seconds
        self.clock.advance(seconds)
        await anyio.lowlevel.checkpoint()

    def timing(self, *, request_seconds: float = SECONDS) -> GraphTiming:
        """Return this time for a client, without chance."""
        return GraphTiming(
            chance=lambda: 0.0, wait=self.wait, monotonic=self.monotonic, request_seconds=request_seconds
        )


@dataclass
class Calling:
    """A client of a service, and all it was given."""

    service: Service
    client: GraphClient
    purse: Purse
    time: Time


@asynccontextmanager
async def calling(
    answer: Callable[[Visit], Reply], *, request_seconds: float = SECONDS, seconds: float = SECONDS
) -> AsyncIterator[Calling]:
    """Serve and call, with everything closed at the end and nothing taking longer than a test may."""
    purse, time = Purse(), Time()
    with anyio.fail_after(seconds):
        async with serving(answer) as service:
            timing = time.timing(request_seconds=request_seconds)
            async with GraphClient(purse, time.clock, name="work", base_url=service.url, timing=timing) as client:
                yield Calling(service, client, purse, time)


async def _heard(stream: SocketStream) -> Visit:
    buffered = BufferedByteReceiveStream(stream)
    head = (await buffered.receive_until(b"\r\n\r\n", _MAX_HEAD)).decode()
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    return Visit(method, target, headers, await buffered.receive_exactly(length) if length else b"")


async def _write(stream: SocketStream, reply: Reply) -> None:
    if reply.fault is Fault.RESET:
        raw = stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return
    if reply.fault is Fault.HANG:
        await stream.receive()
    if reply.fault is Fault.DRIP:
        await stream.send(b"HTTP/1.1 200 Said\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            await stream.send(b" ")
            await anyio.sleep(DROP_SECONDS)
    length = len(reply.body) + (100 if reply.fault is Fault.CUT else 0)
    headers = {"Content-Length": str(length), "Connection": "close", **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} Said", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    await stream.send("\r\n".join(lines).encode() + reply.body)
