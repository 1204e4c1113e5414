"""What the tests of satellites share: a main daemon that lets other machines in by TLS, and hands to knock with."""

from __future__ import annotations

import json
import queue
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve

from harken.config.home import Home
from harken.config.satellite import JoinRecord, join_home
from harken.daemon.satellites.link import HEAD, FrameKind
from tests.graph.certificate import write_loopback_pair
from tests.loss.rig import WAIT_SECONDS, Served, until
from tests.postgres.proxy import BadWay

Json: TypeAlias = Any
MACHINE_ID: Final = "0123456789abcdef" * 2


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@dataclass(slots=True)
class MainDaemon:
    """The daemon with the store, and how its public listener is reached."""

    served: Served
    authority: Path  # whom a machine has to trust
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        """Its address for other machines."""
        return f"https://localhost:{self.port}"

    def start(self) -> MainDaemon:
        """Start it; return when it lets other machines in."""
        self.served.start()
        until(lambda: self.served.call("status")["daemon"]["public_url"], "other machines are let in")
        return self

    def token(self, name: str = "buildbox") -> str:
        """Make a token for a machine; return its secret."""
        return str(self.served.call("token_new", name=name, kind="machine")["secret"])

    def client_context(self) -> ssl.SSLContext:
        """What a machine that trusts our authority connects with."""
        return ssl.create_default_context(cafile=self.authority)

    def raw(self) -> socket.socket:
        """A connection without TLS."""
        return socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS)

    def secure(self) -> ssl.SSLSocket:
        """A connection with TLS on which nothing was said."""
        return self.client_context().wrap_socket(self.raw(), server_hostname="localhost")

    def knock(self, token: str, machine: str = MACHINE_ID, **headers: str) -> ClientConnection:
        """Ask for a link; raises `InvalidStatus` when it is refused."""
        said = {"Authorization": f"Bearer {token}", "Harken-Machine": machine, "Harken-Link": "1", **headers}
        return connect(
            f"wss://localhost:{self.port}/link",
            ssl=self.client_context(),
            additional_headers=said,
            compression=None,
            open_timeout=WAIT_SECONDS,
            proxy=None,
        )


def let_machines_in(home: Path, port: int, folder: Path) -> Path:
    """Configure a home to let other machines in; return the file of the authority that vouches for it."""
    authority, server = write_loopback_pair(folder)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "config.toml").write_text(
        f'[http]\npublic_listen = "127.0.0.1:{port}"\npublic_url = "https://localhost:{port}"\n'
        f'certificate = "{server}"\nprivate_key = "{server}"\n'
    )
    return authority


def body(data: bytes) -> Mapping[str, Json]:
    """The error in an answer."""
    error: Mapping[str, Json] = json.loads(data)["error"]
    return error


@dataclass(slots=True)
class Pair:
    """A main daemon, and a satellite that is linked to it through a way that can be cut."""

    main: MainDaemon
    satellite: Served
    way: BadWay
    token: str

    def is_linked(self) -> bool:
        """Whether the main daemon says that the satellite is here."""
        return any(each["state"] == "here" for each in self.main.served.call("machines")["machines"])

    def start(self) -> Pair:
        """Start the satellite; return when it is linked."""
        self.satellite.start()
        until(self.is_linked, "the satellite is linked")
        return self


def join(home: Path, main: MainDaemon | FakeMain, token: str, port: int) -> None:
    """Make a home a satellite's, through the way at a port."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = JoinRecord(url=f"https://localhost:{port}", token=token, authority=str(main.authority), machine="buildbox")
    join_home(Home(home), record)


class RawLink:
    """A link by hand: its other end is ours, and says whatever a test wants to."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last = -1
        self.greeting = self.take()
        self._socket.send(b'{"version":"test"}')

    def take(self) -> bytes:
        """Return the next message."""
        return self._socket.recv(WAIT_SECONDS, decode=False)

    def say(self, kind: int, number: int = 0, data: bytes = b"") -> None:
        """Send a frame."""
        self._socket.send(HEAD.pack(kind, number) + data)

    def open(self, data: bytes, **facts: object) -> int:
        """Open a stream, and send what its connection says; return its number."""
        self._last += 2
        self.say(FrameKind.OPEN, self._last, json.dumps(facts).encode())
        self.say(FrameKind.DATA, self._last, data)
        return self._last

    def frames(self, *kinds: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield the frames of these kinds that come: the kind, the number and the data of each."""
        while True:
            frame = self.take()
            kind, number = HEAD.unpack_from(frame)
            if kind in kinds:
                yield kind, number, frame[HEAD.size :]

    def end(self) -> tuple[int, str]:
        """Return with what code, and why, the main daemon ends the link."""
        with suppress(ConnectionClosed):
            while True:
                self.take()
        closing = self._socket.protocol.close_rcvd
        return (closing.code, closing.reason) if closing is not None else (0, "")


def hook_lines(moment: str, payload: Mapping[str, object], pid: int) -> bytes:
    """Return what a hook of Claude Code says."""
    data = json.dumps(payload).encode()
    hello = {"harken": 1, "kind": "hook", "host": "claude-code", "moment": moment, "payload": len(data), "cwd": "/w"}
    return json.dumps(hello | {"ppid": pid, "env": {"CLAUDE_PID": str(pid)}}).encode() + b"\n" + data


class FakeMain:
    """What a satellite takes for its main daemon: it says and asks whatever a test wants to."""

    def __init__(self, folder: Path) -> None:
        self.authority, server = write_loopback_pair(folder)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(server)
        self._links: queue.Queue[ServerConnection] = queue.Queue()
        self._server = serve(self._greet, "localhost", 0, ssl=context, compression=None)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._is_over = threading.Event()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.socket.getsockname()[1])

    def _greet(self, link: ServerConnection) -> None:
        link.send(b'{"machine":"buildbox"}')
        link.recv(WAIT_SECONDS)
        self._links.put(link)
        self._is_over.wait()

    def link(self) -> ServerConnection:
        """Return the link of a satellite that has said who it is."""
        return self._links.get(timeout=WAIT_SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._server.shutdown()
        self._thread.join()


def take(link: ServerConnection, *kinds: int) -> tuple[int, int, bytes]:
    """Return the next frame of these kinds: its kind, its number and its data."""
    while True:
        frame = link.recv(WAIT_SECONDS, decode=False)
        kind, number = HEAD.unpack_from(frame)
        if kind in kinds:
            return kind, number, frame[HEAD.size :]


def ask(link: ServerConnection, number: int, **asked: object) -> Json:
    """Ask a satellite something; return its answer."""
    link.send(HEAD.pack(FrameKind.ASK, number) + json.dumps(asked).encode())
    while True:
        _, answered, data = take(link, FrameKind.ANSWER)
        if answered == number:
            return json.loads(data)
