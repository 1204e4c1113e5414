"""One connection of the Agent Client Protocol, for either side: a JSON value a line, requests, answers, notifications.

It knows how things are said, not what: the methods are in `protocol.py`. Everything is bounded: a line, the requests of
the other side that are worked on at once, the time that a line may take to be written. What is no object of JSON is
passed over, because programs print what they should not. Notifications are handed on in order, one at a time, before
the answers that came after them: the other side waits while one is worked on.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Final, Protocol

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream, TaskGroup

from harken.acp.protocol import ErrorCode, Fields, Method, fields, text
from harken.errors import HarkenError, Unavailable
from harken.memory import json_bytes, sound_json

MAX_LINE_BYTES: Final = 32 << 20  # as much as the protocol's own libraries take
CHUNK_BYTES: Final = 1 << 16
MAX_ASKED: Final = 100  # requests of the other side at once
WRITE_SECONDS: Final = 30.0
CALL_OFF_SECONDS: Final = 1.0
MAX_MESSAGE_CHARS: Final = 500
DEAF: Final = "The other side does not read what it is told."

HUNG_UP: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)

_log = logging.getLogger("harken.acp")


class AcpError(Unavailable):
    """The other side answered with an error, or is to be answered with one."""

    def __init__(self, number: int, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.number = number


class AcpPeer(Protocol):
    """What the other side of a connection reaches here."""

    async def asked(self, method: str, params: Fields) -> object:
        """Return the result of a request; raises `AcpError` for what is refused. Cancelled when it is called off."""
        ...

    async def told(self, method: str, params: Fields) -> None:
        """Take a notification. Nothing more is read before it returns, so it asks nothing of the other side."""
        ...


class AcpConnection:
    """One side of a connection. `run` reads; `call` and `tell` may be used by many tasks while it does."""

    def __init__(self, incoming: ByteReceiveStream, outgoing: ByteSendStream, peer: AcpPeer) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._peer = peer
        self._writing = anyio.Lock()
        self._numbers = count(1)
        self._calls: dict[int, _AcpCall] = {}
        self._asked: dict[str, anyio.CancelScope] = {}  # what the other side waits for, by its id as JSON
        self._is_deaf = False  # a line could not be written whole
        self.over = anyio.Event()  # the other side has hung up
        self.because = ""  # why, as far as it is known

    async def run(self) -> None:
        """Read until the other side hangs up; calls that still wait for an answer then hear so."""
        try:
            async with anyio.create_task_group() as tasks:
                async for line in lines(self._incoming):
                    if line is None:
                        self.because = "a line was too long"
                        break
                    await self._hear(line, tasks)
                tasks.cancel_scope.cancel()
        finally:
            self.over.set()
            for call in self._calls.values():
                call.answered.set()

    async def call(self, method: str, params: Fields, *, seconds: float | None = None) -> Fields:
        """Ask, and return the result: an object, empty for any other.

        Raises `AcpError` for an error, `Unavailable` when no answer comes. Cancelled, it is called off.
        """
        number, call = next(self._numbers), _AcpCall()
        self._calls[number] = call
        try:
            with anyio.fail_after(seconds):
                await self._send({"id": number, "method": method, "params": params})
                if not self.over.is_set():
                    await call.answered.wait()
        except TimeoutError as exc:
            raise Unavailable(f"{method} was not answered in {seconds:.0f} s.") from exc
        finally:
            del self._calls[number]
            if not call.answered.is_set() and not self.over.is_set():
                await self._call_off(number)
        if call.answer is None:
            raise Unavailable(f"The other side ended before it answered {method}.")
        error = call.answer.get("error")
        if isinstance(error, Mapping):
            said = text(error, "message")[:MAX_MESSAGE_CHARS] or f"{method} failed."
            raise AcpError(_number(error.get("code")), said)
        return fields(call.answer, "result")

    async def tell(self, method: str, params: Fields) -> None:
        """Send a notification; raises `Unavailable` when the other side is gone."""
        await self._send({"method": method, "params": params})

    async def _call_off(self, number: int) -> None:
        with anyio.move_on_after(CALL_OFF_SECONDS, shield=True):
            try:
                await self.tell(Method.CANCEL_REQUEST, {"requestId": number})
            except Unavailable:
                return

    async def _send(self, said: Mapping[str, object]) -> None:
        line = json_bytes({"jsonrpc": "2.0", **said}) + b"\n"
        async with self._writing:
            if self._is_deaf:
                raise Unavailable(DEAF)
            # Whole or not at all: half a line, of a call that was cancelled, would spoil the next one.
            with anyio.CancelScope(shield=True):
                try:
                    with anyio.fail_after(WRITE_SECONDS):
                        await self._outgoing.send(line)
                except TimeoutError as exc:
                    self._is_deaf = True
                    raise Unavailable(DEAF) from exc
                except (*HUNG_UP, OSError) as exc:
                    raise Unavailable("The other side is gone.") from exc

    async def _hear(self, line: bytes, tasks: TaskGroup) -> None:
        said = decoded(line)
        if said is None:
            if line.strip():
                _log.debug("passed over %d bytes that are no message", len(line))
            return
        method, params = text(said, "method"), fields(said, "params")
        if not method:
            self._take_answer(said)
        elif "id" in said:
            self._work_on(said["id"], method, params, tasks)
        elif method == Method.CANCEL_REQUEST:
            if scope := self._asked.get(_key(params.get("requestId"))):
                scope.cancel()
        else:
            await self._peer.told(method, params)

    def _take_answer(self, said: Fields) -> None:
        number = said.get("id")
        call = self._calls.get(number) if isinstance(number, int) else None
        if call is not None and ("result" in said or "error" in said):
            call.answer = said
            call.answered.set()

    def _work_on(self, request: object, method: str, params: Fields, tasks: TaskGroup) -> None:
        key = _key(request)
        if len(self._asked) >= MAX_ASKED or key in self._asked:
            why = "Too many requests at once." if key not in self._asked else "This id is in use."
            tasks.start_soon(self._answer, request, AcpError(ErrorCode.INVALID, why))
            return
        scope = self._asked[key] = anyio.CancelScope()
        tasks.start_soon(self._serve, request, method, params, scope)

    async def _serve(self, request: object, method: str, params: Fields, scope: anyio.CancelScope) -> None:
        answer: object = AcpError(ErrorCode.CANCELLED, "The request was cancelled.")
        try:
            with scope:
                try:
                    answer = await self._peer.asked(method, params)
                except AcpError as exc:
                    answer = exc
                except HarkenError as exc:
                    answer = AcpError(ErrorCode.INTERNAL, exc.message)
        finally:
            del self._asked[_key(request)]
        await self._answer(request, answer)

    async def _answer(self, request: object, answer: object) -> None:
        if isinstance(answer, AcpError):
            said: dict[str, object] = {"error": {"code": answer.number, "message": answer.message}}
        else:
            said = {"result": answer}
        try:
            await self._send({"id": request, **said})
        except Unavailable:
            return  # it waits no more


class _AcpCall:
    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.answer: Fields | None = None


def decoded(line: bytes) -> Fields | None:
    """Return the object of JSON that a line is; None for anything else."""
    try:
        value = msgspec.json.decode(sound_json(line))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


async def lines(stream: ByteReceiveStream, max_bytes: int = MAX_LINE_BYTES) -> AsyncIterator[bytes | None]:
    """Yield lines without their ends; None, and nothing after it, for one that is too long."""
    rest = bytearray()
    while True:
        try:
            chunk = await stream.receive(CHUNK_BYTES)
        except (*HUNG_UP, OSError):
            break
        *whole, last = chunk.split(b"\n")
        for part in whole:
            rest += part
            if len(rest) > max_bytes:
                break
            yield bytes(rest)
            rest.clear()
        rest += last
        if len(rest) > max_bytes:
            yield None
            return
    if rest:
        yield bytes(rest)


def _number(code: object) -> int:
    return code if isinstance(code, int) else ErrorCode.INTERNAL


def _key(request: object) -> str:
    """Return what tells ids apart: 1 is another one than "1"."""
    return repr(request)
