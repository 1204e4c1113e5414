"""The way out of a connection: answers of the SDK, our own errors, and hints, as whole lines in one order.

It is the stream that the SDK writes to. One task takes the lines to the socket, so that a call that is cancelled
can never leave half a line behind. Answers wait for room; hints are dropped when the client does not keep up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import anyio
import mcp_types as types
from anyio.abc import ByteSendStream
from mcp.shared.message import SessionMessage

from harken.memory import json_bytes
from harken.surfaces.socket import MAX_LINE

OUTGOING_LIMIT = 256


def request_key(request_id: object) -> str:
    """Return a text for a JSON-RPC id; 1 and "1" are different requests."""
    return json_bytes(request_id).decode()


@dataclass(frozen=True, slots=True)
class _Line:
    """A line on its way out; `answers` is the request it is the answer to."""

    data: bytes
    answers: str | None = None


class Outlet:
    """Takes lines to a socket. It tells whose answer was written, and whose was lost because it is too large."""

    def __init__(self, stream: ByteSendStream, answered: Callable[[str], None], lost: Callable[[str], None]) -> None:
        self._stream = stream
        self._answered = answered
        self._lost = lost
        self._to_wire, self._from_us = anyio.create_memory_object_stream[_Line](OUTGOING_LIMIT)

    async def run(self) -> None:
        """Write lines until the other side is gone."""
        async for line in self._from_us:
            try:
                await self._stream.send(line.data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
            if line.answers is not None:
                self._answered(line.answers)

    async def send(self, item: SessionMessage, /) -> None:
        """Take a message of the SDK."""
        message = item.message
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        answers = None
        # An error is an answer too: its request is no longer open.
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            answers = request_key(message.id)
            if len(data) >= MAX_LINE:
                # No edge would relay it, and what it carries must not count as handed over.
                self._lost(answers)
                await self.send_error(
                    message.id, types.INTERNAL_ERROR, "The answer is too large; ask for less at once."
                )
                return
        await self._to_wire.send(_Line(data, answers))

    async def send_error(self, request_id: object, code: int, text: str) -> None:
        """Answer a request that the SDK does not get to see."""
        message = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}
        await self._to_wire.send(_Line(json_bytes(message) + b"\n"))

    def hint(self, method: str, params: Mapping[str, object]) -> bool:
        """Send a notification if there is room for it now; return whether there was."""
        line = json_bytes({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n"
        try:
            self._to_wire.send_nowait(_Line(line))
        except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return False
        return True

    def close(self) -> None:
        """Take no more lines."""
        self._to_wire.close()
        self._from_us.close()

    async def aclose(self) -> None:
        """Do nothing: the SDK closes its stream before our own last lines are out. `close` ends it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        return
