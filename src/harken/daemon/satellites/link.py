"""The link between a satellite and its main daemon: many byte streams, and short questions, over one web socket.

Each message of the web socket is one frame: its kind, the number of its stream, and what it carries. A stream may be
sent so much as the other side has room for; more ends the link, because a side that ignores that would fill our memory.
A link that breaks breaks every stream on it, which is told apart from the end of one: what was on its way may have
arrived or not. Both sides use this module; it knows nothing of Harken's messages.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final, Protocol

import anyio
import msgspec
from anyio.abc import ByteStream, TaskGroup

from harken.errors import HarkenError, Unavailable, Uncertain
from harken.memory import json_bytes

HEAD: Final = struct.Struct("!BI")
CREDIT: Final = struct.Struct("!I")
MAX_CHUNK: Final = 32_768
WINDOW: Final = 256 * 1024  # bytes of a stream that may be on their way
MAX_STREAMS: Final = 2_000
MAX_HELD: Final = 64 << 20  # bytes of all streams that came and were not taken
MAX_FACTS: Final = 256 * 1024
MAX_ASKED: Final = 64  # questions at once, those too of which no answer is waited for any more
MAX_REFUSING: Final = 64  # streams at once that are one too many
ASK_SECONDS: Final = 10.0
MAX_STREAM: Final = (1 << 32) - 1


class FrameKind(IntEnum):
    """What a frame is."""

    OPEN = 1  # a stream begins; carries JSON about where it comes from
    DATA = 2
    END = 3  # nothing more comes on it from this side
    RESET = 4  # it is over, for both sides
    CREDIT = 5  # so many bytes more may be sent on it
    TELL = 6  # JSON that asks for no answer
    ASK = 7  # JSON that does, under a number
    ANSWER = 8


class BrokenProtocol(Exception):
    """The other side does not keep to the protocol: nothing more of it is read."""


class FrameSocket(Protocol):
    """A web socket, as far as a link needs it."""

    async def send(self, data: bytes) -> None:
        """Send one message, whole or not at all when it is cancelled; raises `BrokenResourceError` when it is gone."""
        ...

    async def receive(self) -> bytes:
        """Return the next message; raises `EndOfStream` or `BrokenResourceError` when there is none any more."""
        ...


class LinkStream(ByteStream):
    """One stream of a link."""

    def __init__(self, link: SatelliteLink, number: int) -> None:
        self._link = link
        self.number = number
        self._buffer = bytearray()
        self._room = WINDOW  # bytes that may still be sent
        self._owed = 0  # bytes that were taken here and not told of
        self._has_end = False  # of what comes
        self._is_ended = False  # what goes
        self._is_over = False
        self._is_broken = False
        self._changed = anyio.Event()

    @property
    def is_over(self) -> bool:
        """Whether the other side has ended it for both."""
        return self._is_over

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Return what has come; raises `EndOfStream` at the end, `BrokenResourceError` when the link has broken."""
        while not self._buffer:
            if self._is_broken:
                raise anyio.BrokenResourceError
            if self._has_end or self._is_over:
                raise anyio.EndOfStream
            await self._wait()
        data = bytes(self._buffer[:max_bytes])
        del self._buffer[: len(data)]
        self._link.note_held(-len(data))
        self._owed += len(data)
        if self._owed >= WINDOW // 2 and not self._has_end and not self._is_over:
            owed, self._owed = self._owed, 0
            await self._link.send(FrameKind.CREDIT, self.number, CREDIT.pack(owed))
        return data

    async def send(self, item: bytes) -> None:
        """Send all of it, as the other side has room for it."""
        data = memoryview(item)
        while data:
            while not self._room and not self._is_over:
                await self._wait()
            if self._is_over:
                raise anyio.BrokenResourceError
            if self._is_ended:
                raise anyio.ClosedResourceError
            part = data[: min(self._room, MAX_CHUNK)]
            self._room -= len(part)
            await self._link.send(FrameKind.DATA, self.number, bytes(part))
            data = data[len(part) :]

    async def send_eof(self) -> None:
        """Send nothing more."""
        if not self._is_ended and not self._is_over:
            self._is_ended = True
            await self._link.send(FrameKind.END, self.number)

    async def aclose(self) -> None:
        """End it for both sides."""
        was_over, self._is_over = self._is_over, True
        self._link.forget(self.number)
        self._link.note_held(-len(self._buffer))
        self._buffer.clear()
        self._ring()
        if not was_over:
            with anyio.CancelScope(shield=True), anyio.move_on_after(ASK_SECONDS), suppress(anyio.BrokenResourceError):
                await self._link.send(FrameKind.RESET, self.number)

    def take(self, data: bytes) -> None:
        """Bytes came; more than there was room for breaks the protocol."""
        if self._has_end or len(self._buffer) + self._owed + len(data) > WINDOW:
            raise BrokenProtocol
        self._link.note_held(len(data))
        self._buffer += data
        self._ring()

    def take_credit(self, count: int) -> None:
        """The other side has room for so many bytes more."""
        if count > WINDOW - self._room:
            raise BrokenProtocol
        self._room += count
        self._ring()

    def take_end(self) -> None:
        """Nothing more comes."""
        self._has_end = True
        self._ring()

    def take_reset(self, *, is_broken: bool = False) -> None:
        """It is over; `is_broken`: what was on its way may have arrived or not."""
        self._is_over = True
        self._is_broken = is_broken
        self._ring()

    async def _wait(self) -> None:
        # One side may wait for bytes while the other waits for room: both wait for the same event.
        if self._changed.is_set():
            self._changed = anyio.Event()
        await self._changed.wait()

    def _ring(self) -> None:
        self._changed.set()


Accept = Callable[[LinkStream, bytes], Awaitable[None]]
"""Serves a stream that the other side has opened, with what it says of it."""
Told = Callable[[Mapping[str, Any]], None]
Answer = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, object]]]


class SatelliteLink:
    """One end of a link. `is_first` numbers its streams apart from those of the other end."""

    def __init__(
        self,
        socket: FrameSocket,
        *,
        is_first: bool,
        accept: Accept | None = None,
        told: Told | None = None,
        answer: Answer | None = None,
    ) -> None:
        self._socket = socket
        self._next = 1 if is_first else 2
        self._accept, self._told, self._answer = accept, told, answer
        self._streams: dict[int, LinkStream] = {}
        self._asked: dict[int, _Question] = {}
        self._last_asked = 0
        self._answering = self._refusing = self._held = 0
        self._unasked = anyio.Semaphore(MAX_ASKED)
        self._sending = anyio.Lock(fast_acquire=True)
        self._is_over = False
        self._tasks: TaskGroup | None = None

    @property
    def is_open(self) -> bool:
        """Whether frames are carried."""
        return self._tasks is not None and not self._is_over

    async def run(self) -> None:
        """Carry frames until the web socket is gone; raises `BrokenProtocol` when the other side talks nonsense."""
        is_kept = True
        try:
            async with anyio.create_task_group() as self._tasks:
                try:
                    while True:
                        self._take(await self._socket.receive())
                except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    self.break_off()
                    # What serves a stream ends by itself, now that there is nothing to read or write.
                except BrokenProtocol:
                    is_kept = False
                    self.break_off()
                    # What is being sent may never be taken.
                    self._tasks.cancel_scope.cancel()
        finally:
            self.break_off()
        if not is_kept:
            raise BrokenProtocol

    async def open(self, facts: object) -> LinkStream:
        """Open a stream; raises `BrokenResourceError` when there is no link."""
        number, self._next = self._next, self._next + 2
        if number > MAX_STREAM or len(self._streams) >= MAX_STREAMS or not self.is_open:
            raise anyio.BrokenResourceError
        stream = self._streams[number] = LinkStream(self, number)
        await self.send(FrameKind.OPEN, number, json_bytes(facts))
        return stream

    async def tell(self, **said: object) -> None:
        """Say something that needs no answer."""
        await self.send(FrameKind.TELL, 0, json_bytes(said))

    async def ask(self, seconds: float = ASK_SECONDS, /, **asked: object) -> Mapping[str, Any]:
        """Ask something; raises `Unavailable` when it was not asked, `Uncertain` when there is no answer."""
        if not self.is_open:
            raise Unavailable("The machine is out of reach.", "See: harken machines")
        is_asked, question = False, _Question()
        try:
            with anyio.move_on_after(seconds):
                # The other side takes more of them for an attack.
                await self._unasked.acquire()
                await self._put(question, json_bytes(asked))
                is_asked = True
                await question.answered.wait()
        except anyio.BrokenResourceError as exc:
            raise Uncertain("The machine went out of reach.", "See: harken machines") from exc
        if not is_asked:
            raise Unavailable("The machine has not answered earlier questions.", "See: harken machines")
        if question.answer is None:
            raise Uncertain("The machine did not answer.", "See: harken machines")
        return question.answer

    async def _put(self, question: _Question, asked: bytes) -> None:
        """Send a question. It is open until its answer comes, also when that is not waited for any more."""
        self._last_asked += 1
        number, is_sent = self._last_asked, False
        self._asked[number] = question
        try:
            await self.send(FrameKind.ASK, number, asked)
            is_sent = True
        finally:
            if not is_sent:
                self._close(number)

    def _close(self, number: int) -> _Question | None:
        """A question is open no more: another may be asked."""
        question = self._asked.pop(number, None)
        if question is not None:
            self._unasked.release()
        return question

    def note_held(self, count: int) -> None:
        """So many bytes more, or less, came and were not taken."""
        self._held += count
        if self._held > MAX_HELD:
            raise BrokenProtocol

    async def send(self, kind: FrameKind, number: int, data: bytes = b"") -> None:
        """Send one frame whole; raises `BrokenResourceError` when there is no link."""
        if self._is_over:
            raise anyio.BrokenResourceError
        async with self._sending:
            await self._socket.send(HEAD.pack(kind, number) + data)

    def forget(self, number: int) -> None:
        """A stream is over here."""
        self._streams.pop(number, None)

    def break_off(self) -> None:
        """Carry nothing more: every stream is broken, and nothing else is said."""
        self._is_over = True
        for stream in tuple(self._streams.values()):
            stream.take_reset(is_broken=True)
        self._streams.clear()
        for number in tuple(self._asked):
            if question := self._close(number):
                question.answered.set()

    def _take(self, frame: bytes) -> None:
        if len(frame) < HEAD.size or self._tasks is None:
            raise BrokenProtocol
        kind, number = HEAD.unpack_from(frame)
        data = frame[HEAD.size :]
        match kind:
            case FrameKind.OPEN:
                self._take_open(number, data)
            case FrameKind.TELL if self._told is not None:
                self._told(_object(data))
            case FrameKind.ASK if self._answer is not None:
                self._take_question(number, _object(data))
            case FrameKind.ANSWER:
                if question := self._close(number):
                    question.answer = _object(data)
                    question.answered.set()
            case FrameKind.DATA | FrameKind.END | FrameKind.RESET | FrameKind.CREDIT:
                # One that is unknown was ended here, while this was on its way.
                if stream := self._streams.get(number):
                    self._take_for(stream, kind, data)
            case _:
                raise BrokenProtocol

    def _take_for(self, stream: LinkStream, kind: int, data: bytes) -> None:
        if kind == FrameKind.DATA:
            stream.take(data)
        elif kind == FrameKind.END:
            stream.take_end()
        elif kind == FrameKind.RESET:
            self.forget(stream.number)
            stream.take_reset()
        elif len(data) == CREDIT.size:
            stream.take_credit(*CREDIT.unpack(data))
        else:
            raise BrokenProtocol

    def _take_open(self, number: int, data: bytes) -> None:
        is_theirs = number > 0 and number % 2 != self._next % 2
        if self._accept is None or not is_theirs or number in self._streams or len(data) > MAX_FACTS:
            raise BrokenProtocol
        if self._tasks is None:
            return
        if len(self._streams) >= MAX_STREAMS:
            if self._refusing >= MAX_REFUSING:
                raise BrokenProtocol
            self._refusing += 1
            self._tasks.start_soon(self._refuse, number)
            return
        stream = self._streams[number] = LinkStream(self, number)
        self._tasks.start_soon(self._serve, self._accept, stream, data)

    async def _serve(self, accept: Accept, stream: LinkStream, facts: bytes) -> None:
        try:
            # One that was given up before it began was held up: what it says was so then, and is no news now.
            if not stream.is_over:
                await accept(stream, facts)
        finally:
            await stream.aclose()

    async def _refuse(self, number: int) -> None:
        try:
            with suppress(anyio.BrokenResourceError):
                await self.send(FrameKind.RESET, number)
        finally:
            self._refusing -= 1

    def _take_question(self, number: int, asked: Mapping[str, Any]) -> None:
        if self._answering >= MAX_ASKED or self._tasks is None or self._answer is None:
            raise BrokenProtocol
        self._answering += 1
        self._tasks.start_soon(self._reply, self._answer, number, asked)

    async def _reply(self, answer: Answer, number: int, asked: Mapping[str, Any]) -> None:
        try:
            said = await answer(asked)
        except HarkenError as exc:
            said = {"error": exc.as_dict()}
        finally:
            self._answering -= 1
        with suppress(anyio.BrokenResourceError):
            await self.send(FrameKind.ANSWER, number, json_bytes(said))


class _Question:
    """Something that was asked."""

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.answer: Mapping[str, Any] | None = None


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise BrokenProtocol from exc
    if not isinstance(value, dict):
        raise BrokenProtocol
    return value
