"""HTTP inside the daemon: one listening socket, served by uvicorn in our own event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from harken.config.home import Home, write_private
from harken.config.settings import HttpSettings
from harken.errors import UserError

_log = logging.getLogger("harken.http")

BACKLOG = 512
MAX_PORT = 65_535
GRACE_SECONDS = 2
MAX_CONNECTIONS = 128
FIRST_REQUEST_SECONDS = 10.0


class Server(uvicorn.Server):
    """Uvicorn without its signal handlers: the daemon has its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is refused when there are too many, and ended when it asks for nothing.

    Every account of the machine can reach a loopback port; none may use up the daemon's file descriptors.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # narrowed by uvicorn
        """Take a connection, or end it at once."""
        if len(self.connections) >= MAX_CONNECTIONS:
            transport.close()
            return
        super().connection_made(transport)
        self.loop.call_later(FIRST_REQUEST_SECONDS, self._end_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection; one that was refused was never taken."""
        if self in self.connections:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a connection that was refused are dropped."""
        if self in self.connections:
            super().data_received(data)

    def _end_idle(self) -> None:
        if self in self.connections and getattr(self, "cycle", None) is None:
            self.transport.abort()


def bind(settings: HttpSettings, home: Home) -> socket.socket:
    """Listen on the configured port, or on the one used last time, or on a free one that is then kept."""
    wanted = settings.port or _remembered(home)
    try:
        sock = _listen(settings.host, wanted)
    except OSError as exc:
        if settings.port or exc.errno != errno.EADDRINUSE:
            raise UserError(
                f"Cannot listen on {settings.host}:{wanted} ({exc.strerror}).",
                "Choose another port: http.port in config.toml, 0 for any.",
            ) from exc
        _log.warning("port %d is taken by another program; choosing a new one", wanted)
        sock = _listen(settings.host, 0)
    write_private(home.port_file, f"{sock.getsockname()[1]}\n")
    return sock


def make_server(app: ASGIApp) -> Server:
    """Return a server for an application; `serve(sockets=[…])` runs it."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        http=BoundedProtocol,
        date_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return Server(config)


def hosts_of(host: str, port: int) -> frozenset[str]:
    """Return the Host headers that mean this server."""
    names = {host, "127.0.0.1", "localhost"} if host in ("127.0.0.1", "localhost") else {host}
    return frozenset(f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _remembered(home: Home) -> int:
    try:
        port = int(home.port_file.read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 < port <= MAX_PORT else 0
