"""Starts `harken` for tests without importing everything each time: a process that has done so forks for each command.

Importing the daemon and the SDK takes more than a second of CPU, a command a quarter of that, and a run of the tests
starts hundreds of daemons and thousands of commands. Each worker of a run has a server. It is asked over a socket whose
path is in an environment variable, as an agent of SSH is: with the arguments, the environment, the folder, and the
descriptors of the three streams. It answers with the process id, and with the exit status when that process has ended.
`harken.testing.daemon` asks it; what such a command starts itself, as `harken up` starts a daemon, is as always.

Linux only. `forked_daemons.py` starts it: `python -I tests/fork_server.py SOCKET PADDING`. The kernel shows as the
command line and the environment what is in the memory of both, so there must be room for those of the children.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import json
import os
import selectors
import signal
import socket
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Final, Never

import anyio
import anyio.lowlevel

from harken import cli, daemon
from harken.surfaces import mcp
from harken.surfaces.web import page

PACKAGES: Final = (cli, daemon, mcp, page)
MAX_REQUEST_BYTES: Final = 1 << 20
STREAMS: Final = 3
_ARGUMENTS, _ENVIRONMENT = slice(45, 47), slice(47, 49)  # of what follows the name in /proc/PID/stat: begin and end
_UNFLUSHED: Final = 120  # the exit code of an interpreter that could not write the last of its output


class ForkServer:
    """The server itself."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._clients: dict[int, socket.socket] = {}  # by process
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._woken, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> Sequence[str]:
        """Serve for ever; return in each child, with the words of its command."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    client, _address = self._listener.accept()
                    self._selector.register(client, selectors.EVENT_READ)
                elif key.fd == self._woken:
                    with suppress(BlockingIOError):
                        os.read(self._woken, 4_096)
                    self._report_ended()
                elif isinstance(key.fileobj, socket.socket):
                    self._selector.unregister(key.fileobj)
                    words = self._start(key.fileobj)
                    if words is not None:
                        return words

    def _start(self, client: socket.socket) -> Sequence[str] | None:
        """Fork for a client; return the words in the child, None in the server."""
        data, descriptors, _flags, _address = socket.recv_fds(client, MAX_REQUEST_BYTES, STREAMS)
        if not data:
            client.close()
            return None
        request = json.loads(data)
        pid = os.fork()
        if pid > 0:
            for each in descriptors:
                os.close(each)
            self._clients[pid] = client
            client.sendall(str(pid).encode())
            return None
        client.close()
        self._become_child(descriptors, request["env"], request["cwd"], is_leader=request["is_leader"])
        words: list[str] = request["argv"]
        return words

    def _become_child(self, streams: Sequence[int], env: Mapping[str, str], cwd: str, *, is_leader: bool) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in [key.fileobj for key in self._selector.get_map().values()]:
            if isinstance(each, socket.socket):
                each.close()
        for client in self._clients.values():
            client.close()
        self._selector.close()
        os.close(self._woken)
        os.close(self._waker)
        for own, given in enumerate(streams):
            os.dup2(given, own)
            os.close(given)
        os.environ.clear()
        os.environ.update(env)
        time.tzset()
        os.chdir(cwd)
        if is_leader:
            os.setsid()
            if os.isatty(0):
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def _report_ended(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            client = self._clients.pop(pid)
            with suppress(OSError), client:
                client.sendall(str(os.waitstatus_to_exitcode(status)).encode())


class QuickEnd:
    """Ends a child without taking apart all that the server has imported: as long as a command itself takes.

    Registered before everything else with `atexit`, it is the last to be called: threads have ended by then.
    """

    def __init__(self) -> None:
        self._code = 1
        atexit.register(self._end)

    def run(self) -> Never:
        """Be the command."""
        try:
            cli.main()
        except SystemExit as exc:
            if exc.code is None or isinstance(exc.code, int):
                self._code = exc.code or 0
            raise
        raise AssertionError("a command ends by itself")

    def _end(self) -> None:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            os._exit(_UNFLUSHED)
        os._exit(self._code & 0xFF)


def show(where: slice, words: Sequence[str]) -> None:
    """Let this process have another command line or environment, for others to see."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = map(int, fields[where])
    block = b"".join(os.fsencode(word) + b"\0" for word in words)
    if len(block) > end - begin:
        raise ValueError(f"there is no room for {len(block)} bytes")
    ctypes.memmove(begin, block.ljust(end - begin, b"\0"), end - begin)


def open_streams() -> None:
    """Read and write as a process does whose streams were these from its beginning."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        mode, buffering = ("r", -1) if name == "stdin" else ("w", 1 if name == "stderr" else -1)
        new = os.fdopen(descriptor, mode, buffering, old.encoding, old.errors, closefd=False)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _modules() -> list[str]:
    """Return what commands and daemons import, on use too: children share it."""
    return [found.name for package in PACKAGES for found in walk_packages(package.__path__, f"{package.__name__}.")]


def main(path: str) -> None:
    """Be the server; in a child, be the command."""
    end = QuickEnd()
    for module in _modules():
        import_module(module)
    anyio.run(anyio.lowlevel.checkpoint)  # imports what a loop needs
    gc.freeze()  # what is never written to is shared by all children
    words = ForkServer(path).serve()
    show(_ARGUMENTS, words)
    show(_ENVIRONMENT, [f"{name}={value}" for name, value in os.environ.items()])
    open_streams()
    sys.argv = ["harken", *words[words.index("harken") + 1 :]]
    end.run()


if __name__ == "__main__":
    main(sys.argv[1])
