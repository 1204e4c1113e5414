"""Stops the daemon of a home, also one that cannot be found in it any more, by what the system says of processes."""

from __future__ import annotations

import _socket
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from harken.config.home import Home, find_home, is_locked
from harken.control.client import NoDaemon, dial, no_daemon
from harken.control.start import LOOK_SECONDS, daemon_facts
from harken.errors import HarkenError, Unavailable

if TYPE_CHECKING:  # it takes longer to load than most verbs to run
    import psutil

STOP_SECONDS: Final = 10.0


def stop_all(home: Home) -> list[int]:
    """Stop every daemon of a home, also one that cannot be found in it any more; return their process ids."""
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
        with closing(sock):
            pid = _listener(sock) or int(daemon_facts(home)["pid"])
            if only not in {0, pid}:
                return 0  # another command was faster and replaced it
            os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError, KeyError) as exc:
        raise no_daemon(home) from exc
    return pid


def _listener(sock: _socket.socket) -> int:
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


def daemons_of(home: Home) -> list[int]:
    """Return the processes of this user that serve a home, as far as the system tells."""
    real = os.path.realpath(home.path)
    return [pid for pid, served in _daemons() if os.path.realpath(served) == real]


def end(pids: Sequence[int], seconds: float) -> list[int]:
    """Tell processes to end, and return which of them have not when the seconds are over."""
    import psutil

    told: list[psutil.Process] = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            process.terminate()
            told.append(process)
    _gone, left = psutil.wait_procs(told, timeout=seconds)
    return [process.pid for process in left]


def _daemons() -> Iterator[tuple[int, Path]]:
    import psutil

    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or not _is_own(process) or process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = process.cmdline()
            served = _served(words, process.environ(), process.cwd()) if is_daemon(words) else None
        except (psutil.Error, OSError):
            continue  # it has ended meanwhile, or is not ours to look at
        if served is not None:
            yield process.pid, served


def _is_own(process: psutil.Process) -> bool:
    return sys.platform == "win32" or process.uids().real == os.getuid()


def is_daemon(words: Sequence[str]) -> bool:
    """Whether a command is `harken serve`, as a module or as a script, and not a program that starts one."""
    rest = list(words)
    if rest and Path(rest[0]).name.startswith("python"):
        del rest[0]
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        del rest[0]
    if rest[:1] == ["-m"]:
        del rest[0]
    is_ours = bool(rest) and Path(rest[0]).name == "harken"
    del rest[:1]
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] == "--home" else 1]
    return is_ours and rest[:1] == ["serve"]


def _served(words: Sequence[str], environ: Mapping[str, str], folder: str) -> Path | None:
    flag = next((word.partition("=")[2] for word in words if word.startswith("--home=")), None)
    if "--home" in words[:-1]:
        flag = words[words.index("--home") + 1]
    try:
        return Path(folder, find_home(str(Path(folder, flag)) if flag else None, environ).path)
    except HarkenError:
        return None
