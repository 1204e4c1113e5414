"""HTTP as both HTTP links need it: one client per server, its event streams, and every failure as a `LinkTrouble`.

Nothing that came from the server and nothing secret becomes part of a reason. Redirects are followed only within the
server itself: anywhere else the headers are not meant for. `EventParser` reads what the standard calls server-sent
events, within bounds; `SseStream` gives them the identity that their ids promise and hands them to a receiver.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final, Self

import httpx2

from harken.sources.mcp.link import LinkLost, LinkReceiver, bounded
from harken.sources.mcp.protocol import Announcement, RpcAnswer, RpcFrame, RpcRequest, identified, read_frame
from harken.sources.mcp.settings import McpSettings

MAX_BODY_BYTES: Final = 8_000_000
MAX_REDIRECTS: Final = 3
MAX_CAUSES: Final = 10

_MOVED: Final = frozenset({301, 302, 307, 308})
_REFUSED: Final = frozenset({401, 403})

MAX_EVENT_BYTES: Final = 8_000_000
MAX_ID_CHARS: Final = 4_096  # it is sent back in a header
MAX_RETRY_DIGITS: Final = 9

_BOM: Final = b"\xef\xbb\xbf"

Position = Callable[[str, str], str | None]
"""Makes a checkpoint of the last event id and the newest cursor, or nothing."""

AT_ONCE: Final = 1_000


class McpWeb:
    """Calls one server."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        url = httpx2.URL(settings.url)
        self._auth = (url.username, url.password) if url.username or url.password else None
        self.url = url.copy_with(username="", password="")
        self._client: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        seconds = self._settings.timeout
        # Without TLS there is nothing to verify, and reading all certificates of the system takes long.
        verify: ssl.SSLContext | bool = self.url.scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client = httpx2.AsyncClient(
            auth=self._auth,
            headers={"Accept-Encoding": "gzip, deflate", **self._settings.headers},
            # Streams are silent for as long as they like: whoever reads one watches it.
            timeout=httpx2.Timeout(seconds, read=None),
            follow_redirects=False,
            verify=verify,
        )
        return self

    async def __aexit__(self, *details: object) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    @asynccontextmanager
    async def call(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Make one request and yield its response, unread; raises `LinkLost`, also for what fails while it is read."""
        client = self._client
        if client is None:
            raise RuntimeError("a link is entered before it is used")
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        with _in_plain_words(self._settings.address):
            for _ in range(MAX_REDIRECTS + 1):
                request = client.build_request(method, url, headers=raw, content=body)
                response = await client.send(request, stream=True)
                try:
                    if response.status_code not in _MOVED:
                        yield response
                        return
                    url = self._moved(url, response)
                finally:
                    await response.aclose()
        raise LinkLost("the server redirects without end")

    @asynccontextmanager
    async def ask(
        self, url: httpx2.URL, headers: Mapping[str, str], body: bytes, doing: str
    ) -> AsyncIterator[httpx2.Response]:
        """Post a request with a short answer: the time-out of the settings includes reading it."""
        with bounded(self._settings.timeout, doing):
            async with self.call("POST", url, headers, body) as response:
                yield response

    def _moved(self, url: httpx2.URL, response: httpx2.Response) -> httpx2.URL:
        target = url.join(response.headers.get("location", ""))
        if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
            raise LinkLost(f"the server redirects elsewhere: set sources.{self._settings.name}.url to its new address")
        return target.copy_with(username="", password="")

    def refusal(self, response: httpx2.Response, doing: str) -> LinkLost:
        """Return what a status that is no success means for the next try."""
        status = response.status_code
        if status in _REFUSED:
            return LinkLost(
                f"the server refuses us ({status} on {doing}): check sources.{self._settings.name}.headers",
                retry_after=retry_after(response),
                is_refused=True,
            )
        return LinkLost(f"the server answers {status} on {doing}", retry_after=retry_after(response))


async def read_body(response: httpx2.Response) -> str:
    """Return the whole body as text; raises `LinkLost` if it is too long."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise LinkLost("the server's answer is too long")
    return body.decode("utf-8", "replace")


def is_event_stream(response: httpx2.Response) -> bool:
    """Whether the response is a stream of events."""
    return content_type(response) == "text/event-stream"


def content_type(response: httpx2.Response) -> str:
    """Return the bare content type."""
    said: str = response.headers.get("content-type", "")
    return said.partition(";")[0].strip().lower()


def retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds that the server asks us to wait. A date counts by the server's own clock, not by ours."""
    said: str = response.headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit():
        return float(said[:9])
    try:
        until = parsedate_to_datetime(said)
        present = parsedate_to_datetime(response.headers.get("date", ""))
        return max((until - present).total_seconds(), 0.0)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


@contextmanager
def _in_plain_words(address: str) -> Iterator[None]:
    try:
        yield
    except httpx2.ConnectTimeout as exc:
        raise LinkLost(f"{address} does not answer") from exc
    except httpx2.ConnectError as exc:
        raise LinkLost(_unreachable(exc, address)) from exc
    except httpx2.ProxyError as exc:
        raise LinkLost("the proxy refuses us") from exc
    except httpx2.DecodingError as exc:
        raise LinkLost("the server's compression is broken") from exc
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as exc:
        raise LinkLost("the connection broke off") from exc
    except (httpx2.InvalidURL, UnicodeError) as exc:
        raise LinkLost("the server names an address that cannot be") from exc


def _unreachable(exc: httpx2.ConnectError, address: str) -> str:
    cause: BaseException | None = exc
    for _ in range(MAX_CAUSES):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of {address} is not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"no secure connection to {address} can be made: check whether it really speaks https"
        if cause is None:
            break
        cause = cause.__cause__ or cause.__context__
    return f"{address} cannot be reached"


@dataclass(frozen=True, slots=True)
class SseEvent:
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

    def feed(self, chunk: bytes) -> list[SseEvent]:
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
        events: list[SseEvent] = []
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

    def _end_line(self) -> SseEvent | None:
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

    def _dispatch(self) -> SseEvent | None:
        data, name, own_id = self._data, self._name or "message", self._id
        is_whole = not self._is_too_long
        self._data, self._name, self._id, self._event_bytes, self._is_too_long = [], "", None, 0, False
        if own_id is not None:
            # Only now: an event that broke off must be sent again. One that was too long need not be.
            self.last_id = own_id
        if not data or not is_whole:
            return None
        # A line end is no part of any letter, so the lines are decoded as well together as one by one.
        return SseEvent(b"\n".join(data).decode("utf-8", "replace"), name, own_id or "")

    def _give_up(self) -> None:
        if not self._is_too_long:
            self._is_too_long = True
            self.dropped += 1
            self._data = []


@dataclass(slots=True)
class HeardChunk:
    """What one chunk brought besides announcements."""

    requests: list[RpcRequest] = field(default_factory=list)
    answers: list[RpcAnswer] = field(default_factory=list)
    endpoint: str | None = None
    about_link: list[Announcement] = field(default_factory=list)


def no_position(_last_id: str, _cursor: str) -> str | None:
    """Make no checkpoint."""
    return None


class SseStream:
    """One event stream. `stream` names where event ids are unique; that of a subscription also speaks of itself."""

    def __init__(
        self, desk: LinkReceiver, *, stream: str = "", last_id: str = "", is_subscription: bool = False
    ) -> None:
        self.parser = EventParser(last_id=last_id)
        self._desk = desk
        self._stream = stream
        self._is_subscription = is_subscription
        self._dropped = 0

    async def hear(self, chunk: bytes, position: Position = no_position) -> HeardChunk:
        """Hand what a chunk announces to the desk and return the rest."""
        said: list[Announcement] = []
        heard = HeardChunk()
        cursor = ""
        for event in self.parser.feed(chunk):
            if event.name == "endpoint":
                heard.endpoint = event.data
                continue
            frame = self._read(event)
            for each in frame.announcements:
                cursor = each.cursor or cursor
                (heard.about_link if each.about_link and self._is_subscription else said).append(each)
            heard.requests.extend(frame.requests)
            heard.answers.extend(frame.answers)
            if len(said) >= AT_ONCE:
                # A chunk of a compressed stream may hold any number: what is taken is bounded there, not here.
                await self._desk.take(said)
                said = []
        if self.parser.dropped > self._dropped:
            self._desk.gave_up(self.parser.dropped - self._dropped)
            self._dropped = self.parser.dropped
        checkpoint = position(self.parser.last_id, cursor)
        if said or checkpoint is not None:
            await self._desk.take(said, checkpoint)
        return heard

    def _read(self, event: SseEvent) -> RpcFrame:
        frame = read_frame(event.data, event.name)
        if not event.id or not self._stream:
            return frame
        known = identified(frame.announcements, self._stream, event.id, event.data)
        return RpcFrame(known, frame.requests, frame.answers)


async def read_answer(
    response: httpx2.Response,
    number: int,
    desk: LinkReceiver,
    *,
    stream: str = "",
    reply: Callable[[list[RpcRequest]], Awaitable[None]] | None = None,
) -> RpcAnswer:
    """Return the answer to our request; what the server announces before it is handed over."""
    if not is_event_stream(response):
        frame = read_frame(await read_body(response)) if content_type(response) == "application/json" else RpcFrame()
        if frame.announcements and frame.answers:
            await desk.take(frame.announcements)
        for answer in frame.answers:
            if answer.id == number:
                return answer
        raise LinkLost("the server's answer is no MCP: check its url")
    hearing = SseStream(desk, stream=stream)
    async for chunk in response.aiter_bytes():
        heard = await hearing.hear(chunk)
        if reply is not None:
            await reply(heard.requests)
        for answer in heard.answers:
            if answer.id == number:
                return answer
    raise LinkLost("the server ended its answer too early")
