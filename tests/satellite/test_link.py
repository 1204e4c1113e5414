"""The link: streams that do not hold each other up, and frames that break the protocol end it and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import pytest
from anyio.streams.stapled import StapledObjectStream
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.daemon.satellites.link import (
    CREDIT,
    HEAD,
    MAX_ASKED,
    MAX_HELD,
    MAX_REFUSING,
    MAX_STREAMS,
    WINDOW,
    BrokenProtocol,
    FrameKind,
    LinkStream,
    SatelliteLink,
)
from harken.errors import Unavailable, Uncertain
from tests.examples import examples

SECONDS = 30.0
ROOM = 2 * MAX_STREAMS


class Socket:
    """One end of a web socket in memory."""

    def __init__(self, stream: StapledObjectStream[bytes]) -> None:
        self.stream = stream

    async def send(self, data: bytes) -> None:
        """Send one message."""
        await self.stream.send(data)

    async def receive(self) -> bytes:
        """Return the next message."""
        return await self.stream.receive()

    async def cut(self) -> None:
        """End it for both sides, as a network does."""
        await self.stream.aclose()


def sockets() -> tuple[Socket, Socket]:
    """Two ends of one web socket."""
    to_main, from_satellite = anyio.create_memory_object_stream[bytes](ROOM)
    to_satellite, from_main = anyio.create_memory_object_stream[bytes](ROOM)
    return Socket(StapledObjectStream(to_main, from_main)), Socket(StapledObjectStream(to_satellite, from_satellite))


async def echo(stream: LinkStream, _facts: bytes) -> None:
    """Send back what comes."""
    try:
        while True:
            await stream.send(await stream.receive())
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[SatelliteLink, Socket]]:
    """A link over which every stream is an echo, and the socket that can be cut."""
    here, there = sockets()
    satellite = SatelliteLink(here, is_first=True)
    main = SatelliteLink(there, is_first=False, accept=echo)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(satellite.run)
        tasks.start_soon(main.run)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(SECONDS):
            yield satellite, here
        await here.cut()
        await there.cut()


async def whole(stream: LinkStream, size: int) -> bytes:
    """Everything that comes, up to a size."""
    data = b""
    while len(data) < size:
        data += await stream.receive()
    return data


async def test_streams_carry_more_than_their_window_each_on_its_own() -> None:
    """What one carries never gets into another, however large it is."""
    sent = {number: bytes([number]) * (3 * WINDOW) for number in range(1, 5)}
    got: dict[int, bytes] = {}

    async def exchange(link: SatelliteLink, number: int) -> None:
        stream = await link.open({})
        async with stream, anyio.create_task_group() as tasks:
            tasks.start_soon(stream.send, sent[number])
            got[number] = await whole(stream, len(sent[number]))

    async with linked() as (link, _), anyio.create_task_group() as tasks:
        for number in sent:
            tasks.start_soon(exchange, link, number)
    assert got == sent


async def test_stream_that_is_not_read_does_not_hold_up_others() -> None:
    """Its window is full; the link is not."""
    async with linked() as (link, _), anyio.create_task_group() as tasks:
        full = await link.open({})
        tasks.start_soon(full.send, b"x" * (5 * WINDOW))
        await anyio.wait_all_tasks_blocked()
        other = await link.open({})
        await other.send(b"hello")
        assert await other.receive() == b"hello"
        tasks.cancel_scope.cancel()


async def test_who_waits_for_bytes_gets_them_after_the_other_side_had_no_room() -> None:
    """A large request fills the window while its answer is waited for: that must not lose the answer."""
    here, there = sockets()
    answered = anyio.Event()

    async def answer(stream: LinkStream, _facts: bytes) -> None:
        await whole(stream, 3 * WINDOW)
        await stream.send(b"done")
        await answered.wait()

    link, main = SatelliteLink(here, is_first=True), SatelliteLink(there, is_first=False, accept=answer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        tasks.start_soon(main.run)
        await anyio.wait_all_tasks_blocked()
        stream = await link.open({})

        async def receive() -> None:
            assert await stream.receive() == b"done"
            answered.set()

        tasks.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(SECONDS):
            await stream.send(b"x" * (3 * WINDOW))
            await answered.wait()
        tasks.cancel_scope.cancel()
    await here.cut()
    await there.cut()


async def test_end_and_cut_are_told_apart() -> None:
    """After an end everything has arrived; after a cut nobody knows."""
    async with linked() as (link, socket):
        ended = await link.open({})
        await ended.send_eof()
        with pytest.raises(anyio.EndOfStream):
            await ended.receive()
        cut = await link.open({})
        await socket.cut()
        with pytest.raises(anyio.BrokenResourceError):
            await cut.receive()
        with pytest.raises(anyio.BrokenResourceError):
            await cut.send(b"more")
        with pytest.raises(anyio.BrokenResourceError):
            await link.open({})
        with pytest.raises(Unavailable):
            await link.ask(do="something")


async def test_question_without_an_answer_is_uncertain() -> None:
    """It may have been done: whoever asked must not take it for refused."""
    here, there = sockets()
    link = SatelliteLink(here, is_first=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(Uncertain):
            await link.ask(0.01, do="wake")
        await here.cut()
        await there.cut()


def frame(kind: int, number: int, data: bytes = b"") -> bytes:
    """A frame."""
    return HEAD.pack(kind, number) + data


async def ended_by(*frames: bytes) -> bool:
    """Whether these frames of the other side end a link as broken."""
    here, there = sockets()
    link = SatelliteLink(there, is_first=False, accept=echo, told=lambda _: None)
    for each in frames:
        await here.send(each)
    await here.cut()
    try:
        with anyio.fail_after(SECONDS):
            await link.run()
    except BrokenProtocol:
        return True
    finally:
        await there.cut()
    return False


@pytest.mark.parametrize(
    "frames",
    [
        (b"",),
        (b"\x02",),
        (frame(99, 1),),
        (frame(FrameKind.OPEN, 2, b"{}"),),
        (frame(FrameKind.OPEN, 0, b"{}"),),
        (frame(FrameKind.OPEN, 1, b"{}"), frame(FrameKind.OPEN, 1, b"{}")),
        (frame(FrameKind.OPEN, 1, b" " * 300_000),),
        (frame(FrameKind.OPEN, 1, b"{}"), frame(FrameKind.DATA, 1, b"x" * (WINDOW + 1))),
        (frame(FrameKind.OPEN, 1, b"{}"), frame(FrameKind.CREDIT, 1, CREDIT.pack(WINDOW + 1))),
        (frame(FrameKind.OPEN, 1, b"{}"), frame(FrameKind.CREDIT, 1, b"x")),
        (frame(FrameKind.TELL, 0, b"["),),
        (frame(FrameKind.TELL, 0, b"[]"),),
        (frame(FrameKind.ASK, 1, b"{}"),),
        (frame(FrameKind.OPEN, 1, b"{}"), frame(FrameKind.TELL, 0, b'{"a":' * 100_000)),
    ],
    ids=range(14),
)
async def test_frame_against_the_protocol_ends_the_link(frames: tuple[bytes, ...]) -> None:
    """What cannot be meant is not guessed at, and does not fill our memory."""
    assert await ended_by(*frames)


async def test_frames_of_streams_that_are_over_are_passed_over() -> None:
    """They crossed the end of the stream."""
    assert not await ended_by(frame(FrameKind.DATA, 7, b"x"), frame(FrameKind.RESET, 9), frame(FrameKind.ANSWER, 3))


@settings(max_examples=examples(200))
@given(st.lists(st.binary(max_size=40) | st.builds(frame, st.integers(0, 9), st.integers(0, 5), st.binary(max_size=9))))
def test_no_frames_raise_anything_else(frames: list[bytes]) -> None:
    """Whatever a machine sends, its link ends or goes on."""
    anyio.run(ended_by, *frames)


async def test_answer_comes_back_with_what_was_asked() -> None:
    """A short question and its answer, while streams are open."""
    here, there = sockets()

    async def answer(asked: object) -> dict[str, object]:
        return {"asked": json.dumps(asked)}

    asking, answering = SatelliteLink(here, is_first=False), SatelliteLink(there, is_first=True, answer=answer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        tasks.start_soon(answering.run)
        await anyio.wait_all_tasks_blocked()
        assert await asking.ask(do="it") == {"asked": '{"do": "it"}'}
        await here.cut()
        await there.cut()


async def test_many_questions_wait_for_each_other() -> None:
    """A machine with hundreds of sessions is asked about each when it comes back: that is no attack."""
    here, there = sockets()
    is_free, answered = anyio.Event(), list[int]()

    async def answer(asked: object) -> dict[str, object]:
        await is_free.wait()
        return {"asked": asked}

    async def ask(number: int) -> None:
        await asking.ask(number=number)
        answered.append(number)

    asking, answering = SatelliteLink(here, is_first=False), SatelliteLink(there, is_first=True, answer=answer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        tasks.start_soon(answering.run)
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as questions:
            for number in range(5 * MAX_ASKED):
                questions.start_soon(ask, number)
            await anyio.wait_all_tasks_blocked()
            assert asking.is_open
            is_free.set()
        assert len(answered) == 5 * MAX_ASKED
        await here.cut()
        await there.cut()


async def test_questions_that_nobody_waits_for_count_until_they_are_answered() -> None:
    """The other side still works on them; one more would be too many for it, and is said not to have been asked."""
    here, there = sockets()
    asking, answering = SatelliteLink(here, is_first=False), SatelliteLink(there, is_first=True, answer=_never)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        tasks.start_soon(answering.run)
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as questions:
            for _ in range(MAX_ASKED):
                questions.start_soon(partial(asking.ask, do="wake"))
            await anyio.wait_all_tasks_blocked()
            questions.cancel_scope.cancel()
        with pytest.raises(Unavailable):
            await asking.ask(0.001, do="wake")
        assert asking.is_open
        tasks.cancel_scope.cancel()
    await here.cut()
    await there.cut()


async def _never(_asked: object) -> dict[str, object]:
    await anyio.sleep_forever()
    return {}


async def test_flood_of_streams_ends_the_link() -> None:
    """Each one too many is refused; who goes on without hearing that would fill our memory with refusals."""
    here, there = sockets()
    link = SatelliteLink(StuckSocket(there.stream), is_first=False, accept=echo)
    for number in range(MAX_STREAMS + MAX_REFUSING + 1):
        await here.send(frame(FrameKind.OPEN, 2 * number + 1, b"{}"))
    with pytest.raises(BrokenProtocol), anyio.fail_after(SECONDS):
        await link.run()
    await here.cut()
    await there.cut()


async def test_streams_that_nobody_takes_from_fill_no_memory() -> None:
    """Each may be sent its window, and all of them together less than their windows."""
    here, there = sockets()
    link = SatelliteLink(there, is_first=False, accept=_idle)
    async with anyio.create_task_group() as tasks:

        async def send() -> None:
            for number in range(1, 2 * (MAX_HELD // WINDOW) + 2, 2):
                await here.send(frame(FrameKind.OPEN, number, b"{}"))
                await here.send(frame(FrameKind.DATA, number, b"x" * WINDOW))

        tasks.start_soon(send)
        with pytest.raises(BrokenProtocol), anyio.fail_after(SECONDS):
            await link.run()
        tasks.cancel_scope.cancel()
    await here.cut()
    await there.cut()


async def _idle(stream: LinkStream, _facts: bytes) -> None:
    """Serve a stream until the link breaks, without taking anything from it."""
    with suppress(anyio.BrokenResourceError):
        while True:
            await stream.send(b"x" * WINDOW)


class StuckSocket(Socket):
    """A web socket whose other side takes nothing."""

    async def send(self, data: bytes) -> None:
        """Wait until the other side takes it."""
        del data
        await anyio.sleep_forever()


async def test_link_of_which_the_other_side_takes_nothing_can_be_ended() -> None:
    """A token that is revoked, or a daemon that stops, does not wait for a machine that does not read."""
    here, there = sockets()
    link = SatelliteLink(StuckSocket(there.stream), is_first=True)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run)
            tasks.start_soon(link.open, {})
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    await here.cut()
    await there.cut()
