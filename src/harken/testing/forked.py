"""Starts `harken` for tests by asking a server that has imported everything to fork, where such a server is.

The project's tests start thousands of commands and hundreds of daemons, and most of their time would go into imports.
Its `tests/fork_server.py` is the server. Where there is none, and where what is asked for could differ from a process
of its own, one is started as usual.
"""

from __future__ import annotations

import inspect
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

FORK_SERVER: Final = "FORK_SERVER_OF_TESTS"
"""The variable with the path of the server's socket."""
ENVIRONMENT_FILE: Final = "environment.json"

PopenOption: TypeAlias = Any
"""Whatever `Popen` takes for one of its many parameters."""

_MAX_STATUS_BYTES: Final = 32
_AT_START: Final = ("PYTHON", "LC_", "LANG")  # of what an interpreter looks at while it starts, and never again
_MAX_COMMAND_BYTES: Final = 8_000  # as much room as the server has
_KEPT: Final = "PYTHONDONTWRITEBYTECODE"


# What is replaced of `Popen` is private: where a Python has it otherwise, processes are started as usual.
_PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_PARAMETERS: Final = tuple(inspect.signature(getattr(subprocess.Popen, "_execute_child", print)).parameters)
_IS_AS_KNOWN: Final = {"cwd", "env", "start_new_session", *_PIPES} <= {*_PARAMETERS} and all(
    hasattr(subprocess.Popen, name) for name in ("_close_pipe_fds", "_internal_poll", "_wait")
)


def at_start(env: Mapping[str, str]) -> Mapping[str, str]:
    """Return what an interpreter takes from an environment only while it starts."""
    return {name: value for name, value in env.items() if name.startswith(_AT_START) and name != _KEPT}


@cache
def _begun_with(server: str) -> Mapping[str, str]:
    """Return what a server has started with, before tests set more: it is noted beside the socket."""
    found: Mapping[str, str] = json.loads(Path(server).with_name(ENVIRONMENT_FILE).read_text())
    return found


def is_forked(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a command is started by the server: there is one, and its processes are as one of their own would be."""
    is_ours = command[0] == sys.executable and "harken" in command[1:4] and command[1] in ("-I", "-m")
    server = os.environ.get(FORK_SERVER)
    if server is None or not is_ours or not _IS_AS_KNOWN:
        return False
    return at_start(env) == _begun_with(server) and len(os.fsencode(shlex.join(command))) < _MAX_COMMAND_BYTES


def start_harken(
    command: Sequence[str], env: Mapping[str, str] | None = None, **options: PopenOption
) -> subprocess.Popen[bytes]:
    """Start a command with the arguments of `Popen`; it is forked if there is a server and the command is `harken`."""
    wanted = {name: value for name, value in (os.environ if env is None else env).items() if name != FORK_SERVER}
    start: Callable[..., subprocess.Popen[bytes]] = ForkedProcess if is_forked(command, wanted) else subprocess.Popen
    return start(command, env=wanted, **options)


class ForkedProcess(subprocess.Popen[bytes]):
    """A process that the server has started for us: it is the server's child, and the server tells how it ended."""

    _close_pipe_fds: Callable[..., None]

    def _execute_child(self, args: Sequence[str], *given: PopenOption) -> None:
        """Ask for the process, where `Popen` would fork; `given` is what follows in its private method."""
        named = dict(zip(_PARAMETERS, (self, args, *given), strict=False))
        cwd, env = named["cwd"], named["env"]
        stdin, stdout, stderr = named["p2cread"], named["c2pwrite"], named["errwrite"]
        asked = {"argv": args, "env": env, "cwd": str(cwd or Path.cwd()), "is_leader": named["start_new_session"]}
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.connect(os.environ[FORK_SERVER])
        streams = [given_fd if given_fd >= 0 else own for own, given_fd in enumerate((stdin, stdout, stderr))]
        socket.send_fds(self._server, [json.dumps(asked).encode()], streams)
        self.pid = int(self._server.recv(_MAX_STATUS_BYTES))
        self._child_created = True
        self._close_pipe_fds(*(named[name] for name in _PIPES))

    def _internal_poll(self, **_given: object) -> int | None:
        return self._ended(0.0)

    def _wait(self, timeout: float | None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._server], [], [], seconds)[0]:
            # A server that is gone has taken its children with it.
            self.returncode = int(self._server.recv(_MAX_STATUS_BYTES) or -signal.SIGKILL)
            self._server.close()
        return self.returncode
