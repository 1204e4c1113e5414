"""Which sockets are held by what runs have started, as far as the system tells. Linux only; elsewhere none is known.

All that runs have started is known by its limit (`runs/mark.py`). To look takes about a millisecond for five hundred
processes: it is asked once for a connection, and only while a run lives.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from harken.runs.mark import LOCKS, UNLIMITED

if sys.platform == "linux":
    import resource

_LINE: Final = "socket:[{}]"


def is_held_in_run(inode: int, usual_limit: int) -> bool:
    """Whether a process with a lower limit than is usual, as only runs have, holds a socket; raises `OSError`."""
    if sys.platform != "linux":
        return False
    everybody = _processes()
    theirs = {pid for pid in everybody if _limit_of(pid) < usual_limit}
    looks = [_holds(pid, inode) for pid in theirs]
    if any(looks):
        return True
    # One that hides its files may hold it, unless another does.
    return None in looks and not any(_holds(pid, inode) for pid in everybody if pid not in theirs)


def _processes() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdecimal()]


def _limit_of(pid: int) -> int:
    """Return the limit that marks runs: from a call, because the file that says it takes thirty times as long."""
    try:
        hard = resource.prlimit(pid, LOCKS)[1]
    except OSError:
        return UNLIMITED  # it is gone, or another account's
    return UNLIMITED if hard == resource.RLIM_INFINITY else hard


def _holds(pid: int, inode: int) -> bool | None:
    """Whether a process holds a socket; None when it is there and nobody can look."""
    wanted = _LINE.format(inode)
    try:
        with os.scandir(f"/proc/{pid}/fd") as files:
            return any(_target(file) == wanted for file in files)
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return None


def _target(file: os.DirEntry[str]) -> str:
    try:
        return str(Path(file).readlink())
    except OSError:
        return ""
