"""The public listener: TLS for other machines, at routes that others give it, and nothing of the page or the API.

Everything can reach it. A connection is counted before its handshake, so that no address takes the places of others;
handshake, head and idleness are bounded, as in `http.py`. `Slowdown` is for routes that check a secret: an address that
shows wrong ones waits, and is not listened to at all for a while.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from harken.config.home import expand_user
from harken.config.settings import HttpSettings
from harken.daemon.http import BoundedProtocol, Server, holder_of, listen, make_server
from harken.errors import UserError
from harken.memory import json_bytes

_log = logging.getLogger("harken.public")

HANDSHAKE_SECONDS: Final = 10.0
MAX_CONNECTIONS: Final = 512  # of all addresses, those in their handshake too
MAX_OF_ADDRESS: Final = 32
NETWORK_BITS: Final = 64
LOOK_SECONDS: Final = 5.0  # between two looks whether the certificate has changed
WRONG_SECONDS: Final = 1.0  # how long an address waits for the answer to a wrong secret
WRONG_MOST: Final = 20  # how many it may show in `FORGET_SECONDS` before it is not listened to
FORGET_SECONDS: Final = 60.0
MAX_ADDRESSES: Final = 10_000
BREATH_SECONDS: Final = 0.1
_PORTS: Final[Mapping[str, int]] = MappingProxyType({"https": 443, "http": 80})


def plain_address(address: str) -> str:
    """Return an address as settings name it: where one socket serves both versions of IP, those of 4 come in 6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def without_port(named: str) -> str:
    """Return the address that a proxy names, with or without a port: as `192.0.2.1:80`, or `[2001:db8::1]:80`."""
    if named.startswith("["):
        named = named[1:].partition("]")[0]
    elif named.count(":") == 1:
        named = named.partition(":")[0]
    return plain_address(named)


def counted_address(address: str) -> str:
    """Return what stands for all addresses of one customer: with IPv6, a network of 2^64."""
    try:
        found = ipaddress.ip_address(plain_address(address))
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.IPv6Network((found.packed, NETWORK_BITS), strict=False))


class Slowdown:
    """Remembers which addresses have shown wrong secrets lately."""

    def __init__(self, now: Callable[[], float] = anyio.current_time) -> None:
        self._now = now
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()

    def is_shut_out(self, address: str) -> bool:
        """Whether an address has shown so many that it is not listened to."""
        return len(self._recent(address)) >= WRONG_MOST

    def note_wrong(self, address: str) -> None:
        """An address has shown a wrong secret."""
        counted = counted_address(address)
        self._wrong[counted] = [*self._recent(address), self._now()]
        self._wrong.move_to_end(counted)
        while len(self._wrong) > MAX_ADDRESSES:
            self._wrong.popitem(last=False)

    async def hold_up(self, address: str) -> None:
        """Note a wrong secret, and wait before that is answered."""
        self.note_wrong(address)
        await anyio.sleep(WRONG_SECONDS)

    def _recent(self, address: str) -> list[float]:
        oldest = self._now() - FORGET_SECONDS
        return [at for at in self._wrong.get(counted_address(address), ()) if at > oldest]


class Certificate:
    """The certificate and its key, read again when their files change."""

    def __init__(self, certificate: str, private_key: str, environ: Mapping[str, str]) -> None:
        self._files = [expand_user(each, environ) for each in (certificate, private_key)]
        self._context: ssl.SSLContext | None = None
        self._seen: object = None
        self._looked_at = 0.0

    def context(self) -> ssl.SSLContext:
        """Return what connections are made with now; raises `UserError` when there was never one that can be used.

        A new one that cannot be used is logged, and the old one stays.
        """
        now = anyio.current_time()
        if self._context is not None and now < self._looked_at + LOOK_SECONDS:
            return self._context
        self._looked_at = now
        seen = [_state(path) for path in self._files]
        if self._context is None or seen != self._seen:
            try:
                self._context = self._loaded()
            except UserError as exc:
                if self._context is None:
                    raise
                _log.warning("the certificate stays as it was: %s", exc.message)
            self._seen = seen
        return self._context

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = self._files
        try:
            # A key with a password would have the daemon wait at a terminal that it does not have.
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as exc:
            reason = exc.strerror or exc.args[-1] if isinstance(exc, OSError) else exc
            raise UserError(
                f"The certificate {certificate} with the key {key} cannot be used: {reason}.",
                "Check http.certificate and http.private_key in config.toml: PEM files that belong together.",
            ) from exc
        context.set_alpn_protocols(["http/1.1"])
        return context


def _no_password() -> str:
    raise ValueError("the key has a password")


def _state(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


class PublicListener:
    """Serves routes to other machines."""

    def __init__(self, settings: HttpSettings, environ: Mapping[str, str], routes: Sequence[BaseRoute]) -> None:
        self._settings = settings
        self._certificate = Certificate(settings.certificate, settings.private_key, environ)
        self._routes = routes
        self._open = Counter[str]()
        self._place: tuple[str, int] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether the settings say that there is one."""
        return bool(self._settings.public_listen)

    @property
    def _has_certificate(self) -> bool:
        return bool(self._settings.certificate and self._settings.private_key)

    @property
    def hosts(self) -> Collection[str]:
        """The Host headers that mean it; none when the settings do not say its address."""
        return hosts_of(self._settings)

    @property
    def url(self) -> str:
        """Its address, as others know it; empty while it does not listen."""
        if self._place is None:
            return ""
        host, port = self._place
        return self._settings.public_url or f"https://{f'[{host}]' if ':' in host else host}:{port}"

    async def run(self) -> None:
        """Listen until cancelled; raises `UserError` when that cannot be."""
        if not (self._has_certificate or self._settings.proxy):
            raise UserError(
                "http.public_listen is set without a certificate: nothing is served to other machines without TLS.",
                "Set http.certificate and http.private_key in config.toml, or name the proxy before it: http.proxy.",
            )
        if self._has_certificate:
            self._certificate.context()
        sock = _bound(self._settings.public_listen)
        app = Starlette(routes=list(self._routes), exception_handlers={HTTPException: _plain_error})
        app.router.redirect_slashes = False  # to the host that the client names, whatever that is
        server = make_server(app, web_socket=CountedWebSocket)
        with sock:
            sock.settimeout(0)
            try:
                async with anyio.create_task_group() as tasks:
                    # It serves what it is given here: connections with their handshake behind them.
                    tasks.start_soon(partial(server.serve, sockets=[]))
                    self._place = sock.getsockname()[:2]
                    _log.info("other machines are let in at %s", self.url)
                    await self._accept(sock, server, tasks)
            finally:
                self._place = None
                with anyio.CancelScope(shield=True):
                    await server.end()

    async def _accept(self, sock: socket.socket, server: Server, tasks: TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, place = await loop.sock_accept(sock)
            except OSError as exc:
                _log.warning("a connection could not be taken: %s", exc.strerror)  # no file descriptors are left
                await anyio.sleep(BREATH_SECONDS)
                continue
            address = counted_address(str(place[0]))
            is_proxy = plain_address(str(place[0])) in self._settings.proxy
            is_full = not is_proxy and self._open[address] >= MAX_OF_ADDRESS
            if self._open.total() >= MAX_CONNECTIONS or is_full or not (is_proxy or self._has_certificate):
                connection.close()
                continue
            self._open[address] += 1
            tasks.start_soon(self._take, connection, address, server)

    async def _take(self, connection: socket.socket, address: str, server: Server) -> None:
        """Make the handshake; a client that does not make it in time is cut off."""
        protocol = CountedProtocol(partial(self._leave, address), server)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._certificate.context() if self._has_certificate else None,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._has_certificate else None,
            )
        except (OSError, UserError):
            connection.close()
            protocol.end()
        except anyio.get_cancelled_exc_class():
            connection.close()
            raise

    def _leave(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


def hosts_of(settings: HttpSettings) -> Collection[str]:
    """Return the Host headers that mean the public address; none when the settings do not say it."""
    parts = urlsplit(settings.public_url)
    if not parts.hostname:
        return ()
    port = f":{_PORTS.get(parts.scheme, 0)}"
    return {parts.netloc, parts.netloc.removesuffix(port), f"{parts.netloc.removesuffix(port)}{port}"}


class CountedProtocol(BoundedProtocol):
    """An HTTP connection that says when it is over, also when a web socket has taken its place."""

    def __init__(self, over: Callable[[], None], server: Server) -> None:
        super().__init__(config=server.config, server_state=server.server_state, app_state={})
        self._over: Callable[[], None] | None = over
        self._accepted_at = time.monotonic()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        self.end()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to a web socket, with its place."""
        self.forget_request()
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, CountedWebSocket) and self._over is not None:
            protocol.over, self._over = self._over, None

    def end(self) -> None:
        """Say, once, that the connection is over."""
        over, self._over = self._over, None
        if over is not None:
            over()


class CountedWebSocket(WebSocketsSansIOProtocol):
    """A web socket that says when it is over; one without a sign of life from the other side is over at once."""

    over: Callable[[], None] | None = None

    async def send(self, message: ASGISendEvent) -> None:
        """Send a part of what is said; a refusal is an answer, and no fault that the log is for."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def keepalive_timeout(self) -> None:
        """Do not wait until the other side takes what is on its way: it may never."""
        super().keepalive_timeout()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        over, self.over = self.over, None
        if over is not None:
            over()


def _bound(place: str) -> socket.socket:
    host, _, port = place.rpartition(":")
    try:
        return listen(host.strip("[]"), int(port))
    except OSError as exc:
        reason = f"{holder_of(int(port))} does" if exc.errno == errno.EADDRINUSE else exc.strerror
        raise UserError(
            f"Cannot listen on {place} ({reason}).", "Choose another place: http.public_listen in config.toml."
        ) from exc


def _plain_error(_request: Request, exc: Exception) -> Response:
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    return Response(json_bytes({"error": "There is nothing at this address."}), status, media_type="application/json")
