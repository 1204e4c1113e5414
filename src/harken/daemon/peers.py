"""What the system tells about the process at the other end of the socket: its user, its ancestors, its environment."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import psutil
from anyio.abc import SocketAttribute, SocketStream

from harken.errors import Forbidden, Unavailable
from harken.runs.mark import MARK, UNLIMITED, limit_held, run_of_limit

UNKNOWN: Final = "unknown"  # stands for a run of which nobody knows which it is
_CREDENTIALS = struct.Struct("3i")


def check_user(stream: SocketStream) -> int:
    """Return the process id of the peer, 0 where the system does not tell; refuse another user.

    The socket's folder is closed to others already; this holds when someone opened it by mistake.
    """
    if sys.platform != "linux":  # pragma: no cover - file permissions alone guard it there
        return 0
    raw = stream.extra(SocketAttribute.raw_socket)
    if raw.family != socket.AF_UNIX:
        return 0
    pid, uid, _gid = _CREDENTIALS.unpack(raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid != os.geteuid():
        raise Forbidden("This daemon belongs to another user.", "Start your own: harken up")
    return int(pid)


def lineage(pid: int) -> list[int]:
    """Return a process and those it descends from, nearest first; only itself where it cannot be looked at."""
    try:
        return [pid, *(parent.pid for parent in psutil.Process(pid).parents())] if pid > 0 else []
    except psutil.Error:
        return [pid]


def run_of(pid: int, usual_limit: int = UNLIMITED) -> str:
    """Return the run that a process was started in, however far it went from it; empty when in none.

    A limit that is lower than usual and marks no run has been lowered by a process of one: nobody else knows of it.
    Raises `Unavailable` when nobody can look now.
    """
    limit = held_limit(pid)
    if limit < usual_limit:
        return run_of_limit(limit) or UNKNOWN
    return environment_of(pid).get(MARK, "")


def held_limit(pid: int) -> int:
    """Return the limit by which what a run has started is known; raises `Unavailable` when nobody can look now."""
    try:
        return limit_held(pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return UNLIMITED
    except OSError as exc:
        raise _unknown(exc) from exc


def environment_of(pid: int) -> Mapping[str, str]:
    """Return the environment that a process was started with; nothing where the system does not show it.

    Raises `Unavailable` when nobody can look now: taken for the person's own, it could do what an agent may not.
    """
    try:
        return psutil.Process(pid).environ() if pid > 0 else {}
    except psutil.Error:
        return {}
    except OSError as exc:
        raise _unknown(exc) from exc


def _unknown(exc: OSError) -> Unavailable:
    return Unavailable(f"Nobody can tell who is asking: {exc.strerror}.", "Close some agents, or try again.")


def is_gone(pid: int) -> bool:
    """Whether a process has ended, and was waited for."""
    return pid > 0 and not psutil.pid_exists(pid)


def ancestors(pid: int) -> Sequence[int] | None:
    """Return the processes from which a process descends, nearest first; None where they cannot be looked at."""
    try:
        return [parent.pid for parent in psutil.Process(pid).parents()] if pid > 0 else ()
    except psutil.Error:
        return None


def descends_from(pid: int, hosts: Collection[int]) -> int:
    """Return which of some processes a process descends from, 0 when none."""
    if not hosts:
        return 0
    above = ancestors(pid)
    if above is None:
        # What cannot be looked at might be an agent: it gets no more than one.
        return next(iter(hosts))
    return next((parent for parent in above if parent in hosts), 0)
