"""Both ends of an edge: a host that starts the real script, and a daemon that does what the test says.

Nothing here runs by itself: each test reads and writes both ends in story order, and every wait is bounded.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

SCRIPT = Path(__file__).parents[2] / "src" / "harken" / "edge" / "mcp.py"
WAIT_SECONDS = 20.0
PROOF = "0123:4567"  # the token of the address file

Json = dict[str, object]

DISCOVER: Json = {"jsonrpc": "2.0", "id": "probe-1", "method": "server/discover", "params": {"_meta": {}}}
INITIALIZE: Json = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
INITIALIZED: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}


REPORT = """
import json, os, sys
facts = {"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "leads": os.getsid(0) == os.getpid(),
         "umask": os.umask(0o022), "blocked": [line for line in open("/proc/self/status") if line.startswith("SigBlk")],
         "quiet": [os.readlink(f"/proc/self/fd/{n}") for n in range(3)], "pid": os.getpid(),
         "open": [n for n in os.listdir("/proc/self/fd") if int(n) > 3]}
with open(PIPE, "w") as pipe:
    pipe.write(json.dumps(facts) + "\\n")
"""

SERVE = """
import os, socket
home = sys.argv[sys.argv.index("--home") + 1]
path = home + "/run/harken.sock"
if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
listener.settimeout(20)
with open(home + "/run/address", "w") as file:
    file.write("unix:" + path)
edge = listener.accept()[0]
for line in edge.makefile("r"):
    message = json.loads(line)
    if "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"pid": os.getpid()}}
        edge.sendall(json.dumps(answer).encode() + b"\\n")
"""


def request(identifier: object, method: str = "tools/call", **params: object) -> Json:
    """A request of the host."""
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}


def result(identifier: object, **value: object) -> Json:
    """An answer that went well."""
    return {"jsonrpc": "2.0", "id": identifier, "result": value}


def encode(message: Json | bytes) -> bytes:
    """A line; bytes are taken as they are."""
    return message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"


class LineReader:
    """Reads lines from a descriptor, never longer than `WAIT_SECONDS`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.buffer = b""

    def line(self) -> bytes:
        """The next line with its newline; what is left when the other side closed."""
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.descriptor], [], [], WAIT_SECONDS)
            assert ready, f"no line within {WAIT_SECONDS} s; so far {self.buffer[:200]!r}"
            try:
                data = os.read(self.descriptor, 1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                rest, self.buffer = self.buffer, b""
                return rest
            self.buffer += data
        line, newline, self.buffer = self.buffer.partition(b"\n")
        return line + newline

    def message(self) -> Json:
        """The next line as JSON."""
        value = json.loads(self.line())
        assert isinstance(value, dict)
        return value

    def is_quiet(self, seconds: float = 0.3) -> bool:
        """Whether nothing comes for a moment."""
        return not self.buffer and not select.select([self.descriptor], [], [], seconds)[0]


class Connection(LineReader):
    """One edge, seen from the daemon."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.fileno())
        self.sock = sock
        self.hello = self.message()

    def send(self, message: Json | bytes) -> None:
        """Send one line to the edge."""
        self.sock.sendall(encode(message))

    def close(self) -> None:
        """Break the connection."""
        self.sock.close()


class FakeDaemon:
    """Listens where a daemon would, and names the place in the address file."""

    def __init__(self, home: Path, transport: str) -> None:
        self.home = home
        self.connections: list[Connection] = []
        if transport == "unix":
            self.listener = socket.socket(socket.AF_UNIX)
            path = home / "run" / "harken.sock"
            path.unlink(missing_ok=True)
            self.listener.bind(str(path))
            self.address = f"unix:{path}"
        else:
            self.listener = socket.create_server(("127.0.0.1", 0))
            self.address = f"tcp:127.0.0.1:{self.listener.getsockname()[1]}:{PROOF}"
        self.listener.listen(8)
        self.listener.settimeout(WAIT_SECONDS)
        (home / "run" / "address").write_text(self.address + "\n")

    def accept(self) -> Connection:
        """The next edge that connects, with its hello."""
        sock, _ = self.listener.accept()
        sock.settimeout(WAIT_SECONDS)
        self.connections.append(Connection(sock))
        return self.connections[-1]

    def refuse(self, **error: object) -> Connection:
        """Refuse the next edge that connects. It is read first: closing a socket with unread bytes resets it."""
        connection = self.accept()
        connection.send({"harken": 1, "error": error})
        connection.sock.shutdown(socket.SHUT_WR)
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Be gone: connecting is refused from now on."""
        self.listener.close()
        for connection in self.connections:
            connection.close()


class Host:
    """A host with the edge as its child."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin = process.stdin
        self.stdout = LineReader(process.stdout.fileno())

    def send(self, message: Json | bytes) -> None:
        """Write one line to the edge."""
        self.stdin.write(encode(message))
        self.stdin.flush()

    def read(self) -> Json:
        """The next line of the edge."""
        return self.stdout.message()

    def close_stdout(self) -> None:
        """Stop listening to the edge for good."""
        assert self.process.stdout is not None
        self.process.stdout.close()

    def exit_code(self) -> int:
        """How the edge ended."""
        return self.process.wait(WAIT_SECONDS)

    def memory_kb(self, field: str) -> int:
        """What the kernel says about the edge's memory: `VmRSS` now, `VmHWM` at most."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))


@contextmanager
def started(
    home: Path,
    *options: str,
    interpreter: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    leaked: tuple[int, ...] = (),
    through: tuple[str, ...] = (),
) -> Iterator[Host]:
    """Start the edge as a host does, itself or `through` a program that becomes it, and end it."""
    command = [*through, sys.executable, "-I", "-S", *interpreter, str(SCRIPT), "--home", str(home), *options]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=cwd, pass_fds=leaked)
    with process:
        try:
            yield Host(process)
        finally:
            process.kill()


@contextmanager
def in_background(write: Callable[[], None]) -> Iterator[None]:
    """Write more than the pipes hold, while the test reads the other end."""
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    yield
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


def shake_hands(host: Host, connection: Connection) -> None:
    """The 2025 handshake, to its end."""
    host.send(INITIALIZE)
    assert connection.message() == INITIALIZE
    connection.send(result(0, serverInfo={}))
    assert host.read() == result(0, serverInfo={})
    host.send(INITIALIZED)
    assert connection.message() == INITIALIZED


def program(home: Path, body: str) -> str:
    """An executable that stands in for the interpreter that runs the daemon."""
    path = home / "program"
    path.write_text(f"#!{sys.executable} -S\nPIPE = {str(home / 'pipe')!r}\n{body}")
    path.chmod(0o700)
    return str(path)


def parents() -> dict[int, int]:
    """Every process, and its parent."""
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue  # it has just ended
        found[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    return found


def tree(root: int) -> set[int]:
    """A process and everything that descends from it."""
    known, family = parents(), {root}
    while more := {pid for pid, parent in known.items() if parent in family} - family:
        family |= more
    return family


def ancestors(pid: int) -> list[int]:
    """The processes from which a process descends."""
    known, found = parents(), list[int]()
    while (pid := known.get(pid, 0)) > 0:
        found.append(pid)
    return found
