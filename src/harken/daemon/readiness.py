"""Whether the daemon can do its work: something can be stored, and its socket answers.

Everyone on the machine may ask, so asking is cheap: one look at a time, and what it found holds for a moment. It is not
health: that is whether the process runs at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import SocketStream

from harken.errors import HarkenError
from harken.memory import json_bytes

LOOK_SECONDS: Final = 3.0
HOLDS_SECONDS: Final = 1.0
LOOPBACK: Final = "127.0.0.1"
STORE, SOCKET, STARTING = "store", "socket", "starting"
ASKED: Final = b'{"id":1,"method":"mailboxes","params":{}}\n'


class Readiness:
    """Looks, and remembers for a moment what it saw."""

    def __init__(self, check_writable: Callable[[], Awaitable[None]]) -> None:
        self._check_writable = check_writable
        self._lock = anyio.Lock()
        self._address = ""
        self._reason = STARTING
        self._looked_at = float("-inf")

    def serves_at(self, address: str) -> None:
        """Know where the daemon's own socket is."""
        self._address = address

    async def reason(self) -> str:
        """Return in a word why it is not ready; empty when it is."""
        async with self._lock:
            if anyio.current_time() - self._looked_at > HOLDS_SECONDS:
                self._reason = await self._look()
                self._looked_at = anyio.current_time()
            return self._reason

    async def _look(self) -> str:
        if not self._address:
            return STARTING
        if not await self._is_writable():
            return STORE
        return "" if await self._is_answering() else SOCKET

    async def _is_writable(self) -> bool:
        with anyio.move_on_after(LOOK_SECONDS):
            try:
                await self._check_writable()
            except HarkenError:
                return False
            return True
        return False

    async def _is_answering(self) -> bool:
        """Whether a connection is taken and a question on it answered: a full backlog would take it too."""
        kind, _, rest = self._address.partition(":")
        with anyio.move_on_after(LOOK_SECONDS):
            try:
                async with await _connected(kind, rest) as stream:
                    token = rest.split(":", 2)[2] if kind == "tcp" else ""
                    hello = {"harken": 1, "kind": "call", "token": token}
                    await stream.send(json_bytes(hello) + b"\n" + ASKED)
                    return b'"result"' in await stream.receive()
            except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
                return False
        return False


async def _connected(kind: str, rest: str) -> SocketStream:
    if kind == "unix":
        return await anyio.connect_unix(rest)
    return await anyio.connect_tcp(LOOPBACK, int(rest.split(":", 2)[1]))
