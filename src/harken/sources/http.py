"""What sources need to call a service over HTTPS, whichever service it is.

`ServiceAddress` says where a token may go, `HttpWire` alone opens connections and bounds them in time and size,
`HttpAnswer` is what comes back, and `TokenHolder` keeps an access token and renews it in time. What an answer means is
said by the clients above, in `microsoft` and in `bot`. The sign-in of Microsoft has a way of its own: msal blocks.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, Self
from urllib.parse import quote

import anyio
import httpx2

from harken.clock import Clock
from harken.errors import Forbidden, NeedsPerson, Unavailable, UserError
from harken.sources.settings import is_loopback

_HINT: Final = "write it like https://service.example.org/v1.0"
_SHOWN_CHARS: Final = 24
_SHOWN_SEGMENTS: Final = 8
_IN_QUERY: Final = "$,/:()'"
_CLIMBS: Final = frozenset({".", ".."})

MAX_BODY_BYTES: Final = 16_000_000
MAX_ERROR_BYTES: Final = 64_000
MAX_CONNECTIONS: Final = 32
CONNECT_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 30.0
KEPT_SECONDS: Final = 60.0  # longer than a poll takes to come round, so that it finds its connection open

_ERRORS: Final = 300
_MAX_CAUSES: Final = 10

MARGIN: Final = timedelta(minutes=5)  # before the end of a token
LIFETIME_SECONDS: Final = 3_600.0  # of a token whose answer does not say
MAX_SECONDS: Final = 1e9
MIN_LIFE: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """The root of all paths, and what the service is called in errors."""

    root: httpx2.URL
    service: str

    @classmethod
    def parse(cls, text: str, service: str) -> Self:
        """Read a configured address; raises `UserError` if a token must not go there."""
        try:
            root = httpx2.URL(text.strip().rstrip("/"))
        except (httpx2.InvalidURL, UnicodeError) as exc:
            raise UserError(f"The address of {service} cannot be read.", _HINT) from exc
        if root.userinfo or root.query or root.fragment or not root.host:
            raise UserError(f"The address of {service} is a host and a path, nothing else.", _HINT)
        if root.scheme != "https" and not (root.scheme == "http" and is_loopback(root.host)):
            raise UserError(f"{service} is called over https only, because a token is sent.", _HINT)
        return cls(root, service)

    @property
    def is_local(self) -> bool:
        """Whether it is this machine."""
        return is_loopback(self.root.host)

    def url(self, path: str, params: Mapping[str, str] | None = None) -> httpx2.URL:
        """Return where a path below the root is, or a whole link; raises `Forbidden` if that is elsewhere."""
        if "://" in path.partition("?")[0]:
            url = self.link(path)
        else:
            bare = path.partition("?")[0]
            if any(segment in _CLIMBS for segment in bare.split("/")) or "//" in bare or "#" in path:
                raise Forbidden(f"A path of {self.service} must not lead upwards.", "encode ids before they are used")
            url = self.link(f"{self.root}/{path.lstrip('/')}")
        if not params:
            return url
        # OData reads a plus as itself: a space has to be %20.
        query = "&".join(f"{quote(name, safe='$')}={quote(value, safe=_IN_QUERY)}" for name, value in params.items())
        return url.copy_with(query=b"&".join(each for each in (url.query, query.encode()) if each))

    def link(self, text: str) -> httpx2.URL:
        """Return a link that the service handed out; raises `Forbidden` if it leads elsewhere."""
        try:
            url = httpx2.URL(text)
        except (httpx2.InvalidURL, UnicodeError) as exc:
            # Among the reasons is its length.
            raise Forbidden(f"{self.service} names an invalid address.", "if this goes on, report it") from exc
        self._check(url)
        return url

    def begin_again(self, location: str) -> str:
        """Return a `Location` as a link that can be followed, or nothing if it leads elsewhere."""
        try:
            return str(self.link(str(self.root.join(location)))) if location else ""
        except (Forbidden, httpx2.InvalidURL, UnicodeError):
            return ""

    def _check(self, url: httpx2.URL) -> None:
        if _origin(url) != _origin(self.root) or url.userinfo:
            raise Forbidden(
                f"{self.service} names a foreign address, which Harken does not follow.",
                "if this goes on, check the configured address",
            )


def part(identifier: str) -> str:
    """Return an id as one segment of a path, quoted."""
    quoted = quote(identifier, safe=":@", errors="replace")
    return quoted.replace(".", "%2E") if identifier in _CLIMBS else quoted


def shown(url: httpx2.URL) -> str:
    """Return a path as a log may show it: no query, and of long segments only the beginning."""
    segments = url.path.strip("/").split("/")
    kept = [each if len(each) <= _SHOWN_CHARS else f"{each[:8]}…" for each in segments[:_SHOWN_SEGMENTS]]
    return "/" + "/".join(kept)


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host.lower(), url.port or (443 if url.scheme == "https" else 80)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back: header names in lower case. `body` is None if it broke off, or was more than is read."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None
    is_too_long: bool = False


class ConnectionBroken(Exception):
    """No answer. `is_unsent` if the request cannot have reached the service."""

    def __init__(self, reason: str, *, is_unsent: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_unsent = is_unsent


class HttpWire:
    """The connections to one address. `verify` is what certificates are checked with, the system's if it is None."""

    def __init__(self, address: ServiceAddress, *, verify: ssl.SSLContext | None, request_seconds: float) -> None:
        self._address = address
        self._verify = verify
        self._seconds = request_seconds
        self._client: httpx2.AsyncClient | None = None
        self._is_closed = False

    async def exchange(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], body: bytes | None
    ) -> HttpAnswer:
        """Make one request; raises `ConnectionBroken`. It ends in time, also if the other side does not answer."""
        client = self._opened()
        try:
            with anyio.fail_after(self._seconds):
                request = client.build_request(method, url, headers=dict(headers), content=body)
                response = await client.send(request, stream=True)
                try:
                    return await _read(response)
                finally:
                    await response.aclose()
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError) as exc:
            raise ConnectionBroken(_unreachable(exc), is_unsent=True) from exc
        except (TimeoutError, httpx2.TimeoutException) as exc:
            raise ConnectionBroken("the service does not answer in time") from exc
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as exc:
            raise ConnectionBroken("the connection broke off") from exc

    async def aclose(self) -> None:
        """Close every connection; nothing can be asked afterwards."""
        self._is_closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _opened(self) -> httpx2.AsyncClient:
        if self._is_closed:
            raise RuntimeError("a client that was closed is not used again")
        if self._client is None:
            # Without TLS there is nothing to verify, and reading all certificates of the system takes long.
            idle = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if self._address.root.scheme == "http" else True
            self._client = httpx2.AsyncClient(
                headers={"Accept-Encoding": "gzip, deflate", "User-Agent": "harken"},
                timeout=httpx2.Timeout(self._seconds, connect=min(CONNECT_SECONDS, self._seconds)),
                limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEPT_SECONDS),
                follow_redirects=False,
                verify=self._verify or idle,
                # What stays on this machine has no business with a proxy.
                trust_env=not self._address.is_local,
            )
        return self._client


async def _read(response: httpx2.Response) -> HttpAnswer:
    """Return status, headers and body; a status is worth something also if its body breaks off."""
    status = response.status_code
    most = MAX_BODY_BYTES if status < _ERRORS else MAX_ERROR_BYTES
    headers = {name.lower(): value for name, value in response.headers.items()}
    body = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > most:
                return HttpAnswer(status, headers, None, is_too_long=True)
    except (httpx2.HTTPError, httpx2.StreamError, OSError):
        return HttpAnswer(status, headers, None)
    return HttpAnswer(status, headers, bytes(body))


def _unreachable(exc: httpx2.HTTPError) -> str:
    cause: BaseException | None = exc
    for _ in range(_MAX_CAUSES):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "the certificate of the service is not accepted"
        if isinstance(cause, ssl.SSLError):
            return "no secure connection can be made"
        if cause is None:
            break
        cause = cause.__cause__ or cause.__context__
    if isinstance(exc, httpx2.ProxyError):
        return "the proxy refuses us"
    return "the service cannot be reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedToken:
    """An access token and when it is to be renewed."""

    token: str = field(repr=False)
    renew_at: datetime
    expires_at: datetime
    stamp: int = 0  # of the cache it came from


def seconds_of(value: object, default: float = LIFETIME_SECONDS) -> float:
    """Return a number of seconds as services write them: as a number or as its digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return float(value[:9])
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MAX_SECONDS:
        return float(value)
    return default


class TokenRenewal(Protocol):
    """Gets a token; `is_forced` where one that was had before is not to be used again."""

    def __call__(self, *, is_forced: bool) -> Awaitable[CachedToken]:
        """Return a token; raises `NeedsPerson` and `Unavailable`."""
        ...


def held_until(token: str, now: datetime, lifetime_seconds: float, stamp: int = 0) -> CachedToken:
    """Return a token that lasts so long from now."""
    life = max(timedelta(seconds=lifetime_seconds), MIN_LIFE)
    return CachedToken(token=token, renew_at=now + life - min(MARGIN, life / 2), expires_at=now + life, stamp=stamp)


class TokenHolder:
    """Holds a token. `stamp` says whether what it came from was changed elsewhere; `action` what a person must do."""

    def __init__(self, clock: Clock, renew: TokenRenewal, stamp: Callable[[], int] = lambda: 0) -> None:
        self._clock = clock
        self._renew = renew
        self._stamp = stamp
        self._lock = anyio.Lock()
        self._held: CachedToken | None = None
        self.action = ""

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return a token; with `is_fresh` another one than those that were returned before the call.

        Raises `NeedsPerson` and `Unavailable`.
        """
        try:
            token = await self._current(is_fresh=is_fresh)
        except (NeedsPerson, UserError) as exc:
            self.forget()
            # The reader of a feed is told: settings that are wrong also wait for a person.
            needed = exc if isinstance(exc, NeedsPerson) else NeedsPerson(exc.message, exc.hint, action=exc.hint)
            self.action = needed.action
            raise needed from None
        self.action = ""
        return token

    async def _current(self, *, is_fresh: bool) -> str:
        before = self._held
        if before is not None and not is_fresh and self._is_good(before):
            return before.token
        async with self._lock:
            held = self._held
            if held is not None and held is not before and self._is_good(held):
                return held.token  # somebody else was faster
            is_same = held is not None and held.stamp == self._stamp()
            try:
                self._held = await self._renew(is_forced=is_fresh or is_same)
            except Unavailable as exc:
                now = self._clock.now()
                if held is None or is_fresh or not is_same or now >= held.expires_at:
                    raise
                self._held = replace(held, renew_at=now + timedelta(seconds=exc.retry_after))
            return self._held.token

    def forget(self) -> None:
        """Hold nothing any more."""
        self._held = None
        self.action = ""

    def _is_good(self, held: CachedToken) -> bool:
        return self._clock.now() < min(held.renew_at, held.expires_at) and held.stamp == self._stamp()
