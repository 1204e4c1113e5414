"""What the system tells about a process, and whether it is still the same one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

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
