"""The socket: accepts connections, reads each one's hello line, and hands it to the surface that it names.

`Endpoint` is where it listens and how others find it; `Ownership` knows the files by which they do, and by which a
second daemon is kept out.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import anyio
import msgspec
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.abc import Listener as SocketListener

from harken import __version__
from harken.config.home import Home, socket_path, write_private
from harken.daemon.callers import check_user, run_of
from harken.daemon.supervisor import contain
from harken.errors import Forbidden, HarkenError, Unavailable, UserError
from harken.hosts.hook import Hello
from harken.memory import json_bytes, sound_json
from harken.processes import LocalOrigin, Origin
from harken.store.files import FileKey, OpenFiles, file_key
from harken.surfaces.wire import LineReader, LineTooLong

if sys.platform != "win32":
    import resource

_log = logging.getLogger("harken.socket")

PROTOCOL = 1
HELLO_SECONDS = 10.0
AGENT_PLACES = 2_000
KEPT_PLACES = 100  # for hooks, and as many for the person's calls
# For the database, the journal, HTTP and whoever is being refused.
SPARE_FILES = 100
WANTED_FILES = 4_096
CALL, HOOK = "call", "hook"


class HelloLine(msgspec.Struct):
    """The first line of a connection."""

    harken: int
    kind: str
    edge: str = ""
    pid: int = 0
    ppid: int = 0
    cwd: str = ""
    consumer: str = ""
    task: str = ""
    resumed: bool = False
    resent: list[msgspec.Raw] = []
    cancelled: list[msgspec.Raw] = []
    env: dict[str, str] = {}
    token: str = ""
    host: str = ""
    moment: str = ""
    payload: int = 0
    in_task: bool = False
    native: str = ""
    once: bool = False


END_SOME: Final = "End some agents, or try again. How many there are: harken status"
Serve = Callable[[ByteStream, LineReader, Hello, Origin], Awaitable[None]]
"""Serves a connection; the last argument says which process is at its other end."""


@dataclass(frozen=True, slots=True)
class Places:
    """How many connections may be open: for agents, and more of them for hooks and for the person's calls."""

    agents: int = AGENT_PLACES
    hooks: int = KEPT_PLACES
    calls: int = KEPT_PLACES

    @property
    def all(self) -> int:
        """How many there are together."""
        return self.agents + self.hooks + self.calls

    @classmethod
    def within(cls, files: int) -> Self:
        """Return those of a process that may have so many files open."""
        most = max(3, min(cls().all, files - SPARE_FILES))
        kept = max(1, min(KEPT_PLACES, most // 10))
        return cls(agents=most - 2 * kept, hooks=kept, calls=kept)


def places_here() -> Places:
    """Return the places of this process, which claims the files that it needs for them, as far as it may."""
    if sys.platform == "win32":  # pragma: no cover - has no such limit
        return Places()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return Places()
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return Places.within(soft)


def _unknown(_origin: Origin, _hello: Hello) -> bool:
    """It is not known to be an agent."""
    return False


class Listener:
    """Hands connections to surfaces by kind."""

    def __init__(
        self,
        surfaces: Mapping[str, Serve],
        token: str = "",
        *,
        hello_seconds: float = HELLO_SECONDS,
        places: Places | None = None,
        find_run: Callable[[int], str] = run_of,
        is_agent: Callable[[Origin, Hello], bool] = _unknown,
        refusal: Callable[[], HarkenError] | None = None,
    ) -> None:
        self._surfaces = surfaces
        self._token = token
        self._hello_seconds = hello_seconds
        self._places = places or Places()
        self._find_run = find_run
        self._is_agent = is_agent  # says of a call whether it is an agent's
        self._refusal = refusal  # why nothing can be served
        self._open = 0
        self._silent: dict[anyio.CancelScope, None] = {}  # which have not said what they want, the oldest first

    @property
    def problem(self) -> str:
        """Why agents are refused now, in words; empty: they are not."""
        if self._open < self._places.agents:
            return ""
        return f"All {self._places.agents:,} places for agents are taken: one that connects now is refused."

    async def handle(self, stream: SocketStream) -> None:
        """Serve one connection to its end; a fault in it ends only this one."""
        self._open += 1
        try:
            async with stream:
                await contain("a connection", self._serve(stream))
        finally:
            self._open -= 1

    async def _serve(self, stream: SocketStream) -> None:
        try:
            peer = check_user(stream)
            if self._open > self._places.all and not self._end_a_silent_one():
                raise Unavailable("Too many connections are open.", END_SOME)
            lines = LineReader(stream)
            line = await self._hello(lines)
            if line is None:
                return
            serve = self._surface(line)
            if line.kind != "call" and self._find_run(peer):
                # What a run says would pass for an agent's word, and it would take mail that is for others.
                raise Forbidden("A run has no session of its own.", "Its prompt has what it needs.")
            hello, origin = _as_hello(line), LocalOrigin(peer)
            self._check_place(line.kind, hello, origin)
        except HarkenError as exc:
            await refuse(stream, exc)
            return
        await serve(stream, lines, hello, origin)

    def _check_place(self, kind: str, hello: Hello, origin: Origin) -> None:
        """Refuse a connection for which there is no place: agents first, the person last."""
        if self._open <= self._places.agents:
            return
        if kind == HOOK:
            if self._open > self._places.agents + self._places.hooks:
                raise Unavailable("Too many hooks are running.", END_SOME)
        elif kind != CALL or self._is_agent(origin, hello):
            raise Unavailable(f"All {self._places.agents:,} places for agents are taken.", END_SOME)

    def _end_a_silent_one(self) -> bool:
        """End the connection that has waited longest without saying what it wants; return whether there is one."""
        scope = next(iter(self._silent), None)
        if scope is None:
            return False
        del self._silent[scope]
        scope.cancel()
        return True

    async def handle_distant(self, stream: ByteStream, origin: Origin, *, is_in_run: bool) -> None:
        """Serve a connection of a satellite, which has checked the account at its other end."""
        lines = LineReader(stream)
        try:
            line = await self._hello(lines)
            if line is None:
                return
            serve = self._surface(line, has_token=True)
            if line.kind != "call" and is_in_run:
                raise Forbidden("A run has no session of its own.", "Its prompt has what it needs.")
        except HarkenError as exc:
            await refuse(stream, exc)
            return
        hello = _as_hello(line)
        # An edge gives itself its name: it is none of another machine's.
        await serve(stream, lines, replace(hello, edge=f"{hello.edge}@{origin.satellite}"), origin)

    async def _hello(self, lines: LineReader) -> HelloLine | None:
        data: bytes | None = None
        try:
            with anyio.move_on_after(self._hello_seconds) as scope:
                self._silent[scope] = None
                try:
                    data = await lines.read()
                finally:
                    self._silent.pop(scope, None)
        except LineTooLong:
            data = None
        if data is None:
            return None
        try:
            return msgspec.json.decode(sound_json(data), type=HelloLine)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise UserError("This is not a hello line.", "Connect with harken mcp or the harken command.") from exc

    def _surface(self, line: HelloLine, *, has_token: bool = False) -> Serve:
        if line.harken != PROTOCOL:
            raise UserError(
                f"The daemon speaks protocol {PROTOCOL}, the other side {line.harken}.",
                "Restart the daemon: harken down, then harken up.",
            )
        if self._token and not has_token and not hmac.compare_digest(line.token.encode(), self._token.encode()):
            raise Forbidden("The token is wrong.", "Only programs of the same user can read it.")
        if self._refusal is not None:
            raise self._refusal()
        serve = self._surfaces.get(line.kind)
        if serve is None:
            raise UserError(f"There is no kind {line.kind[:40]!r}.", f"Kinds: {', '.join(self._surfaces)}.")
        return serve


def _keys(ids: list[msgspec.Raw]) -> tuple[str, ...]:
    return tuple(bytes(item).decode("utf-8", "replace") for item in ids)


def _as_hello(line: HelloLine) -> Hello:
    return Hello(
        # A client that gives itself no name gets one: all without would be one session.
        edge=line.edge or secrets.token_hex(12),
        pid=max(0, line.pid),
        ppid=max(0, line.ppid),
        cwd=line.cwd,
        consumer=line.consumer,
        task=line.task,
        is_resumed=line.resumed,
        resent=_keys(line.resent),
        cancelled=_keys(line.cancelled),
        env=line.env,
        host=line.host,
        moment=line.moment,
        payload=max(0, line.payload),
        is_in_task=line.in_task,
        native=line.native,
        is_once=line.once,
    )


def as_line(kind: str, hello: Hello) -> bytes:
    """Return the hello line of a connection, for another daemon."""
    line = HelloLine(
        harken=PROTOCOL,
        kind=kind,
        edge=hello.edge,
        pid=hello.pid,
        ppid=hello.ppid,
        cwd=hello.cwd,
        consumer=hello.consumer,
        task=hello.task,
        resumed=hello.is_resumed,
        resent=[msgspec.Raw(key.encode()) for key in hello.resent],
        cancelled=[msgspec.Raw(key.encode()) for key in hello.cancelled],
        env=dict(hello.env),
        host=hello.host,
        moment=hello.moment,
        payload=hello.payload,
        in_task=hello.is_in_task,
        native=hello.native,
        once=hello.is_once,
    )
    return json_bytes(line) + b"\n"


async def refuse(stream: ByteStream, error: HarkenError) -> None:
    """Say why nothing is served; edges and commands understand it."""
    _log.warning("refused a connection: %s", error.message)
    try:
        await stream.send(json_bytes({"harken": PROTOCOL, "error": error.as_dict()}) + b"\n")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A listening endpoint: its address line, and the token that a hello must carry (empty: none)."""

    listener: SocketListener[SocketStream]
    address: str
    token: str = ""
    files: tuple[Path, ...] = ()  # by which others find it


@asynccontextmanager
async def open_endpoint(home: Home, transport: str) -> AsyncIterator[Endpoint]:
    """Listen while the context is open. The caller holds the home's lock."""
    if transport == "tcp" or (transport == "auto" and sys.platform == "win32"):
        async with await anyio.create_tcp_listener(local_host=LOOPBACK) as listener:
            port = listener.extra(SocketAttribute.local_port)
            token = secrets.token_urlsafe(32)
            yield Endpoint(listener=listener, address=f"tcp:{LOOPBACK}:{port}:{token}", token=token)
        return
    path = anyio.Path(socket_path(home, os.environ))
    own: FileKey | None = None
    # We hold the lock, so a socket file that is here was left by a daemon that is gone.
    await path.unlink(missing_ok=True)
    try:
        async with await anyio.create_unix_listener(path, mode=0o600) as unix:
            own = file_key(Path(path))
            yield Endpoint(listener=unix, address=f"unix:{path}", files=(Path(path),))
    finally:
        with anyio.CancelScope(shield=True):
            if own is None or file_key(Path(path)) == own:  # else another daemon has made its own there
                await path.unlink(missing_ok=True)


LOOK_SECONDS: Final = 1.0


class Ownership:
    """Knows the files by which others find this daemon, and are kept out."""

    def __init__(self, *paths: Path) -> None:
        self._files = OpenFiles(*paths)
        self._files.remember()

    @property
    def is_lost(self) -> bool:
        """Whether one of them is gone or another's."""
        return self._files.missing() is not None

    async def until_lost(self) -> Path:
        """Return which one, as soon as it is so."""
        while True:
            if (lost := self._files.missing()) is not None:
                return lost
            await anyio.sleep(LOOK_SECONDS)

    async def until_told(self, signals: AsyncIterable[signal.Signals]) -> None:
        """Return when a signal says so, or when the home is not this daemon's any more."""
        async with anyio.create_task_group() as tasks:

            async def leave() -> None:
                lost = await self.until_lost()
                _log.warning("stopping: %s is gone or another daemon's", lost)
                tasks.cancel_scope.cancel()

            tasks.start_soon(leave)
            async for number in signals:
                _log.info("stopping on %s", number.name)
                break
            tasks.cancel_scope.cancel()


def announce(home: Home, address: str, *, url: str, port_problem: str = "", store_problem: str = "") -> None:
    """Write where the daemon can be found, when it is ready; what it says of itself comes last."""
    facts = {
        "pid": os.getpid(),
        "version": __version__,
        "url": url,
        "port_problem": port_problem,
        "store_problem": store_problem,
    }
    write_private(home.address_file, f"{address}\n")
    write_private(home.daemon_file, json_bytes(facts).decode() + "\n")
