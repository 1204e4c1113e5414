"""Starts the daemon without a parent: outside the process tree of the command and of what started that.

An agent's shell may run the command, and process managers end an agent with all its descendants. `edge/launch.py`
does it, for the edge too; this is what the command line sees of it: the process id, and how the daemon ended.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from harken.errors import Unavailable

SCRIPT: Final = Path(__file__).parent.parent / "edge" / "launch.py"
LAUNCH_SECONDS: Final = 10.0
LINE_BYTES: Final = 64


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
        raise Unavailable("The system has no room to start another program.", "Try again in a moment.") from exc


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
