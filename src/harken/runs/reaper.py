"""Stands between the daemon and the program of a run, so that nothing that the run starts outlives it. Linux only.

What loses its parents becomes the child of the nearest *subreaper* above it, and that is this process: what a run puts
into the background, into another session or through two forks stays below it. It starts the program, hands it its own
standard streams and never reads them. When the program has ended, when it is told to (by a signal), and when the daemon
is gone, it ends everything below: asked first, made to then, until nothing is left. Then it ends as the program did.

Standard library only: it is started by path, once for every run. What it looks up of the system is used by `process.py`
too, for what is left of a run after its reaper was killed.

Arguments: the descriptor of a socket to the daemon, the limit that marks the run (below 0: none, it is no run), the
program's words. On the socket it says one line: 0, or the number of the error for which the program could not be
started.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False  # what is imported for types alone would take longer than the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Final

ASK_SECONDS: Final = 4.0  # that the program has to end by itself
LEFT_SECONDS: Final = 0.5  # that what it left behind has
KILL_SECONDS: Final = 10.0  # after which what cannot be ended is left: it waits for a disk, or is another user's
PAUSE_SECONDS: Final = 0.01
MAX_PASSES: Final = 100

_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER
_LOCKS: Final = 10  # RLIMIT_LOCKS; see `mark.py`
# Of what follows the name in /proc/PID/stat:
_STATE_FIELD: Final = 0
_PARENT_FIELD: Final = 1
_THREADS_FIELD: Final = 17
_DEAD: Final = (b"Z", b"X")
_MAX_BYTES: Final = 4_096


def parents() -> dict[int, int]:
    """Return the processes that run, each with its parent; one that has ended and was not waited for does not."""
    found: dict[int, int] = {}
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdecimal()]
    for name in names:
        fields = _stat(name)
        # A process whose first thread has ended looks dead, and is not while others run.
        if fields and (fields[_STATE_FIELD] not in _DEAD or int(fields[_THREADS_FIELD]) > 1):
            found[int(name)] = int(fields[_PARENT_FIELD])
    return found


def below(root: int) -> Collection[int]:
    """Return the processes that descend from one."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        more = children.pop(waiting.pop(), [])
        found += more
        waiting += more
    return found


def kill_all(find: Callable[[], Collection[int]]) -> None:
    """End at once what is found, and what it starts meanwhile: none may run any more when the first is ended."""
    stopped: set[int] = set()
    for _ in range(MAX_PASSES):
        new = set(find()) - stopped
        if not new:
            break
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped |= new
    for pid in find():
        send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    """Send a signal to a process, if it is there and ours."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _stat(pid: str) -> Sequence[bytes]:
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            return os.read(file, _MAX_BYTES).rpartition(b")")[2].split()
        finally:
            os.close(file)
    except OSError:
        return ()


class Reaper:
    """The process itself, with the program that it has started."""

    def __init__(self, line: int) -> None:
        self._line = line
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_told = False
        self._host = 0
        self._status: int | None = None
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        # What is handled is back to usual in the program; what is ignored would be ignored there too.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with suppress(OSError, ValueError):
                signal.signal(number, self._heard)

    def start(self, argv: list[str]) -> None:
        """Start the program, in a session of its own; raises `OSError` when that cannot be."""
        without = [(os.POSIX_SPAWN_CLOSE, self._line)]
        self._host = os.posix_spawnp(argv[0], argv, os.environb, file_actions=without, setsid=True)
        # Held open here, none of them would be over for others when the program closes it.
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)

    def see_through(self) -> int:
        """Return the program's status, when it and everything below has ended."""
        while self._has_children() and self._status is None and not self._is_told:
            self._wait(None)
        if self._status is None and self._is_told:
            self._ask([self._host], ASK_SECONDS, lambda: self._status is not None)
        if self._has_children():
            self._ask(below(os.getpid()), LEFT_SECONDS, lambda: not self._has_children())
        self._end_rest()
        return self._status if self._status is not None else 0

    def _ask(self, whom: Collection[int], seconds: float, is_done: Callable[[], bool]) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if self._host in whom:
                os.killpg(self._host, signal.SIGTERM)
        for pid in whom:
            send(pid, signal.SIGTERM)
            send(pid, signal.SIGCONT)
        end = time.monotonic() + seconds
        while self._has_children() and not is_done() and (left := end - time.monotonic()) > 0:
            self._wait(left)

    def _end_rest(self) -> None:
        end = time.monotonic() + KILL_SECONDS
        while self._has_children() and time.monotonic() < end:
            kill_all(lambda: below(os.getpid()))
            self._wait(PAUSE_SECONDS)

    def _has_children(self) -> bool:
        """Whether anything is below; takes note of what has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._host:
                self._status = status

    def _wait(self, seconds: float | None) -> None:
        """Wait for a signal, for the daemon to be gone, or for some time."""
        awaited = [self._woken] if self._is_told else [self._woken, self._line]
        ready, _, _ = select.select(awaited, [], [], seconds)
        if self._line in ready:
            self._is_told = True  # whatever it says: mostly that it is gone
        with suppress(BlockingIOError):
            os.read(self._woken, _MAX_BYTES)

    def _heard(self, number: int, _frame: object) -> None:
        quiet = (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE)
        stopping = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
        self._is_told = self._is_told or number not in (*quiet, *stopping)


def _mark(limit: int) -> None:
    held = resource.getrlimit(_LOCKS)[1]
    if held not in (resource.RLIM_INFINITY, 0):
        limit = min(limit, held - 1)  # of an account that has a limit, or in a run: one that is lower is a run's, too
    with suppress(OSError, ValueError):
        resource.setrlimit(_LOCKS, (limit, limit))


def main(line: int, limit: int, argv: list[str]) -> int:
    """Run a program to its end, and end as it did."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    if limit >= 0:
        _mark(limit)
    reaper = Reaper(line)
    try:
        reaper.start(argv)
    except OSError as exc:
        os.write(line, b"%d\n" % (exc.errno or 1))
        return 1
    with suppress(OSError):  # the daemon may be gone already
        os.write(line, b"0\n")
    status = reaper.see_through()
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
