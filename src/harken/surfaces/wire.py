"""Lines over a byte stream: the framing of the daemon's socket. Bounded, and indifferent to what a line says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import anyio
from anyio.abc import ByteReceiveStream

from harken.budget import MAX_LINE

if TYPE_CHECKING:
    from starlette.types import Scope

CHUNK = 65_536
HOLDER: Final = "harken.holder"
"""In the state of an HTTP request: the caller that came with a token, once the token was checked."""

CARRIER: Final = "harken.carrier"
"""An extension of an HTTP request: the `HttpCarrier` that it came by."""


ASKED_AT: Final = "harken.asked-at"
"""An extension of an HTTP request: `at`, the monotonic time before which it was not sent, as far as is known."""


class SentAnswer(Protocol):
    """An answer that was written to a connection."""

    @property
    def at(self) -> float:
        """The monotonic time when it was written."""
        ...

    def is_taken(self) -> bool | None:
        """Whether the program at the other end took all of it, as far as this system tells; None: not known yet."""
        ...


class HttpCarrier(Protocol):
    """An HTTP connection, as far as it tells whether answers arrived."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended: what is written now goes nowhere."""
        ...

    def attend(self) -> None:
        """Prepare to say whether the answer to the request that came last is taken; comes before `sent`."""
        ...

    def sent(self) -> SentAnswer:
        """Return what stands for all that was written until now."""
        ...


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """All of an answer to an HTTP request; the length of its body is not among the headers."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


Answering = Callable[[], Awaitable[WholeAnswer]]


@runtime_checkable
class WholeRequests(Protocol):
    """An ASGI application that answers some requests in one step where all of them is here: those of programs.

    It answers them as it would by the steps of ASGI, which cost more than what most of them ask for.
    """

    def begin(self, scope: Scope, body: bytes) -> Answering | None:
        """Return what answers a request; None where that is left to the steps of ASGI."""
        ...


class LineTooLong(Exception):
    """A line went over the bound; the rest of the stream cannot be trusted."""


class LineReader:
    """Reads newline-delimited frames."""

    def __init__(self, stream: ByteReceiveStream, max_line: int = MAX_LINE) -> None:
        self._stream = stream
        self._max_line = max_line
        self._buffer = bytearray()
        self._searched = 0
        self.is_cut = False  # the stream broke: what was on its way may have arrived or not

    def rest(self) -> bytes:
        """Return what was read and not given out, and let go of it."""
        taken, self._buffer, self._searched = bytes(self._buffer), bytearray(), 0
        return taken

    async def _fill(self) -> bool:
        try:
            self._buffer += await self._stream.receive(CHUNK)
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return False
        except anyio.BrokenResourceError:
            self.is_cut = True
            return False
        return True

    async def take(self, count: int) -> bytes | None:
        """Return exactly so many bytes, or None when the stream ends before."""
        while len(self._buffer) < count:
            if not await self._fill():
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
            if not await self._fill():
                return None
