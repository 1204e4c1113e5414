"""What the system tells about a process, and whether it is still the same one.

An `Origin` is the process at the other end of a connection: of this machine, or of another one, which says what only it
can know.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import psutil

# Of what follows the name in /proc/PID/stat:
_TERMINAL_FIELD = 4  # the number of the controlling terminal
_START_FIELD = 19  # when it began, in ticks since the system did
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TIME = "@"  # how an identity begins that is a time of day
_TOLERANCE_SECONDS = 1.5  # between two readings of such a time

UNLIMITED: Final = (1 << 64) - 1
_LOCKS_LINE: Final = b"Max file locks"  # of /proc/PID/limits


def command_line(pid: int) -> Sequence[str]:
    """Return the words that a process was started with; none when it is not known or gone."""
    try:
        return psutil.Process(pid).cmdline() if pid > 1 else ()
    except psutil.Error:
        return ()


def environment(pid: int) -> Mapping[str, str]:
    """Return the environment that a process was started with; nothing when it is not known or gone."""
    try:
        return psutil.Process(pid).environ() if pid > 1 else {}
    except (psutil.Error, OSError):
        return {}


def identity_of(pid: int) -> str:
    """Return what no other process with this number has or will have; empty when it is not known or gone.

    Where the system tells, it is counted from the system's own start: no clock that is set changes it.
    """
    if pid <= 1:
        return ""
    try:
        return _identity(pid)
    except (psutil.Error, OSError, IndexError):
        return ""


def _identity(pid: int) -> str:
    if sys.platform != "linux":
        return f"{_TIME}{psutil.Process(pid).create_time():.2f}"
    return f"{_BOOT.read_text().strip()}/{_stat(pid)[_START_FIELD]}"


def is_alive(pid: int, identity: str) -> bool | None:
    """Whether the process that had this identity is still there; None: a process is, which may be another one."""
    if pid <= 1 or not psutil.pid_exists(pid):
        return False
    return is_same_process(identity, identity_of(pid))


def is_same_process(before: str, now: str) -> bool | None:
    """Whether two identities that were read of one number are of one process; None when either is not known."""
    if not before or not now:
        return None
    if not (before.startswith(_TIME) and now.startswith(_TIME)):
        return before == now
    try:
        return abs(float(before[1:]) - float(now[1:])) <= _TOLERANCE_SECONDS
    except ValueError:
        return None


def has_terminal(pid: int) -> bool:
    """Whether a process has a controlling terminal; where the system does not tell, it may have one."""
    if sys.platform != "linux":
        return True
    try:
        # Not psutil's `terminal`: it lists the terminals once, and knows none that was opened later.
        return _stat(pid)[_TERMINAL_FIELD] != "0"
    except OSError:
        return False


def _stat(pid: int) -> Sequence[str]:
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def lock_limit(pid: int) -> int:
    """Return how many locks on files a process may hold, and cannot raise; raises `OSError` when it cannot be read."""
    if sys.platform != "linux" or pid <= 0:
        return UNLIMITED
    lines = Path(f"/proc/{pid}/limits").read_bytes().splitlines()
    line = next((line for line in lines if line.startswith(_LOCKS_LINE)), b"")
    words = line[len(_LOCKS_LINE) :].split()
    hard = words[1] if len(words) > 1 else b""
    return int(hard) if hard.isdigit() else UNLIMITED


def lineage(pid: int) -> list[int]:
    """Return a process and those it descends from, nearest first; only itself where it cannot be looked at."""
    try:
        return [pid, *(parent.pid for parent in psutil.Process(pid).parents())] if pid > 0 else []
    except psutil.Error:
        return [pid]


def last_key(pid: int) -> datetime | None:
    """Return when something was last typed in the terminal of a process, within seconds; None without a terminal."""
    try:
        terminal = psutil.Process(pid).terminal() if pid > 1 else None
        return datetime.fromtimestamp(Path(terminal).stat().st_atime, UTC) if terminal else None
    except (psutil.Error, OSError):
        return None


class Origin(Protocol):
    """The process at the other end of a connection, and what is known of it and of those around it."""

    @property
    def satellite(self) -> str:
        """The satellite that it is on; empty: this machine."""
        ...

    @property
    def pid(self) -> int:
        """Its process id; 0 where the system does not tell."""
        ...

    def lineage(self) -> Sequence[int]:
        """Return it and the processes that it descends from, nearest first."""
        ...

    def identity_of(self, pid: int) -> str:
        """Return what no other process with this number has; empty when it is not known."""
        ...

    def command_line(self, pid: int) -> Sequence[str]:
        """Return the words that a process was started with; none when they are not known."""
        ...

    def folder(self, cwd: str) -> str:
        """Return a folder as it is to be read here: that of a trial is elsewhere on another machine."""
        ...


@dataclass(frozen=True, slots=True)
class LocalOrigin:
    """A process of this machine: the system is asked."""

    pid: int = 0
    satellite: str = ""

    def lineage(self) -> Sequence[int]:
        """Return it and the processes that it descends from."""
        return lineage(self.pid)

    def identity_of(self, pid: int) -> str:
        """Return what no other process with this number has."""
        return identity_of(pid)

    def command_line(self, pid: int) -> Sequence[str]:
        """Return the words that a process was started with."""
        return command_line(pid)

    def folder(self, cwd: str) -> str:
        """Return the folder as it is."""
        return cwd
