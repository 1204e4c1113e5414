"""The command line's connection: one JSON line asks, one JSON line answers.

Calls of a connection run side by side, and all of them end with it: a person who presses Ctrl-C during `wait` has
consumed nothing.
"""

from __future__ import annotations

import anyio
import msgspec
from anyio.abc import ByteStream

from harken.errors import HarkenError, UserError
from harken.surfaces.calls import Desk, call
from harken.surfaces.wire import Lines, LineTooLong

MAX_CALLS = 64


class Request(msgspec.Struct):
    """One call."""

    id: int | str
    method: str
    params: dict[str, object] = {}


class CallConnection:
    """Serves one client of the command line until it goes away."""

    def __init__(self, stream: ByteStream, lines: Lines, desk: Desk) -> None:
        self._stream = stream
        self._lines = lines
        self._desk = desk
        self._sending = anyio.Lock()
        self._slots = anyio.Semaphore(MAX_CALLS)

    async def serve(self) -> None:
        """Answer calls until the client hangs up, then cancel what is still running."""
        async with anyio.create_task_group() as tasks:
            while (line := await self._next_line()) is not None:
                if line.strip():
                    await self._slots.acquire()
                    tasks.start_soon(self._answer, line)
            tasks.cancel_scope.cancel()

    async def _next_line(self) -> bytes | None:
        try:
            return await self._lines.read()
        except LineTooLong:
            error = UserError("The request is too long.", "Send less at once.")
            await self._send({"id": None, "error": error.as_dict()})
            return None

    async def _answer(self, line: bytes) -> None:
        try:
            await self._send(await self._result(line))
        finally:
            self._slots.release()

    async def _result(self, line: bytes) -> dict[str, object]:
        try:
            request = msgspec.json.decode(line, type=Request)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            error = UserError(f"This is not a request ({exc}).", "Give id, method and params as one line of JSON.")
            return {"id": None, "error": error.as_dict()}
        try:
            return {"id": request.id, "result": await call(self._desk, request.method, request.params)}
        except HarkenError as exc:
            return {"id": request.id, "error": exc.as_dict()}

    async def _send(self, message: dict[str, object]) -> None:
        async with self._sending:
            try:
                await self._stream.send(msgspec.json.encode(message) + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
