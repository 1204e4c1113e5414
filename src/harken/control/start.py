"""Starts the daemon in the background and waits until it can be reached.

The daemon gets a session of its own, no terminal, no parent, and a fixed small environment, so that it is the same the
process that started it. `edge/launch.py` puts it outside the process tree of the command, because process managers end
an agent with all its descendants. One that cannot start leaves the reason in `run/failed`; that reason becomes the
caller's error.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Final, Self

from harken.config.home import Home, ensure, write_private
from harken.control.client import NoDaemon, as_error, dial
from harken.errors import HarkenError, Unavailable

START_SECONDS = 15.0
AGAIN_SECONDS = 0.5
LOOK_SECONDS = 0.02
LOG_LINES = 5
LITTLE_BYTES = 65_536
LOG_BYTES = 32_768
LINE_CHARS = 300
VARIABLES = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "XDG_RUNTIME_DIR", "TMPDIR"),
    *("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY"),  # by which toasts find the desktop
)
WINDOWS_VARIABLES = ("SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP")
SCRIPT: Final = Path(__file__).parent.parent / "edge" / "launch.py"
LAUNCH_SECONDS: Final = 10.0
LINE_BYTES: Final = 64


def command(home: Home) -> list[str]:
    """Return the command that serves a home in the background."""
    return [sys.executable, "-I", "-m", "harken", "serve", "--home", str(home.path), "--detached"]


def start(home: Home, on_wait: Callable[[float], None] | None = None) -> None:
    """Start the daemon and return when it can be reached; raises why it could not start.

    `on_wait` is told now and then how many seconds it has taken so far.
    """
    ensure(home)
    asked_at = monotonic()
    deadline = asked_at + START_SECONDS
    with ExitStack() as watched:
        ours, began = watched.enter_context(_spawn(home)), monotonic()
        while not is_reachable(home):
            if on_wait is not None:
                on_wait(monotonic() - asked_at)
            code = ours.poll()
            if code:
                raise failure(home, ours.pid, code)
            if code == 0 and monotonic() - began > AGAIN_SECONDS:
                # It found another daemon, which was on its way out: there is none now.
                ours, began = watched.enter_context(_spawn(home)), monotonic()
            if monotonic() > deadline:
                raise Unavailable(
                    f"The daemon did not start within {START_SECONDS:.0f} seconds.", _log_hint(home), retry_after=5.0
                )
            sleep(LOOK_SECONDS)
        # When somebody else's was faster, ours ends by itself. It is waited for: one that is still on its way up would
        # find the lock free, and serve, after the person has stopped the other one.
        while ours.poll() is None and daemon_facts(home).get("pid") != ours.pid and monotonic() < deadline:
            sleep(LOOK_SECONDS)


def daemon_facts(home: Home) -> dict[str, Any]:
    """Return what a daemon has written of itself: from its file, so that any version can be asked."""
    try:
        said: dict[str, Any] = json.loads(home.daemon_file.read_text())
    except (OSError, ValueError):
        return {}  # there is none, or it is about to end
    return said


def is_reachable(home: Home) -> bool:
    """Whether a daemon accepts connections."""
    try:
        sock, _ = dial(home)
    except (NoDaemon, OSError):
        return False
    sock.close()
    return True


def leave_reason(home: Home, error: HarkenError) -> None:
    """Leave the reason why this process cannot serve, for the process that started it."""
    write_private(home.run_dir / "failed", json.dumps({"pid": os.getpid(), "error": error.as_dict()}) + "\n")


def failure(home: Home, pid: int, code: int) -> HarkenError:
    """Return why a daemon ended: in its own words, else with the end of its log."""
    try:
        left = json.loads((home.run_dir / "failed").read_text())
    except (OSError, ValueError):
        left = {}
    if left.get("pid") == pid:
        return as_error(left["error"])
    if _is_full(home):
        return Unavailable("The disk is full: the daemon cannot start.", "Free some space.", retry_after=60.0)
    return Unavailable(f"The daemon could not start (it ended with code {code}).", _log_hint(home))


def _is_full(home: Home) -> bool:
    """Whether there was no room, not even to leave a reason."""
    if not hasattr(os, "statvfs"):
        return False
    found = os.statvfs(home.path)
    return found.f_bavail * found.f_frsize < LITTLE_BYTES


def log_tail(home: Home, lines: int = LOG_LINES) -> list[str]:
    """Return the last lines of the daemon's log."""
    try:
        with home.daemon_log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - LOG_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return []
    # A traceback is one long line: its end holds the reason.
    return [line if len(line) <= LINE_CHARS else f"… {line[-LINE_CHARS:]}" for line in text.splitlines()[-lines:]]


def _log_hint(home: Home) -> str:
    return "\n".join([f"Its log, {home.daemon_log}, ends with:", *(log_tail(home) or ["(nothing)"])])


def _spawn(home: Home) -> DetachedProcess:
    names = VARIABLES + (WINDOWS_VARIABLES if sys.platform == "win32" else ())
    return launch(command(home), {name: os.environ[name] for name in names if name in os.environ})


@dataclass(frozen=True, slots=True)
class DetachedProcess:
    """A program that was started: ours to watch while the context is open, and not to end.

    `poll` returns its exit code, None while it runs or when that is not known.
    """

    pid: int
    poll: Callable[[], int | None]
    release: Callable[[], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.release()


def launch(argv: Sequence[str], environ: Mapping[str, str]) -> DetachedProcess:
    """Start a program, without a terminal and in the root folder; raises `Unavailable` when there is no room for it."""
    try:
        return _launch(argv, environ)
    except (OSError, ValueError, subprocess.TimeoutExpired) as exc:
        raise Unavailable("The system cannot start another program now.", "Try again in a moment.") from exc


def _launch(argv: Sequence[str], environ: Mapping[str, str]) -> DetachedProcess:
    null = subprocess.DEVNULL
    if sys.platform == "win32":
        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
        child = subprocess.Popen(argv, env=environ, creationflags=flags, stdin=null, stdout=null, stderr=null)
        return DetachedProcess(child.pid, child.poll, lambda: None)
    with ExitStack() as undo:
        ours, theirs = socket.socketpair()
        undo.enter_context(ours)
        with theirs:
            command = [sys.executable, "-I", "-S", str(SCRIPT), *argv]
            line = theirs.fileno()
            subprocess.run(
                command, env=environ, stdin=line, stdout=null, stderr=null, timeout=LAUNCH_SECONDS, check=False
            )
        ours.settimeout(LAUNCH_SECONDS)
        pid, _, end = ours.recv(LINE_BYTES).partition(b"\n")
        ours.settimeout(0)
        started = DetachedProcess(int(pid), _LaunchResult(ours, end).poll, ours.close)
        undo.pop_all()
        return started


class _LaunchResult:
    """What the watcher tells after the process id: nothing, or the exit code on a line."""

    def __init__(self, line: socket.socket, said: bytes) -> None:
        self._line = line
        self._said = said

    def poll(self) -> int | None:
        """Return the exit code, if it was told."""
        with suppress(BlockingIOError):
            self._said += self._line.recv(LINE_BYTES)
        return int(self._said) if self._said else None
