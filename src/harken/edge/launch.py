"""A daemon of nobody's: started outside the process tree of the host, and still known to the starter if it ends badly.

    host ─ edge ─ (ends at once)          init ─ watcher ─ daemon

The watcher has lost its parent before the daemon exists, so that neither is found by what ends the host with all its
descendants. Over a socket it tells the daemon's process id and, if it ends, its exit code; it ends itself when the
starter hangs up, because a daemon answers or because the starter is gone. An edge that finds no daemon imports this;
the command line runs it as `python -I -S launch.py PROGRAM ARGUMENT…`, with the socket as stdin.
"""

from __future__ import annotations

import _socket
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LINE = 3  # the watcher's end of the socket, the only descriptor that it keeps
SOME_DESCRIPTORS = 4096  # where the system does not tell which are open
OTHERS_WRITE, OTHERS = 0o022, 0o077
CANNOT_RUN = 127


def launch(command: list[str], environment: Mapping[str, str]) -> _socket.socket:
    """Start a daemon and return the line to its watcher; raises `OSError` when there cannot be another process."""
    ours, theirs = _socket.socketpair()
    try:
        child = posix.fork()
        if not child:
            leave(theirs.fileno(), command, environment)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.settimeout(0)
    try:
        posix.waitpid(child, 0)
    except ChildProcessError:
        return ours  # a host that ignores its children has us ignore ours
    return ours


def leave(line: int, command: list[str], environment: Mapping[str, str] | Mapping[bytes, bytes]) -> None:
    """Be the parent that ends, which makes an orphan of the watcher."""
    try:
        if not posix.fork():
            _watch(line, command, environment)
    finally:
        posix._exit(0)


def _watch(line: int, command: list[str], environment: Mapping[str, str] | Mapping[bytes, bytes]) -> None:
    signals = sys.modules["_signal"]  # Every interpreter has it loaded; `signal` would import enum.
    _let_go(line)

    def tell(*_: object) -> None:
        pid, status = posix.waitpid(-1, posix.WNOHANG)
        if pid:  # else it was stopped, and will go on
            posix.write(LINE, b"%d\n" % posix.waitstatus_to_exitcode(status))
            posix._exit(0)

    signals.pthread_sigmask(signals.SIG_SETMASK, (signals.SIGCHLD,))  # until the process id is told
    signals.signal(signals.SIGCHLD, tell)
    pid = posix.fork()
    if not pid:
        try:
            signals.pthread_sigmask(signals.SIG_SETMASK, ())
            posix.setsid()
            posix.execve(command[0], command, environment)
        finally:
            posix._exit(CANNOT_RUN)
    posix.write(LINE, b"%d\n" % pid)
    signals.pthread_sigmask(signals.SIG_SETMASK, ())
    posix.read(LINE, 1)


def _let_go(line: int) -> None:
    """Hold nothing of the host: no session, no folder, no descriptor, and no mask that shuts out ourselves."""
    posix.setsid()
    posix.chdir("/")
    posix.umask((posix.umask(0) | OTHERS_WRITE) & OTHERS)
    posix.dup2(line, LINE, inheritable=False)
    null = posix.open("/dev/null", posix.O_RDWR)
    for descriptor in (0, 1, 2):
        posix.dup2(null, descriptor)
    for descriptor in _open_descriptors():
        if descriptor > LINE:
            try:
                posix.close(descriptor)
            except OSError:  # it was that of the folder that was listed
                continue


def _open_descriptors() -> list[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            found = [int(name) for name in posix.listdir(folder)]
        except (OSError, ValueError):
            continue
        # Some systems show no more than the first three there.
        if max(found) >= LINE:
            return found
    return list(range(SOME_DESCRIPTORS))


if __name__ == "__main__":
    leave(0, sys.argv[1:], posix.environ)
