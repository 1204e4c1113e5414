"""What the loss tests share: daemons that start quickly and can be killed, a stubborn writer, the journal's lines.

Every wait is bounded and ends as soon as what it waits for has happened. Nothing here looks into a daemon's memory:
it is judged by its answers, its files and its exit code.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from harken.testing import CallFailed, DaemonProcess, EdgeClient, edge_command

WAIT_SECONDS = 20.0
IMPORT_SECONDS = 60.0
MAX_PAUSE_SECONDS = 0.1
PAUSE_SECONDS = 0.005

CALL_HELLO: Final = b'{"harken":1,"kind":"call"}\n'

Json: TypeAlias = Any
"""Whatever the JSON says: tests look into it."""


class Chance(random.Random):
    """The same surprises in every run."""


def until(
    condition: Callable[[], object],
    what: str = "it is so",
    seconds: float = WAIT_SECONDS,
    *,
    pause_seconds: float | None = None,
) -> Json:
    """Return the first true value of a condition, or fail when it takes too long.

    Most conditions ask a daemon, which keeps it from what is waited for: the longer it takes, the less often it is
    asked, unless a pause is given.
    """
    begin = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - begin
        assert waited < seconds, f"not within {seconds} s: {what}"
        growing = min(max(PAUSE_SECONDS, waited / 10), MAX_PAUSE_SECONDS)
        select.select([], [], [], growing if pause_seconds is None else pause_seconds)
    return value


class Served(DaemonProcess):
    """A daemon that the starter started: not our child, so its end is seen through a process descriptor."""

    def __init__(self, starter: DaemonStarter, home: Path, environ: Mapping[str, str]) -> None:
        super().__init__(home)
        self._environ = environ
        self._starter = starter
        self._pid = 0
        self._handle = -1

    @property
    def pid(self) -> int:
        """The process id."""
        return self._pid

    def start(self, **order: object) -> Self:
        """Start it; return when it is ready or gone again."""
        self._close()
        self._pid = self._starter.spawn(self.home, {"environ": self._environ, **order})
        with suppress(ProcessLookupError):  # one that is refused may have ended by now
            self._handle = os.pidfd_open(self._pid)
        until(lambda: self._answers() or self.is_gone(), "the daemon is ready")
        if not order:
            assert not self.is_gone(), self.errors()
        return self

    def is_gone(self, seconds: float = 0.0) -> bool:
        """Whether the process has ended, waiting so long for it."""
        return self._handle < 0 or bool(select.select([self._handle], [], [], seconds)[0])

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """End it with SIGTERM; its exit code is not known here."""
        self._signal(signal.SIGTERM)
        return 0

    def errors(self) -> str:
        """What it wrote to stderr."""
        file = self._starter.errors(self.home)
        return file.read_text() if file.exists() else ""

    def _signal(self, number: int) -> None:
        if not self.is_gone():
            signal.pidfd_send_signal(self._handle, number)
        assert self.is_gone(WAIT_SECONDS), "the daemon did not end"

    def _answers(self) -> bool:
        try:
            return bool(self.facts["pid"] == self._pid) and bool(self.socket)
        except (OSError, ValueError):
            return False

    def _close(self) -> None:
        if self._handle >= 0:
            self.kill()
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._close()


class DaemonStarter:
    """A process that has imported Harken and starts daemons by `fork`."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        script = Path(__file__).with_name("serve.py")
        environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
        environment |= environ or {}
        # Without a buffer: `select` does not see the lines that were read along with another.
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
        self._orders = 0
        self.answer_seconds = IMPORT_SECONDS

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def spawn(self, home: Path, order: Mapping[str, object]) -> int:
        """Start a daemon and return its process id; the answer to an order that was given up is ended and skipped."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders += 1
        line = {"order": self._orders, "home": str(home), "errors": str(self.errors(home)), **order}
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        while True:
            assert select.select([self._process.stdout], [], [], self.answer_seconds)[0], "the starter does not answer"
            number, pid = map(int, self._process.stdout.readline().split())
            if number == self._orders:
                self.answer_seconds = WAIT_SECONDS
                return pid
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def errors(self, home: Path) -> Path:
        """Where the daemon of a home writes its errors."""
        return home.with_name(home.name + ".stderr")

    def daemon(self, home: Path, environ: Mapping[str, str] | None = None) -> Served:
        """A daemon for a home, not started yet; its environment may differ in some variables."""
        return Served(self, home, environ or {})

    def close(self) -> None:
        """End it; daemons that run are ended by who started them."""
        self._process.communicate(timeout=WAIT_SECONDS)


class Wire:
    """A connection to the daemon's socket that sends what a test wants to, line by line or byte by byte."""

    def __init__(self, path: str, hello: Json = None) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_SECONDS)
        self._buffer = b""
        try:
            self.sock.connect(path)
            if hello is not None:
                self.say(hello)
        except OSError:
            self.sock.close()
            raise

    def say(self, message: Json) -> None:
        """Send a value as one line; bytes are sent as they are."""
        self.sock.sendall(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    def line(self) -> bytes:
        """Return the next line, empty when the other side hung up."""
        while b"\n" not in self._buffer:
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionError:
                return b""
            if not data:
                return b""
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\n")
        return text

    def is_closed(self) -> bool:
        """Whether the other side hangs up, whatever it says before."""
        while self.line():
            pass
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.sock.close()


def stubborn(daemon: DaemonProcess, method: str, **params: object) -> Json:
    """Call until there is an answer, through daemons that die: with an id of its own the call is done once."""

    def attempt() -> Json:
        try:
            with Wire(daemon.socket, CALL_HELLO) as wire:
                wire.say({"id": 1, "method": method, "params": params})
                line = wire.line()
        except OSError:
            return None
        return json.loads(line) if line else None

    answer = until(attempt, f"{method} is answered")
    assert "result" in answer, answer
    return answer["result"]


def error_of(daemon: DaemonProcess, method: str, **params: object) -> Mapping[str, Json]:
    """Return the error that a call is answered with."""
    try:
        answer = daemon.call(method, **params)
    except CallFailed as exc:
        return exc.error
    raise AssertionError(f"{method} was answered with {answer}")


def agent_of(home: Path, *options: str) -> EdgeClient:
    """An agent whose edge leaves starting daemons to the test."""
    return EdgeClient([*edge_command(home), "--spawn", "/bin/true", *options], name="loss-agent")


def export(daemon: DaemonProcess, mailbox: str) -> list[Json]:
    """Every message of a mailbox, page by page."""
    found: list[Json] = []
    with daemon.caller() as caller:
        while page := caller.call("export", mailbox=mailbox, after=len(found), limit=500)["messages"]:
            found += page
    return found


def texts(messages: list[Json]) -> list[str]:
    """What the messages of an export or a list say."""
    return [message["content_text_sanitized"] for message in messages]


def journal_lines(home: Path) -> list[Json]:
    """Every line of the journal, in the order of the files; each must be whole."""
    files = sorted((home / "journal").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def check_journal(daemon: DaemonProcess) -> list[Json]:
    """Assert that the journal has every event exactly once, in order; return its lines."""
    last = daemon.call("journal", after=-1)["last"]
    # Lines that a failure delayed are written by a loop.
    until(lambda: [line["n"] for line in journal_lines(daemon.home)][-1:] >= [last], "the journal is complete")
    lines = journal_lines(daemon.home)
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    assert len(lines) >= last
    return lines


def received(lines: list[Json]) -> list[str]:
    """The ids of the messages that the journal says were received."""
    return [line["message"]["id"] for line in lines if line["kind"] == "received"]
