"""Starts daemons for tests without importing everything each time: a process that has done so forks for each of them.

Importing the daemon and the SDK takes more than a second of CPU, and a run of the tests starts hundreds of daemons. One
server serves all workers of a run. It is asked over a socket whose path is in an environment variable, as an agent of
SSH is: with the arguments, the environment, the folder, and the descriptor for what the daemon complains of. It answers
with the process id, and with the exit status when that process has ended. `DaemonProcess` asks it where it is there;
what starts a daemon by `harken up`, as people do, does not.

Linux only. `forked_daemons.py` starts it: `python -I tests/fork_server.py SOCKET PADDING`. The kernel shows as the
command line what is in the memory of the arguments, so there must be room for those of the daemons.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

from harken.cli import main as run
from harken.daemon.sdk import MODULE as SDK

MOST_REQUEST_BYTES: Final = 1 << 20
_ARGUMENTS_BEGIN, _ARGUMENTS_END = 45, 46  # of what follows the name in /proc/PID/stat


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
        data, descriptors, _flags, _address = socket.recv_fds(client, MOST_REQUEST_BYTES, 1)
        if not data:
            client.close()
            return None
        request = json.loads(data)
        [errors] = descriptors
        pid = os.fork()
        if pid > 0:
            os.close(errors)
            self._clients[pid] = client
            client.sendall(str(pid).encode())
            return None
        client.close()
        self._become_child(errors, request["env"], request["cwd"])
        words: list[str] = request["argv"]
        return words

    def _become_child(self, errors: int, env: Mapping[str, str], cwd: str) -> None:
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
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream, descriptor in enumerate((nothing, nothing, errors)):
            os.dup2(descriptor, stream)
        os.close(nothing)
        os.close(errors)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(cwd)

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


def rename(words: Sequence[str]) -> None:
    """Let this process have another command line, as far as there is room for it."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[_ARGUMENTS_BEGIN]), int(fields[_ARGUMENTS_END])
    line = b"\0".join(map(os.fsencode, words))
    ctypes.memmove(begin, line.ljust(end - begin, b"\0")[: end - begin - 1] + b"\0", end - begin)


def main(path: str) -> None:
    """Be the server; in a child, be the command."""
    for module in ("harken.daemon.compose", SDK):
        import_module(module)
    gc.freeze()  # what is never written to is shared by all children
    words = ForkServer(path).serve()
    rename(words)
    sys.argv = ["harken", *words[words.index("harken") + 1 :]]
    run()


if __name__ == "__main__":
    main(sys.argv[1])
