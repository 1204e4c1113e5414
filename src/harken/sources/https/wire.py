"""One request to a service and its answer, bounded in time and size: the only place here that opens connections.

It repeats nothing and follows no redirect. What httpx2 raises becomes `Broken`, in plain words and without anything
that was sent; it says whether the request can have arrived, because writing must not be repeated by mistake. Below is
httpx2; above are the clients of the services.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

import anyio
import httpx2

from harken.sources.https.address import Address
from harken.sources.https.answer import Answer

MAX_BODY_BYTES: Final = 16_000_000
MAX_ERROR_BYTES: Final = 64_000
MAX_CONNECTIONS: Final = 32
CONNECT_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 30.0
KEPT_SECONDS: Final = 60.0  # longer than a poll takes to come round, so that it finds its connection open

_ERRORS: Final = 300
_MAX_CAUSES: Final = 10


class Broken(Exception):
    """No answer. `is_unsent` if the request cannot have reached the service."""

    def __init__(self, reason: str, *, is_unsent: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_unsent = is_unsent


class Wire:
    """The connections to one address. `verify` is what certificates are checked with, the system's if it is None."""

    def __init__(self, address: Address, *, verify: ssl.SSLContext | None, request_seconds: float) -> None:
        self._address = address
        self._verify = verify
        self._seconds = request_seconds
        self._client: httpx2.AsyncClient | None = None
        self._is_closed = False

    async def exchange(self, method: str, url: httpx2.URL, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Make one request; raises `Broken`. It ends within the seconds it was given, whatever the other side does."""
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
            raise Broken(_unreachable(exc), is_unsent=True) from exc
        except (TimeoutError, httpx2.TimeoutException) as exc:
            raise Broken("the service does not answer in time") from exc
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as exc:
            raise Broken("the connection broke off") from exc

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


async def _read(response: httpx2.Response) -> Answer:
    """Return status, headers and body; a status is worth something also if its body breaks off."""
    status = response.status_code
    most = MAX_BODY_BYTES if status < _ERRORS else MAX_ERROR_BYTES
    headers = {name.lower(): value for name, value in response.headers.items()}
    body = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > most:
                return Answer(status, headers, None, is_too_long=True)
    except (httpx2.HTTPError, httpx2.StreamError, OSError):
        return Answer(status, headers, None)
    return Answer(status, headers, bytes(body))


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
