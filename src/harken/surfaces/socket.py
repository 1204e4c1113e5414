"""The command line's connection: one JSON line asks, one JSON line answers.

Waits of a connection run beside its other calls, and end with it: a person who presses Ctrl-C during `wait` has
consumed nothing.
"""

from __future__ import annotations

from dataclasses import replace

import anyio
import msgspec
from anyio.abc import ByteStream

from harken.errors import HarkenError, UserError
from harken.memory import json_bytes, out_of_memory
from harken.surfaces.wire import LineReader, LineTooLong
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
