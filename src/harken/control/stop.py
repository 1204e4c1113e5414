"""Stops the daemon of a home, also one that cannot be found in it any more."""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
from time import monotonic, sleep
from typing import Final

from harken.config.home import Home
from harken.config.lock import is_locked
from harken.control.client import NoDaemon, dial, no_daemon
from harken.control.start import LOOK_SECONDS, daemon_facts
from harken.errors import Unavailable

STOP_SECONDS: Final = 10.0


def stop_all(home: Home) -> list[int]:
    """Stop every daemon of a home, also one that cannot be found in it any more; return their process ids."""
    from harken.control.processes import daemons_of, end

    first = stop(home)
    others = [pid for pid in daemons_of(home) if pid != first]
    if left := end(others, STOP_SECONDS):
        raise _does_not_stop(home, left[0])
    return [pid for pid in (first, *others) if pid]


def stop(home: Home, only: int = 0) -> int:
    """Stop the daemon of a home, or `only` the one with this process id, and return that id; 0 if there was none."""
    end = monotonic() + STOP_SECONDS
    while is_locked(home.lock_file):
        try:
            pid = _signal(home, only)
        except NoDaemon:  # it holds the lock and cannot be reached: it is starting or stopping
            if monotonic() > end:
                raise Unavailable(
                    "The daemon can neither be reached nor does it end.", f"Look at {home.daemon_log}"
                ) from None
            sleep(LOOK_SECONDS)
            continue
        if pid:
            _await_end(home, pid, end)
        return pid
    return 0


def _signal(home: Home, only: int) -> int:
    """Tell the daemon to end. Its process is the one that listens: a number in a file may be another one's by now."""
    try:
        sock, _ = dial(home)
        with sock:
            pid = _listener(sock) or int(daemon_facts(home)["pid"])
            if only not in {0, pid}:
                return 0  # another command was faster and replaced it
            os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError, KeyError) as exc:
        raise no_daemon(home) from exc
    return pid


def _listener(sock: socket.socket) -> int:
    """Return the process at the other end of a unix socket, 0 where the system does not tell."""
    if sys.platform != "linux" or sock.family != socket.AF_UNIX:
        return 0
    pid: int = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return pid


def _await_end(home: Home, pid: int, end: float) -> None:
    while is_locked(home.lock_file):
        if monotonic() > end:
            raise _does_not_stop(home, pid)
        sleep(LOOK_SECONDS)


def _does_not_stop(home: Home, pid: int) -> Unavailable:
    return Unavailable(
        f"The daemon (process {pid}) did not stop within {STOP_SECONDS:.0f} seconds.",
        f"Look at {home.daemon_log}, or end it with kill -9 {pid}: nothing that was accepted is lost.",
    )
