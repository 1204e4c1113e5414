"""The way to the app server that Codex's terminals share: a web socket on a unix socket.

The protocol is the library's, the bytes go through anyio. Apart from `appserver.py`, which imports it on use: most
daemons never meet such a server, and the library is 3 MB in each of them.
"""

from __future__ import annotations

import anyio
from anyio.abc import ByteStream
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidState
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from harken.errors import Unavailable


class WebSocket:
    """One JSON value a message, over a web socket on a unix socket."""

    def __init__(self, stream: ByteStream, *, max_bytes: int) -> None:
        self._stream = stream
        self._protocol = ClientProtocol(parse_uri("ws://localhost/"), max_size=max_bytes)
        self._frames: list[Frame] = []
        self._sending = anyio.Lock()

    async def open(self, seconds: float) -> None:
        """Shake hands within this time; raises `Unavailable` when the other side does not."""
        try:
            self._protocol.send_request(self._protocol.connect())
            with anyio.fail_after(seconds):
                await self._flush()
                while self._protocol.state is State.CONNECTING:
                    await self._feed()
        except (anyio.EndOfStream, OSError, InvalidHandshake, anyio.BrokenResourceError) as exc:
            raise Unavailable("Codex's shared app server did not take the connection.") from exc
        if self._protocol.handshake_exc is not None:
            raise Unavailable("Codex's shared app server refused the connection.")

    async def send(self, text: str) -> None:
        """Send one text."""
        try:
            self._protocol.send_text(text.encode())
        except InvalidState as exc:
            raise anyio.ClosedResourceError from exc
        await self._flush()

    async def receive(self) -> str:
        """Return the next text."""
        parts: list[bytes] = []
        while True:
            while not self._frames:
                await self._feed()
            frame = self._frames.pop(0)
            if frame.opcode is Opcode.CLOSE:
                raise anyio.EndOfStream
            if frame.opcode in {Opcode.TEXT, Opcode.CONT}:
                parts.append(bytes(frame.data))
                if frame.fin:
                    return b"".join(parts).decode("utf-8", "replace")

    async def _feed(self) -> None:
        self._protocol.receive_data(await self._stream.receive())
        self._frames += [event for event in self._protocol.events_received() if isinstance(event, Frame)]
        await self._flush()

    async def _flush(self) -> None:
        # What is received may want an answer while another task sends.
        async with self._sending:
            for data in self._protocol.data_to_send():
                if data:
                    await self._stream.send(data)
