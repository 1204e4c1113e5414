"""HTTP inside the daemon: one listening socket, served by uvicorn in our own event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import socket
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

import psutil
import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from harken.config.home import Home, disk_error, write_private
from harken.daemon.callers import CONNECTION
from harken.errors import UserError
from harken.surfaces.doors import WHOLE_BODY
from harken.surfaces.wire import ASKED_AT, CARRIER, Answering, WholeAnswer, WholeRequests

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

if sys.platform != "win32":
    import fcntl
    import resource
    import termios

_log = logging.getLogger("harken.http")

BACKLOG = 512
MAX_PORT = 65_535
GRACE_SECONDS = 2
MAX_CONNECTIONS = 320  # a hundred open pages with a stream each, what they ask meanwhile, and programs
FIRST_REQUEST_SECONDS = 10.0
BODY_SECONDS = 60.0
STALLED_SECONDS = 60.0
PROMPT_SECONDS = 1.0  # within which a client asks for what it has made a connection for
LAST_SECONDS = 1.0  # how long a client has to end the connection of its last answer, where that is evidence
MAX_HEAD_BYTES = 64 * 1024
SEND_BUFFER_BYTES = 128 * 1024
_BYTES_ACKED: Final = 120  # where it is in the kernel's struct tcp_info
_TCP_INFO_BYTES: Final = 128
_STATUS_LINES: Final[Mapping[int, bytes]] = MappingProxyType(
    {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}
)
MAX_FRAME_BYTES = 1 << 20  # of a web socket's message
SIGN_SECONDS = 10.0  # between two signs of life on a web socket
SILENT_SECONDS = 20.0  # how long the other side of a web socket has for its own: a machine may be very busy

OnTaken = Callable[[int, str], None]
"""Is told of a port that is taken, and by whom in words."""


class Server(uvicorn.Server):
    """Uvicorn without its signal handlers: the daemon has its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    def stop_listening(self) -> None:
        """Take no connection from now on, and end when those that are open have ended."""
        for listener in getattr(self, "servers", ()):  # there is none before it has begun
            listener.close()
        self.should_exit = True

    async def end(self) -> None:
        """End the connections that are open, and wait for what serves them; for a server that was cancelled."""
        if self.started:
            await self.shutdown([])


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is refused when there are too many, and ended when it does not ask, read or come to an end.

    Every account of the machine can reach a loopback port; none may use up the daemon's file descriptors or memory.
    """

    _head_bytes = 0  # of the request's line and headers
    _unseen_bytes = 0  # that the parser took without having anything to tell
    _stalled: asyncio.TimerHandle | None = None
    _head: asyncio.TimerHandle | None = None
    _body: asyncio.TimerHandle | None = None
    _is_in_head = False
    _is_in_body = False
    _is_reset = False
    _acknowledged = 0  # bytes, when the connection ended
    _attended: socket.socket | None = None  # the same connection, to be asked what was acknowledged when it has ended
    _is_given_up = False  # by us: how the other side ends it afterwards tells nothing
    _is_last = False  # the other side wants no further answer
    _accepted_at: float | None = None  # before the handshake, while nothing was asked
    _ready_at = 0.0
    is_over = False
    _whole: WholeRequests | None = None
    _is_fed = False  # bytes are parsed now
    _unbegun: tuple[RequestResponseCycle, ASGI3Application] | None = None  # whose rest may be among those bytes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # narrowed by uvicorn
        """Take a connection, or end it at once."""
        if len(self.connections) >= _most_connections():
            transport.close()
            return
        super().connection_made(transport)
        self._ready_at = time.monotonic()
        app: object = self.app
        self._whole = app if isinstance(app, WholeRequests) else None
        self._noted: dict[object, object] = {}  # of this connection, by whoever serves it
        self.loop.call_later(FIRST_REQUEST_SECONDS, self._end_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection; one that was refused was never taken."""
        self._forget_stall()
        self._forget_head()
        self._forget_body()
        # A system that has not given its program everything resets the connection. One that closed it before, after it
        # had, resets it too, when something more arrives: Linux calls that a broken pipe. So does one that was told of
        # our end, and has not read that.
        self._is_reset = exc is not None and not isinstance(exc, BrokenPipeError) and not self._is_given_up
        if not (self._is_given_up and exc is not None):
            self._acknowledged = _sent_bytes(self._attended).acknowledged
        if self._attended is not None:
            self._attended.close()
        self.is_over = True
        if self in self.connections:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a connection that was refused are dropped."""
        if self not in self.connections or self._is_last:
            return
        self._unseen_bytes += len(data)
        idle = self.timeout_keep_alive_task
        self._is_fed = True
        super().data_received(data)
        self._is_fed = False
        self._begin()
        if idle is not None and self in self.connections and not self._is_in_head and self.cycle.response_complete:
            # Empty lines are no request: they keep no connection.
            self._end_at(idle.when())
        if self._is_in_head and self._head is None:
            # Only for one that did not come whole: a timer for each would cost more than to parse it.
            self._head = self.loop.call_later(FIRST_REQUEST_SECONDS, self.transport.abort)
        if self._is_in_body and self._body is None:
            # Whatever was answered meanwhile: a body that never ends would keep the connection for ever.
            self._body = self.loop.call_later(BODY_SECONDS, self.transport.abort)
        if max(self._unseen_bytes, self._head_bytes) > MAX_HEAD_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Begin a request; its line and headers have to come soon, on a connection that was used before too."""
        self._head_bytes = 0
        self._forget_head()
        self._is_in_head = True
        super().on_message_begin()
        known: dict[str, dict[object, object]] = {CONNECTION: self._noted, CARRIER: cast("dict[object, object]", self)}
        known[ASKED_AT] = {"at": self._asked_at()}
        self.scope["extensions"] = known

    def _asked_at(self) -> float:
        """Return when a request that begins now was sent at the earliest: for the first one a connection was made."""
        accepted, self._accepted_at = self._accepted_at, None
        now = time.monotonic()  # that of the loop may stand still between an answer and the next call
        return now if accepted is None or now > self._ready_at + PROMPT_SECONDS else accepted

    def on_url(self, url: bytes) -> None:
        """Take a part of the request's line."""
        self._head_bytes += len(url)
        if self._head_bytes <= MAX_HEAD_BYTES:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._unseen_bytes = 0
        self._head_bytes += len(name) + len(value)
        # After the body they are no headers: who checks those before us has not seen them.
        if self._head_bytes <= MAX_HEAD_BYTES and not self._is_in_body:
            # Spaces around a value are no part of it, and the parser leaves those after it.
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """Begin to answer; of a request that is too large nothing was kept that could be answered."""
        self._forget_head()
        self._is_in_head = False
        self._is_in_body = True
        self._unseen_bytes = 0
        if self._head_bytes <= MAX_HEAD_BYTES:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body; how much of it is wanted, the application decides."""
        self._unseen_bytes = 0
        if self._head_bytes <= MAX_HEAD_BYTES:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request; an application that has not begun is told that it need not wait for the body."""
        self._forget_body()
        self._is_in_body = False
        self._unseen_bytes = 0
        if self._head_bytes <= MAX_HEAD_BYTES:
            self.scope["extensions"] = {**self.scope["extensions"], WHOLE_BODY: {}}
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Begin to answer; a request of which more is about to be parsed waits for that."""
        self._unbegun = cycle, app
        if not self._is_fed:
            self._begin()

    def _begin(self) -> None:
        """Answer a request that is here as a whole in one step, where the application does that; others as usual."""
        if self._unbegun is None:
            return
        (cycle, app), self._unbegun = self._unbegun, None
        is_whole = not cycle.more_body and not cycle.waiting_for_100_continue
        begun = self._whole.begin(cast("Scope", cycle.scope), bytes(cycle.body)) if self._whole and is_whole else None
        super()._start_asgi_task(cycle, app if begun is None else self._in_one_step(cycle, begun))

    def _in_one_step(self, cycle: RequestResponseCycle, answering: Answering) -> ASGI3Application:
        """Return what answers a request so; its faults are told as those of any application."""

        async def answer(_scope: object, _receive: object, _send: object) -> None:
            whole = await answering()
            if cycle.flow.write_paused and not cycle.disconnected:
                await cycle.flow.drain()
            if not cycle.disconnected:
                self._write(cycle, whole)

        return answer

    def _write(self, cycle: RequestResponseCycle, whole: WholeAnswer) -> None:
        lines = [b"%b: %b\r\n" % header for header in whole.headers]
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines):
            raise ValueError("a header has more than one line")
        length = b"content-length: %d\r\n\r\n" % len(whole.body)
        cycle.response_started = True
        self.transport.write(b"".join((_STATUS_LINES[whole.status], head, length, whole.body)))
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def forget_request(self) -> None:
        """The request is over for this protocol: another one has the connection now."""
        self._forget_stall()
        self._forget_head()
        self._forget_body()
        self._is_in_head = self._is_in_body = False
        self._head_bytes = self._unseen_bytes = 0

    def attend(self) -> None:
        """Prepare to say whether the other side takes the answer to the request that came last.

        How it ends the connection tells that, and not what it does after our own end: so the connection stays open for
        a moment after the answer, also when the other side wants only this one.
        """
        sock = self.transport.get_extra_info("socket")
        if self._attended is None and sock is not None and not self.is_over:
            with suppress(OSError):  # no file descriptors are left
                self._attended = socket.socket(fileno=os.dup(sock.fileno()))
        if not self.cycle.keep_alive:
            self.cycle.keep_alive = self._is_last = True

    def on_response_complete(self) -> None:
        """Wait for the next request, or only for the end."""
        super().on_response_complete()
        if self._is_last and self.timeout_keep_alive_task is not None:
            self._end_at(self.loop.time() + LAST_SECONDS)

    def timeout_keep_alive_handler(self) -> None:
        """End a connection that nothing was asked on for a while: until now it was not reset."""
        self._acknowledged = _sent_bytes(self._attended).acknowledged
        self._is_given_up = True
        super().timeout_keep_alive_handler()

    def sent(self) -> AnswerOnWire:
        """Return what stands for all that was written until now."""
        written = _sent_bytes(self._attended).written
        # What is not with the system yet has no end that could be known, for TLS makes records of it.
        is_whole = not any(each.get_write_buffer_size() for each in _transports(self.transport))
        return AnswerOnWire(self, written if is_whole else sys.maxsize, time.monotonic())

    def is_acknowledged(self, end: int) -> bool | None:
        """Whether the other side took the bytes until `end`; None while that may still come."""
        if not self.is_over:
            return _sent_bytes(self._attended).acknowledged >= end or None
        return not self._is_reset and self._acknowledged >= end

    def pause_writing(self) -> None:
        """Give a client that does not read some time."""
        super().pause_writing()
        self._forget_stall()
        self._stalled = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with a client that reads again."""
        self._forget_stall()
        super().resume_writing()

    def _forget_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _forget_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _forget_body(self) -> None:
        if self._body is not None:
            self._body.cancel()
            self._body = None

    def _end_at(self, when: float) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_at(when, self.timeout_keep_alive_handler)

    def _end_idle(self) -> None:
        if self in self.connections and getattr(self, "cycle", None) is None:
            self.transport.abort()


@dataclass(frozen=True, slots=True)
class AnswerOnWire:
    """An answer that was written to a connection, and the byte with which it ends."""

    connection: BoundedProtocol
    end: int
    at: float

    def is_taken(self) -> bool | None:
        """Whether the other side took all of it; None: not known yet."""
        return self.connection.is_acknowledged(self.end)


@dataclass(frozen=True, slots=True)
class _SentBytes:
    """How much was written to a connection, and how much of it the other side's system has acknowledged."""

    acknowledged: int = 0
    written: int = 0


def _sent_bytes(sock: socket.socket | None) -> _SentBytes:
    """Return what the system tells; where it tells nothing, everything counts as acknowledged."""
    if sys.platform != "linux":
        return _SentBytes()
    if sock is None:
        return _SentBytes(written=sys.maxsize)
    waiting, acknowledged = array("i", [0]), -1
    try:
        while (told := _acknowledged_bytes(sock)) != acknowledged:  # else it grew while the rest was asked for
            acknowledged = told
            fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, waiting)
    except OSError:
        return _SentBytes(written=sys.maxsize)
    return _SentBytes(acknowledged, acknowledged + waiting[0]) if acknowledged >= 0 else _SentBytes()


def _acknowledged_bytes(sock: socket.socket) -> int:
    """Return how many bytes the other side's system has acknowledged; -1 of a kernel before 4.1."""
    told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    return int.from_bytes(told[_BYTES_ACKED:], sys.byteorder) if len(told) == _TCP_INFO_BYTES else -1


def _transports(transport: asyncio.Transport) -> list[asyncio.Transport]:
    """Return a transport and, of TLS, the one below it, which has a buffer of its own and no public name."""
    below: asyncio.Transport | None = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return [transport] if below is None else [transport, below]


def _most_connections() -> int:
    """Return how many connections of a listener may be open; of two, half of the files that the process may open."""
    if sys.platform == "win32":  # pragma: no cover - has no such limit
        return MAX_CONNECTIONS
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MAX_CONNECTIONS, soft // 4))


def bind(
    host: str, port: int, kept: Path, setting: str, *, is_known: bool = False, on_taken: OnTaken | None = None
) -> socket.socket:
    """Listen on the configured port, or on the one used last time, or on a free one that is then kept in a file.

    One that others know is not changed: a program that took it would be told what is meant for us. `on_taken` is told
    of a port that another program has, and which, before anything else happens.
    """
    wanted = port or _remembered(kept)
    try:
        sock = listen(host, wanted)
    except OSError as exc:
        is_taken = exc.errno == errno.EADDRINUSE
        holder = holder_of(wanted) if is_taken else ""
        if is_taken and on_taken is not None:
            on_taken(wanted, holder)
        if port or is_known or not is_taken:
            raise UserError(
                f"Cannot listen on {host}:{wanted} ({f'{holder} does' if is_taken else exc.strerror}).",
                f"Choose another port: {setting} in config.toml, 0 for any.",
            ) from exc
        _log.warning("port %d is taken by %s; choosing a new one", wanted, holder)
        sock = listen(host, 0)
    write_private(kept, f"{sock.getsockname()[1]}\n")
    return sock


def url_of(sock: socket.socket) -> str:
    """Return the address of a listening socket, as a browser wants it."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: ASGIApp, *, web_socket: type[asyncio.Protocol] | None = None) -> Server:
    """Return a server for an application, with web sockets if a protocol is given; `serve(sockets=[…])` runs it."""
    # It warns of what anybody can send it; the log is for what matters.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        http=BoundedProtocol,
        ws=web_socket or "none",
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_interval=SIGN_SECONDS,
        ws_ping_timeout=SILENT_SECONDS,
        ws_per_message_deflate=False,
        proxy_headers=False,
        date_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return Server(config)


def hosts_of(host: str, port: int) -> frozenset[str]:
    """Return the Host headers that mean this server."""
    names = {host, "127.0.0.1", "localhost"} if host in ("127.0.0.1", "localhost") else {host}
    return frozenset(f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, because an event loop sends small answers at once only on what it knows to be TCP.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # For each connection; else the system would keep megabytes for each client that does not read.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _remembered(kept: Path) -> int:
    try:
        port = int(kept.read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 < port <= MAX_PORT else 0


if sys.platform != "win32":
    import pwd

UNKNOWN: Final = "another program"

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS: Final = "0A"
_FIELDS: Final = 8


def holder_of(port: int) -> str:
    """Return who listens at a port, in words."""
    process, account = _process(port), _account(port)
    if process and account:
        return f"{process} of the account {account}"
    return process or (f"a program of the account {account}" if account else UNKNOWN)


def _process(port: int) -> str:
    try:
        found = (
            each.pid
            for each in psutil.net_connections("tcp")
            if each.laddr and each.laddr.port == port and each.status == psutil.CONN_LISTEN and each.pid
        )
        pid = next(found, None)
        return f"{psutil.Process(pid).name()} (process {pid})" if pid else ""
    except (psutil.Error, OSError):
        return ""


def _account(port: int) -> str:
    """Return the name of the account that listens there, or its number; empty where that is not told."""
    if sys.platform != "linux":
        return ""
    for table in _TABLES:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except (OSError, UnicodeDecodeError):
            continue
        for fields in (line.split() for line in lines):
            is_it = len(fields) >= _FIELDS and fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port
            if is_it:
                return _account_name(int(fields[7]))
    return ""


def _account_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def api_token(home: Home) -> str:
    """Return the token of the HTTP API, made once."""
    try:
        token = home.token_file.read_text().strip()
    except FileNotFoundError:
        token = ""
    except OSError as exc:
        raise disk_error("read", home.token_file, exc) from exc
    except UnicodeDecodeError as exc:
        raise UserError(f"{home.token_file} is not a token.", "Remove it: a new one is made.") from exc
    if not token:
        token = secrets.token_urlsafe(32)
        write_private(home.token_file, token + "\n")
    return token
