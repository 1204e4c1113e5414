"""Server-sent events, read as bytes arrive: the event stream format of the WHATWG specification.

Pure: bytes in, events out; it opens nothing and knows nothing of MCP. Lines end with CR, LF or CRLF, also when a chunk
ends between the two; time is linear in the bytes, however they are cut. An event above the limit is given up and
counted, and the stream goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_EVENT_BYTES: Final = 8_000_000
MAX_ID_CHARS: Final = 4_096  # it is sent back in a header
MAX_RETRY_DIGITS: Final = 9

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `name` is `message` where the server named none; `id` is its own, not one of an event before it."""

    data: str
    name: str = "message"
    id: str = ""


class EventParser:
    """Reads one stream. `last_id` and `retry_ms` are what the server said last, for the next connection."""

    def __init__(self, *, last_id: str = "", max_bytes: int = MAX_EVENT_BYTES) -> None:
        self.last_id = last_id
        self.retry_ms: int | None = None
        self.dropped = 0
        self._max_bytes = max_bytes
        self._line: list[bytes] = []  # pieces of the line that has not ended
        self._line_bytes = 0
        self._is_after_cr = False
        self._start: bytes | None = b""  # what may become a byte order mark; None once that is settled
        self._data: list[bytes] = []
        self._event_bytes = 0
        self._name = ""
        self._id: str | None = None  # of the event that is being read
        self._is_too_long = False

    @property
    def kept(self) -> Sequence[bytes]:
        """What is kept of the line that has not ended."""
        return self._line

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes and return the events that they complete."""
        if self._start is not None:
            chunk = self._start + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._start = chunk
                return []
            self._start = None
            chunk = chunk.removeprefix(_BOM)
        if self._is_after_cr and chunk:
            self._is_after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        events: list[Event] = []
        # Bytes are split at CR, LF and CRLF only, which is what is wanted here.
        for line in chunk.splitlines(keepends=True):
            text = line.rstrip(b"\r\n")
            self._add(text)
            if len(text) == len(line):
                break  # the last one, which has not ended
            event = self._end_line()
            if event is not None:
                events.append(event)
        self._is_after_cr = chunk.endswith(b"\r")
        return events

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._line_bytes += len(piece)
        if self._event_bytes + self._line_bytes <= self._max_bytes:
            self._line.append(piece)
            return
        # Kept no longer, but its end must still be found, and whether it is a comment.
        self._line = [self._line[0][:1] if self._line else piece[:1]]
        if self._line[0] != b":":
            self._give_up()

    def _end_line(self) -> Event | None:
        if not self._line:
            return self._dispatch()
        line = self._line[0] if len(self._line) == 1 else b"".join(self._line)
        size, self._line_bytes = self._line_bytes, 0
        self._line = []
        if line.startswith(b":"):
            return None
        self._event_bytes += size
        if not self._is_too_long:
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                self._data.append(value)
            else:
                self._take(field, value.decode("utf-8", "replace"))
        return None

    def _take(self, field: bytes, value: str) -> None:
        if field == b"event":
            self._name = value
        elif field == b"id":
            # What could not be sent back in a header is of no use as a position.
            if "\0" not in value and len(value) <= MAX_ID_CHARS:
                self._id = value
        elif field == b"retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value) if len(value) <= MAX_RETRY_DIGITS else 10**MAX_RETRY_DIGITS

    def _dispatch(self) -> Event | None:
        data, name, own_id = self._data, self._name or "message", self._id
        is_whole = not self._is_too_long
        self._data, self._name, self._id, self._event_bytes, self._is_too_long = [], "", None, 0, False
        if own_id is not None:
            # Only now: an event that broke off must be sent again. One that was too long need not be.
            self.last_id = own_id
        if not data or not is_whole:
            return None
        # A line end is no part of any letter, so the lines are decoded as well together as one by one.
        return Event(b"\n".join(data).decode("utf-8", "replace"), name, own_id or "")

    def _give_up(self) -> None:
        if not self._is_too_long:
            self._is_too_long = True
            self.dropped += 1
            self._data = []
