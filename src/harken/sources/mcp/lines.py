"""Lines from bytes as they arrive, each up to a limit: how MCP is written on a pipe.

Pure, and linear in the bytes however they are cut. A line above the limit is given up and counted, and the stream goes
on.
"""

from __future__ import annotations

from typing import Final

MAX_LINE_BYTES: Final = 8_000_000


class LineSplitter:
    """Cuts one stream into lines; `dropped` counts the lines that were too long."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self.dropped = 0
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_too_long = False

    def feed(self, chunk: bytes) -> list[str]:
        """Take the next bytes and return the lines that they complete, without their ends; blank ones are left out."""
        *ended, rest = chunk.split(b"\n")
        lines: list[str] = []
        for piece in ended:
            self._add(piece)
            line = self._end()
            if line:
                lines.append(line)
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._max_bytes:
            if piece:
                self._pieces.append(piece)
        elif not self._is_too_long:
            self._is_too_long = True
            self.dropped += 1
            self._pieces = []

    def _end(self) -> str:
        line = b"".join(self._pieces)
        self._pieces, self._size, self._is_too_long = [], 0, False
        return line.decode("utf-8", "replace").strip()
