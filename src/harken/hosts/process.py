"""What the system tells about a host's process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

_TERMINAL_FIELD = 4  # of what follows the name in /proc/PID/stat: the number of the controlling terminal


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


def has_terminal(pid: int) -> bool:
    """Whether a process has a controlling terminal; where the system does not tell, it may have one."""
    if sys.platform != "linux":
        return True
    try:
        # Not psutil's `terminal`: it lists the terminals once, and knows none that was opened later.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[_TERMINAL_FIELD] != "0"
