"""HTTP as both HTTP links need it: one client per server, and every failure as a `Trouble` in plain words.

Nothing that came from the server and nothing secret becomes part of a reason. Redirects are followed only within the
server itself: anywhere else the headers are not meant for. Below is httpx2, which is used nowhere else.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from email.utils import parsedate_to_datetime
from typing import Final, Self

import httpx2

from harken.sources.mcp.link import LinkLost, bounded
from harken.sources.mcp.settings import McpSettings

MAX_BODY_BYTES: Final = 8_000_000
MAX_REDIRECTS: Final = 3
MAX_CAUSES: Final = 10

_MOVED: Final = frozenset({301, 302, 307, 308})
_REFUSED: Final = frozenset({401, 403})


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
        """Post something whose answer does not take long: reading it included, it has the time-out of the settings."""
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
