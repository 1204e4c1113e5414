"""One connection of the protocol, from both sides, and against what another side should not say."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketStream

from harken.acp.connection import MAX_ASKED, AcpConnection, AcpError, lines
from harken.acp.protocol import ErrorCode, Fields
from harken.errors import Unavailable

BOUND_SECONDS = 20.0


class Peer:
    """Answers as a test says, and keeps what it was told."""

    def __init__(self, answer: Callable[[str, Fields], Awaitable[object]] | None = None) -> None:
        self.answer = answer
        self.heard: list[tuple[str, Fields]] = []
        self.called_off = anyio.Event()

    async def asked(self, method: str, params: Fields) -> object:
        """Answer, as the test says."""
        if self.answer is None:
            raise AcpError(ErrorCode.NO_METHOD, f"no {method}")
        try:
            return await self.answer(method, params)
        except anyio.get_cancelled_exc_class():
            self.called_off.set()
            raise

    async def told(self, method: str, params: Fields) -> None:
        """Keep it."""
        self.heard.append((method, params))


@asynccontextmanager
async def joined(near: Peer, far: Peer) -> AsyncIterator[tuple[AcpConnection, AcpConnection]]:
    """Two connections that are each other's other side."""
    one, other = await _sockets()
    async with one, other, anyio.create_task_group() as tasks:
        here, there = AcpConnection(one, one, near), AcpConnection(other, other, far)
        tasks.start_soon(here.run)
        tasks.start_soon(there.run)
        with anyio.fail_after(BOUND_SECONDS):
            yield here, there
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def alone(peer: Peer) -> AsyncIterator[tuple[AcpConnection, SocketStream]]:
    """A connection, and what a program at its other end reads and writes by hand."""
    one, other = await _sockets()
    async with one, other, anyio.create_task_group() as tasks:
        here = AcpConnection(one, one, peer)
        tasks.start_soon(here.run)
        with anyio.fail_after(BOUND_SECONDS):
            yield here, other
        tasks.cancel_scope.cancel()


async def _sockets() -> tuple[SocketStream, SocketStream]:
    one, other = socket.socketpair()
    return await SocketStream.from_socket(one), await SocketStream.from_socket(other)


async def _echo(method: str, params: Fields) -> object:
    return {"method": method, **params}


async def test_both_sides_ask_and_are_answered() -> None:
    """Either side is a client and a server: the agent asks for permissions over the connection it is asked on."""
    async with joined(Peer(_echo), Peer(_echo)) as (here, there):
        assert await here.call("one", {"n": 1}) == {"method": "one", "n": 1}
        assert await there.call("two", {"n": 2}) == {"method": "two", "n": 2}


async def test_an_error_comes_back_with_its_number() -> None:
    """What to do next depends on it: an agent that wants a sign-in says so by a number only."""
    async with joined(Peer(), Peer()) as (here, _):
        with pytest.raises(AcpError, match="no one") as caught:
            await here.call("one", {})
        assert caught.value.number == ErrorCode.NO_METHOD


async def test_what_was_told_before_an_answer_is_heard_before_it() -> None:
    """The end of a turn comes after what was said in it."""
    near = Peer()
    far = Peer()
    async with joined(near, far) as (here, there):

        async def answer(_method: str, _params: Fields) -> object:
            for number in range(50):
                await there.tell("update", {"n": number})
            return {}

        far.answer = answer
        await here.call("prompt", {})
        assert [params["n"] for _, params in near.heard] == list(range(50))


async def test_a_call_that_is_cancelled_is_called_off_at_the_other_side() -> None:
    """A permission request must not stay open at an agent whose question nobody will answer."""

    async def never(_method: str, _params: Fields) -> object:
        await anyio.sleep_forever()
        return {}

    far = Peer(never)
    async with joined(Peer(), far) as (here, _):
        with pytest.raises(Unavailable, match="not answered"):
            await here.call("slow", {}, seconds=0.05)
        await far.called_off.wait()


async def test_waiting_calls_end_when_the_other_side_hangs_up() -> None:
    """An agent that dies must not keep its client waiting."""
    async with alone(Peer()) as (here, other), anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(Unavailable, match="ended before it answered"):
                await here.call("one", {})

        tasks.start_soon(ask)
        await other.receive()
        await other.aclose()


@pytest.mark.parametrize(
    "noise",
    [
        b"log: starting\n",
        b"[1, 2]\n",
        b'"text"\n',
        b'{"jsonrpc": "2.0"}\n',
        b'{"id": 1}\n',
        b'{"id": {"a": []}, "result": {}}\n',
        b'{"id": 77, "result": {}}\n',
        b'{"method": 7, "params": []}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"\n\n",
    ],
)
async def test_what_is_no_message_is_passed_over(noise: bytes) -> None:
    """Agents print to their standard output what they should not; that ends no session."""
    async with alone(Peer()) as (here, other), anyio.create_task_group() as tasks:

        async def ask() -> None:
            assert await here.call("one", {}) == {"fine": True}

        tasks.start_soon(ask)
        asked = json.loads(await other.receive())
        await other.send(noise + json.dumps({"id": asked["id"], "result": {"fine": True}}).encode() + b"\n")


async def test_half_of_an_emoji_spoils_no_line() -> None:
    """JavaScript cuts texts in the middle of a letter, and strict readers refuse the whole line then."""
    near = Peer()
    async with alone(near) as (_, other):
        await other.send(b'{"method": "m", "params": {"text": "\\ud83d"}}\n{"id": 1, "method": "x"}\n')
        await other.receive()
        assert near.heard == [("m", {"text": "?"})]


async def test_a_line_without_end_ends_the_connection() -> None:
    """An agent that never ends its line must not take all memory."""
    one, other = await _sockets()
    async with one, other, anyio.create_task_group() as tasks:
        tasks.start_soon(other.send, b"x" * 5_000 + b"\n")
        with anyio.fail_after(BOUND_SECONDS):
            assert [line async for line in lines(one, 1_000)] == [None]


async def test_an_id_is_answered_as_it_was_given() -> None:
    """An id may be a number, a text, or nothing; the other side finds its request by it."""
    async with alone(Peer(_echo)) as (_, other):
        for given in (1, "1", "a", None):
            await other.send(json.dumps({"id": given, "method": "m"}).encode() + b"\n")
            assert json.loads(await other.receive())["id"] == given


async def test_too_many_requests_at_once_are_refused() -> None:
    """A flood from the other side is bounded, and what is refused is told."""
    gate = anyio.Event()

    async def wait(_method: str, _params: Fields) -> object:
        await gate.wait()
        return {}

    async with alone(Peer(wait)) as (_, other):
        for number in range(MAX_ASKED + 1):
            await other.send(json.dumps({"id": number, "method": "m"}).encode() + b"\n")
        refused = json.loads(await other.receive())
        assert refused["id"] == MAX_ASKED
        assert refused["error"]["code"] == ErrorCode.INVALID
        gate.set()
