"""A real daemon in a process of its own, to be talked to, killed and started again.

For tests, the benchmark and the demo. It is started the way people start it and ended by the process id we got;
nothing here reaches into the daemon.

The project's tests start thousands of commands and hundreds of daemons, and most of their time would go into imports.
So a server that has imported everything (`tests/fork_server.py`) forks them. Where there is none, and where what is
asked for could differ from a process of its own, one is started as usual.
"""

from __future__ import annotations

import inspect
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, TypeAlias

FORK_SERVER: Final = "FORK_SERVER_OF_TESTS"
"""The variable with the path of the server's socket."""
ENVIRONMENT_FILE: Final = "environment.json"
PopenOption: TypeAlias = Any
"""Whatever `Popen` takes for one of its many parameters."""
_MAX_STATUS_BYTES: Final = 32
_AT_START: Final = ("PYTHON", "LC_", "LANG")  # of what an interpreter looks at while it starts, and never again
_MAX_COMMAND_BYTES: Final = 8_000  # as much room as the server has
_KEPT: Final = "PYTHONDONTWRITEBYTECODE"
# What is replaced of `Popen` is private: where a Python has it otherwise, processes are started as usual.
_PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_PARAMETERS: Final = tuple(inspect.signature(getattr(subprocess.Popen, "_execute_child", print)).parameters)
_IS_AS_KNOWN: Final = {"cwd", "env", "start_new_session", *_PIPES} <= {*_PARAMETERS} and all(
    hasattr(subprocess.Popen, name) for name in ("_close_pipe_fds", "_internal_poll", "_wait")
)
READY_SECONDS = 30.0
STOP_SECONDS = 20.0
ANSWER_SECONDS = 70.0
Json: TypeAlias = Any
"""Whatever the JSON says: tests look into it."""


def at_start(env: Mapping[str, str]) -> Mapping[str, str]:
    """Return what an interpreter takes from an environment only while it starts."""
    return {name: value for name, value in env.items() if name.startswith(_AT_START) and name != _KEPT}


@cache
def _begun_with(server: str) -> Mapping[str, str]:
    """Return what a server has started with, before tests set more: it is noted beside the socket."""
    found: Mapping[str, str] = json.loads(Path(server).with_name(ENVIRONMENT_FILE).read_text())
    return found


def is_forked(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a command is started by the server: there is one, and its processes are as one of their own would be."""
    is_ours = command[0] == sys.executable and "harken" in command[1:4] and command[1] in ("-I", "-m")
    server = os.environ.get(FORK_SERVER)
    if server is None or not is_ours or not _IS_AS_KNOWN:
        return False
    return at_start(env) == _begun_with(server) and len(os.fsencode(shlex.join(command))) < _MAX_COMMAND_BYTES


def start_harken(
    command: Sequence[str], env: Mapping[str, str] | None = None, **options: PopenOption
) -> subprocess.Popen[bytes]:
    """Start a command with the arguments of `Popen`; it is forked if there is a server and the command is `harken`."""
    wanted = {name: value for name, value in (os.environ if env is None else env).items() if name != FORK_SERVER}
    start: Callable[..., subprocess.Popen[bytes]] = ForkedProcess if is_forked(command, wanted) else subprocess.Popen
    return start(command, env=wanted, **options)


class ForkedProcess(subprocess.Popen[bytes]):
    """A process that the server has started for us: it is the server's child, and the server tells how it ended."""

    _close_pipe_fds: Callable[..., None]

    def _execute_child(self, args: Sequence[str], *given: PopenOption) -> None:
        """Ask for the process, where `Popen` would fork; `given` is what follows in its private method."""
        named = dict(zip(_PARAMETERS, (self, args, *given), strict=False))
        cwd, env = named["cwd"], named["env"]
        stdin, stdout, stderr = named["p2cread"], named["c2pwrite"], named["errwrite"]
        asked = {"argv": args, "env": env, "cwd": str(cwd or Path.cwd()), "is_leader": named["start_new_session"]}
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.connect(os.environ[FORK_SERVER])
        streams = [given_fd if given_fd >= 0 else own for own, given_fd in enumerate((stdin, stdout, stderr))]
        socket.send_fds(self._server, [json.dumps(asked).encode()], streams)
        self.pid = int(self._server.recv(_MAX_STATUS_BYTES))
        self._child_created = True
        self._close_pipe_fds(*(named[name] for name in _PIPES))

    def _internal_poll(self, **_given: object) -> int | None:
        return self._ended(0.0)

    def _wait(self, timeout: float | None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._server], [], [], seconds)[0]:
            # A server that is gone has taken its children with it.
            self.returncode = int(self._server.recv(_MAX_STATUS_BYTES) or -signal.SIGKILL)
            self._server.close()
        return self.returncode


class CallFailed(Exception):
    """The daemon answered a call with an error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error.get("message", ""))
        self.error = error


class SocketClient:
    """A blocking client of the daemon's socket, as the command line is one."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(ANSWER_SECONDS)
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._file = self._socket.makefile("rwb")
        self._next = 0
        self._write({"harken": 1, "kind": "call"})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()

    def call(self, method: str, **params: object) -> Json:
        """Return the result of a verb; raises `CallFailed`, or `ConnectionError` when the daemon is gone."""
        self.ask(method, **params)
        return self.answer()

    def ask(self, method: str, **params: object) -> None:
        """Send a call without waiting for its answer."""
        self._next += 1
        self._write({"id": self._next, "method": method, "params": params})

    def answer(self) -> Json:
        """Return the next result."""
        line = self._file.readline()
        if not line:
            raise ConnectionResetError("the daemon closed the connection")
        message = json.loads(line)
        if "error" in message:
            raise CallFailed(message["error"])
        return message["result"]

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()

    def _write(self, message: Mapping[str, object]) -> None:
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()


class DaemonProcess:
    """A daemon for one home."""

    def __init__(self, home: Path, command: Sequence[str] = ()) -> None:
        self.home = home
        self._command = tuple(command) or (sys.executable, "-I", "-m", "harken", "serve", "--home", str(home))
        self._is_plain = not command
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        if self._process is None:
            raise RuntimeError("the daemon was not started")
        return self._process.pid

    @property
    def facts(self) -> Json:
        """What the daemon wrote about itself."""
        return json.loads((self.home / "run" / "daemon.json").read_text())

    def start(self) -> Self:
        """Start it and return when it is ready."""
        # A file, because a pipe that nobody empties would in the end stop the daemon.
        descriptor, name = tempfile.mkstemp()
        self._said = os.fdopen(descriptor, "w+b")
        Path(name).unlink()
        self._process = self._launch(self._said)
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Return when the daemon of this process answers."""
        end = time.monotonic() + READY_SECONDS
        while not self._is_ready():
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(f"the daemon ended with {self._process.returncode}: {self._last_words()}")
            if time.monotonic() > end:
                raise TimeoutError("the daemon did not become ready")
            select.select([], [], [], 0.01)

    def _launch(self, said: IO[bytes]) -> subprocess.Popen[bytes]:
        start = start_harken if self._is_plain else subprocess.Popen[bytes]
        return start(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)

    def _last_words(self) -> str:
        if self._said is None:
            return ""
        with self._said as said:
            said.seek(0)
            return said.read().decode()

    def kill(self) -> None:
        """End it with SIGKILL: no chance to finish anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it with SIGTERM; return its exit code."""
        return self._end(signal.SIGTERM)

    def caller(self) -> SocketClient:
        """Return a client."""
        return SocketClient(self.socket)

    def call(self, method: str, **params: object) -> Json:
        """Return the result of a verb, over a connection of its own."""
        with self.caller() as caller:
            return caller.call(method, **params)

    @property
    def socket(self) -> str:
        """The path of the socket."""
        return (self.home / "run" / "address").read_text().strip().removeprefix("unix:")

    def edge_command(self, consumer: str = "") -> list[str]:
        """Return the command that a host would start."""
        return edge_command(self.home, consumer)

    def _is_ready(self) -> bool:
        try:
            return self._process is None or bool(self.facts["pid"] == self._process.pid)
        except (OSError, ValueError):
            return False

    def _end(self, number: int) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            os.kill(process.pid, number)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)
            raise
        finally:
            self._process = None
            if self._said is not None:
                self._said.close()
        return code


def edge_command(home: Path, consumer: str = "") -> list[str]:
    """Return the command that starts an edge for a home."""
    script = Path(__file__).parents[1] / "edge" / "mcp.py"
    extra = ["--consumer", consumer] if consumer else []
    return [sys.executable, "-I", "-S", str(script), "--home", str(home), *extra]


@contextmanager
def running_daemon(home: Path) -> Iterator[DaemonProcess]:
    """A daemon that is stopped at the end."""
    daemon = DaemonProcess(home).start()
    try:
        yield daemon
    finally:
        daemon.stop()
