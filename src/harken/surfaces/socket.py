"""Lines over the daemon's socket, and the command line's connection: one JSON line asks, one JSON line answers.

Reading lines is bounded, and indifferent to what a line says. Waits of a connection run beside its other calls, and end
with it: a person who presses Ctrl-C during `wait` has consumed nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteStream

from harken.budget import MAX_LINE
from harken.errors import HarkenError, UserError
from harken.memory import json_bytes, out_of_memory
from harken.verbs.table import LONG_VERBS, call
from harken.verbs.verb import CallContext

MAX_WAITS = 64


class Request(msgspec.Struct):
    """One call."""

    id: int | str
    method: str
    params: dict[str, object] = {}


class CallConnection:
    """Serves one client of the command line until it goes away."""

    def __init__(self, stream: ByteStream, lines: LineReader, context: CallContext) -> None:
        self._stream = stream
        self._lines = lines
        self._context = context
        self._sending = anyio.Lock(fast_acquire=True)
        self._slots = anyio.Semaphore(MAX_WAITS)

    async def serve(self) -> None:
        """Answer calls until the client hangs up, then cancel what is still running."""
        async with anyio.create_task_group() as tasks:
            while (line := await self._next_line()) is not None:
                if not line.strip():
                    continue
                try:
                    request = msgspec.json.decode(line, type=Request)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
                    await self._send({"id": None, "error": _not_a_request(exc).as_dict()})
                    continue
                if request.method in LONG_VERBS:
                    await self._slots.acquire()
                    tasks.start_soon(self._answer_later, request)
                else:
                    # Short, so nobody hangs up in between; a task of its own would cost more than most of them.
                    await self._answer(request)
            tasks.cancel_scope.cancel()

    async def _next_line(self) -> bytes | None:
        try:
            return await self._lines.read()
        except LineTooLong:
            error = UserError("The request is too long.", "Send less at once.")
            await self._send({"id": None, "error": error.as_dict()})
            return None

    async def _answer_later(self, request: Request) -> None:
        try:
            await self._answer(request)
        finally:
            self._slots.release()

    async def _answer(self, request: Request) -> None:
        # Each call carries its own offers: undoing one must not undo what another has shown.
        context = replace(self._context, request=f"{self._context.session}/{request.id}")
        try:
            result = await call(context, request.method, request.params)
        except HarkenError as exc:
            await self._send({"id": request.id, "error": exc.as_dict()})
        else:
            await self._send_result(request.id, result)

    async def _send_result(self, identifier: object, result: object) -> None:
        try:
            await self._send({"id": identifier, "result": result})
        except MemoryError:
            await self._send({"id": identifier, "error": out_of_memory().as_dict()})

    async def _send(self, message: dict[str, object]) -> None:
        async with self._sending:
            try:
                await self._stream.send(json_bytes(message) + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


def _not_a_request(reason: Exception) -> UserError:
    return UserError(f"This is not a request ({reason}).", "Give id, method and params as one line of JSON.")


CHUNK = 65_536
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # of a letter that is written in two; its other half may be missing


class LineTooLong(Exception):
    """A line went over the bound; the rest of the stream cannot be trusted."""


class LineReader:
    """Reads newline-delimited frames."""

    def __init__(self, stream: ByteReceiveStream, max_line: int = MAX_LINE) -> None:
        self._stream = stream
        self._max_line = max_line
        self._buffer = bytearray()
        self._searched = 0

    async def take(self, count: int) -> bytes | None:
        """Return exactly so many bytes, or None when the stream ends before."""
        while len(self._buffer) < count:
            try:
                self._buffer += await self._stream.receive(CHUNK)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return None
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        self._searched = 0
        return taken

    async def read(self) -> bytes | None:
        """Return the next line without its end, or None at the end of the stream. A last line without end is lost."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line
            # Remember how far was searched: a large line in small chunks stays linear.
            self._searched = len(self._buffer)
            if self._searched > self._max_line:
                raise LineTooLong
            try:
                self._buffer += await self._stream.receive(CHUNK)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return None


def sound_json(data: bytes) -> bytes:
    """Return JSON in which every text has UTF-8: in place of half a surrogate pair stands a question mark.

    JavaScript writes such halves when it cuts a text, and strict readers then refuse the whole. What is not JSON at all
    comes back as it is.
    """
    if not _HALF.search(data):
        return data
    try:
        return json.dumps(json.loads(data.decode("utf-8", "replace")), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return data
