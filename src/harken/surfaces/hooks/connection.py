"""One run of a hook over the socket: its payload in, what it prints out, and whether that was printed.

The hook says `+` once it has printed. Without it (the host ended the hook, or it was too slow) nobody got the text,
and what it carried is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from anyio.abc import ByteStream

from harken.hosts.hook import Hello
from harken.surfaces.hooks.handler import MAX_PAYLOAD, HookHandler
from harken.surfaces.wire import LineReader

PAYLOAD_SECONDS = 5.0
PRINTED_SECONDS = 10.0


class HookConnection:
    """Serves one run."""

    def __init__(self, stream: ByteStream, lines: LineReader, handler: HookHandler) -> None:
        self._stream = stream
        self._lines = lines
        self._handler = handler

    async def serve(self, hello: Hello, pids: Sequence[int]) -> None:
        """Hear the hook and answer it."""
        payload: bytes | None = None
        with anyio.move_on_after(PAYLOAD_SECONDS):
            payload = await self._lines.take(min(hello.payload, MAX_PAYLOAD))
        if payload is None:
            return
        result = await self._handler.hear(hello, payload, pids)
        answer = result.answer
        out, err = answer.stdout.encode("utf-8", "replace"), answer.stderr.encode("utf-8", "replace")
        is_printed, is_silent = False, True
        try:
            await self._stream.send(f"{answer.exit_code} {len(out)} {len(err)}\n".encode() + out + err)
            with anyio.move_on_after(PRINTED_SECONDS):
                is_printed = await self._lines.take(1) == b"+"
                is_silent = False
            if is_printed:
                self._handler.confirm(result)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            is_silent = False
        finally:
            if not is_printed:
                with anyio.CancelScope(shield=True):
                    # One that is still there and says nothing may have printed it.
                    await self._handler.take_back(result, is_unknown=is_silent)
