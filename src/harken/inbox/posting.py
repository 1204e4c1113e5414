"""Posting to the addresses that subscribers name: signed as Standard Webhooks says, and only where everyone may post.

A subscriber elsewhere chooses the address, so it must not make this machine speak with its neighbours. Of a host's
addresses each has to be global, the connection goes to one that was checked, whatever the name means by then, and no
redirect is followed. Time and size of an answer are bounded. Who is told of what is decided above.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import anyio
import httpx2
import msgspec

from harken import __version__
from harken.errors import UserError
from harken.memory import json_bytes
from harken.sources.settings import is_loopback
from harken.store.contract.outbox import CallbackSubscription

SECONDS: Final = 10.0  # for a post and its answer
MAX_ANSWER: Final = 8_192
MAX_URL: Final = 2_048
MAX_PORT: Final = 65_535
PREFIX: Final = "whsec_"
MIN_KEY, MAX_KEY = 24, 64  # bytes
MAX_IDS: Final = 80
MAX_CAUSES: Final = 10
MAX_ADDRESSES: Final = 4  # of a host that are tried

# What an error is called in answers: nothing that a receiver said is repeated.
REFUSED, TIMEOUT, TLS, CHALLENGE = "connection_refused", "timeout", "tls_error", "challenge_failed"
CLIENT_ERROR, SERVER_ERROR = "http_4xx", "http_5xx"
GONE, TOO_LARGE = 410, 413
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host; raises `OSError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackAnswer:
    """What came of a post. Without a status there was no answer."""

    status: int = 0
    error: str = ""
    body: bytes = b""

    @property
    def is_final(self) -> bool:
        """Whether the receiver will never take this."""
        return self.status in (GONE, TOO_LARGE)


def check_secret(secret: str) -> None:
    """Refuse a secret that nothing can be signed with; raises `UserError`."""
    if not MIN_KEY <= len(_key(secret)) <= MAX_KEY:
        raise UserError("The secret cannot be used.", f"Send {PREFIX} and the base64 of {MIN_KEY} to {MAX_KEY} bytes.")


def check_url(url: str, *, allows_loopback: bool) -> None:
    """Refuse an address that nothing is posted to, whatever its name means; raises `UserError`."""
    hint = "Send an https:// address, without a user, a password or a fragment."
    if len(url) > MAX_URL or any(not "!" <= each <= "~" for each in url):
        raise UserError("The address cannot be posted to.", hint)
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, UnicodeError) as exc:
        raise UserError("The address cannot be read.", hint) from exc
    is_plain = parsed.scheme == "http" and allows_loopback and is_loopback(parsed.host)
    has_port = parsed.port is None or 0 < parsed.port <= MAX_PORT
    if (parsed.scheme != "https" and not is_plain) or not (parsed.host and has_port) or parsed.userinfo or "#" in url:
        raise UserError("The address cannot be posted to.", hint)


def may_reach(address: str, *, allows_loopback: bool) -> bool:
    """Whether everyone may post to an IP address: what it holds of another one counts too."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        held = found.ipv4_mapped or found.sixtofour
        if held is None and found in _NAT64:
            held = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if held is not None:
            return may_reach(str(held), allows_loopback=allows_loopback and found.ipv4_mapped is not None)
        if found.is_site_local or found.teredo is not None:
            return False
    if found.is_loopback:
        return allows_loopback
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)


async def resolved(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, as the system knows them."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def signature(secrets_of: Sequence[str], identifier: str, stamp: int, body: bytes) -> str:
    """Return the header that proves who posts, with each secret."""
    said = f"{identifier}.{stamp}.".encode() + body
    made = (hmac.digest(_key(each), said, hashlib.sha256) for each in secrets_of)
    return " ".join(f"v1,{base64.b64encode(each).decode()}" for each in made)


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        return b""


class CallbackWire:
    """Posts to addresses that were checked. `now` is what signatures say."""

    def __init__(
        self,
        now: Callable[[], datetime],
        *,
        allows_loopback: bool = False,
        resolve: Resolve = resolved,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._now = now
        self.allows_loopback = allows_loopback
        self._resolve = resolve
        self._tls = tls  # None: what the system trusts

    def check(self, url: str, secret: str) -> None:
        """Refuse what cannot be posted with; raises `UserError`."""
        check_url(url, allows_loopback=self.allows_loopback)
        check_secret(secret)

    async def verify(self, to: CallbackSubscription) -> str:
        """Ask a receiver whether it wants to be told; return why not, or nothing."""
        challenge = secrets.token_urlsafe(32)
        body = json_bytes({"type": "verification", "challenge": challenge})
        answer = await self.post(to, f"msg_verification_{secrets.token_hex(8)}", body)
        if answer.error:
            return answer.error
        try:
            said = msgspec.json.decode(answer.body, type=dict[str, object]).get("challenge")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            said = None
        is_same = isinstance(said, str) and hmac.compare_digest(said.encode("utf-8", "replace"), challenge.encode())
        return "" if is_same else CHALLENGE

    async def tell(self, to: CallbackSubscription, kind: str, **said: object) -> CallbackAnswer:
        """Post what is about the subscription itself: a gap, or its end."""
        return await self.post(to, f"msg_{kind}_{secrets.token_hex(8)}", json_bytes({"type": kind, **said}))

    async def post(self, to: CallbackSubscription, identifier: str, body: bytes) -> CallbackAnswer:
        """Post once."""
        now = self._now()
        signing = [to.secret]
        if to.former_secret and to.former_until is not None and now < to.former_until:
            signing.append(to.former_secret)
        stamp = int(now.timestamp())
        headers = {
            "content-type": "application/json",
            "accept-encoding": "identity",
            "user-agent": f"harken/{__version__}",
            "webhook-id": identifier,
            "webhook-timestamp": f"{stamp}",
            "webhook-signature": signature(signing, identifier, stamp, body),
            "x-mcp-subscription-id": to.id[:MAX_IDS],
        }
        return await self.send(to.url, headers, body)

    async def send(self, url: str, headers: dict[str, str], body: bytes) -> CallbackAnswer:
        """Send a body once, to an address that a client elsewhere has named."""
        try:
            with anyio.fail_after(SECONDS):
                return await self._send(url, headers, body)
        except TimeoutError:
            return CallbackAnswer(error=TIMEOUT)
        except UserError:
            return CallbackAnswer(error=REFUSED)  # it was allowed when it was named
        except (httpx2.InvalidURL, httpx2.HTTPError, httpx2.StreamError, OSError, UnicodeError) as exc:
            return CallbackAnswer(error=_named(exc))

    async def _send(self, url: str, headers: dict[str, str], body: bytes) -> CallbackAnswer:
        check_url(url, allows_loopback=self.allows_loopback)
        parsed = httpx2.URL(url)
        is_secure = parsed.scheme == "https"
        addresses = await self._resolve(parsed.host, parsed.port or (443 if is_secure else 80))
        if not addresses or not all(may_reach(each, allows_loopback=self.allows_loopback) for each in addresses):
            return CallbackAnswer(error=REFUSED)
        if not is_secure and not all(ipaddress.ip_address(each).is_loopback for each in addresses):
            return CallbackAnswer(error=REFUSED)
        if self._tls is None and is_secure:
            self._tls = ssl.create_default_context()
        broken: httpx2.TransportError | None = None
        for address in addresses[:MAX_ADDRESSES]:
            try:
                return await self._send_to(address, parsed, headers, body)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
                broken = exc
        return CallbackAnswer(error=_named(broken) if broken else REFUSED)

    async def _send_to(self, address: str, url: httpx2.URL, headers: dict[str, str], body: bytes) -> CallbackAnswer:
        # A connection that is kept would be one of another name at the same address.
        async with httpx2.AsyncClient(
            verify=self._tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
            follow_redirects=False,
            timeout=SECONDS,
            limits=httpx2.Limits(max_keepalive_connections=0),
        ) as client:
            request = client.build_request(
                "POST",
                url.copy_with(host=address),
                headers={"host": url.netloc.decode("ascii"), **headers},
                content=body,
                extensions={"sni_hostname": url.host} if url.scheme == "https" else {},
            )
            response = await client.send(request, stream=True)
            try:
                return await _read(response)
            finally:
                await response.aclose()


async def _read(response: httpx2.Response) -> CallbackAnswer:
    status, said = response.status_code, bytearray()
    if not response.is_success:
        return CallbackAnswer(status=status, error=SERVER_ERROR if response.is_server_error else CLIENT_ERROR)
    async for chunk in response.aiter_raw():
        said += chunk
        if len(said) > MAX_ANSWER:
            break
    return CallbackAnswer(status=status, body=bytes(said[:MAX_ANSWER]))


def _named(exc: BaseException) -> str:
    cause: BaseException | None = exc
    for _ in range(MAX_CAUSES):
        if isinstance(cause, ssl.SSLError):
            return TLS
        if cause is None:
            break
        cause = cause.__cause__ or cause.__context__
    return TIMEOUT if isinstance(exc, httpx2.TimeoutException) else REFUSED
