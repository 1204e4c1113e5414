"""Posts over a real connection: whole ones, those that come in parts, and those that do not come to an end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket

import anyio
import anyio.abc
import pytest

from harken.daemon import http
from harken.errors import Unavailable
from harken.model import Draft
from harken.sources.source import Accept, DoorAnswer, PostedRequest
from harken.surfaces.doors import create_doors

WAIT_SECONDS = 20
HEAD = b"POST /hooks/ci HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n"
NEVER = 0.0  # no time at all for a body that has to be waited for


@dataclass(frozen=True, slots=True)
class Echoing:
    """A door that says what it was given."""

    path: str = "/hooks/ci"
    max_bytes: int = 100

    async def take(self, posted: PostedRequest, accept: Accept) -> DoorAnswer:
        """Say it."""
        if self.path == "/hooks/full":
            raise Unavailable("The disk is full.", "Free some space.", retry_after=7.0)
        if self.path == "/hooks/faulty":
            raise ZeroDivisionError
        await accept([])
        return DoorAnswer(status=200, body=posted.body)


async def accept(_drafts: Sequence[Draft]) -> Sequence[bool]:
    """Store nothing."""
    return ()


@asynccontextmanager
async def served(folder: Path, body_seconds: float) -> AsyncIterator[anyio.abc.SocketStream]:
    """Serve the door, and connect to it."""
    sock: socket = http.bind("127.0.0.1", 0, folder / "port", "port")
    doors = [Echoing(f"/hooks/{name}") for name in ("ci", "full", "faulty")]
    server = http.make_server(create_doors(doors, accept, body_seconds=body_seconds))
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: server.serve(sockets=[sock]))
            async with await anyio.connect_tcp(*sock.getsockname()) as stream:
                yield stream
            server.should_exit = True


async def answer(stream: anyio.abc.SocketStream) -> tuple[int, bytes]:
    """Return the status and the body of the next answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += await stream.receive()
    assert len(body) == length
    return int(head.split()[1]), body


async def test_body_that_came_with_its_head_is_not_waited_for(tmp_path: Path) -> None:
    """Most posts are whole when they are looked at: no time-out can be short enough to refuse them."""
    async with served(tmp_path, NEVER) as stream:
        for body in (b"first", b"again"):
            await stream.send(HEAD + body)
            assert await answer(stream) == (200, body)


@pytest.mark.parametrize("place", [1, len(HEAD) - 1, len(HEAD), len(HEAD) + 2])
async def test_post_that_comes_in_parts_is_taken(tmp_path: Path, place: int) -> None:
    """Where a network cuts it is nobody's choice."""
    async with served(tmp_path, WAIT_SECONDS) as stream:
        for post in (HEAD + b"first", HEAD + b"again"):
            await stream.send(post[:place])
            await anyio.wait_all_tasks_blocked()
            await stream.send(post[place:])
            assert await answer(stream) == (200, post[-5:])


async def test_body_that_does_not_come_is_given_up_on_a_connection_that_was_used(tmp_path: Path) -> None:
    """What was said of one request must not hold for the next."""
    async with served(tmp_path, 0.05) as stream:
        await stream.send(HEAD + b"whole")
        assert await answer(stream) == (200, b"whole")
        await stream.send(HEAD + b"ha")
        status, _ = await answer(stream)
        assert status == 408


async def test_posts_that_come_together_are_answered_in_order(tmp_path: Path) -> None:
    """Whoever sends the next before it has the answer goes by the order."""
    async with served(tmp_path, NEVER) as stream:
        await stream.send(HEAD + b"first" + HEAD + b"again")
        data = b""
        while data.count(b"\r\n\r\n") < 2 or not data.endswith(b"again"):
            data += await stream.receive()
    assert [part[:5] for part in data.split(b"\r\n\r\n")[1:]] == [b"first", b"again"]


@pytest.mark.parametrize(
    ("post", "status"),
    [
        (HEAD + b"first", 200),
        (HEAD.replace(b"/hooks/ci", b"/hooks/no") + b"first", 404),
        (HEAD.replace(b"POST", b"PUT") + b"first", 405),
        (HEAD.replace(b"length: 5", b"length: 101") + b"x" * 101, 413),
        (HEAD.replace(b"host:", b"upgrade: h2c\r\nconnection: upgrade\r\nhost:") + b"first", 400),
        (HEAD.replace(b"/hooks/ci", b"/hooks/full") + b"first", 503),
        (HEAD.replace(b"/hooks/ci", b"/hooks/faulty") + b"first", 500),
    ],
)
async def test_post_is_answered_alike_whether_it_is_whole_or_in_parts(tmp_path: Path, post: bytes, status: int) -> None:
    """One that is whole takes a shorter way: no check, and no header of an answer, may be lost on it."""
    heads: list[frozenset[bytes]] = []
    for parts in ((post,), (post[:-3], post[-3:])):
        async with served(tmp_path, WAIT_SECONDS) as stream:
            for part in parts:
                await stream.send(part)
                await anyio.wait_all_tasks_blocked()
            head, _, _ = (await stream.receive()).partition(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            heads.append(frozenset(lines) - {b"connection: close"})
            assert int(lines[0].split()[1]) == status
    assert heads[0] == heads[1]


async def test_connection_is_closed_after_the_answer_when_that_was_asked(tmp_path: Path) -> None:
    """Some clients wait for the end of the connection, not for the length of the answer."""
    async with served(tmp_path, NEVER) as stream:
        await stream.send(HEAD.replace(b"host:", b"connection: close\r\nhost:") + b"first")
        assert await answer(stream) == (200, b"first")
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
