"""The way to the daemon: dialling the address it wrote, and starting one when there is none."""

from __future__ import annotations

import _socket
import sys
from time import monotonic

from harken.edge.codec import variables

if sys.platform == "win32":
    import nt as posix
else:
    import posix

MAX_PORT = 65535
CONNECT_SECONDS, RESTART_SECONDS = 2.0, 2.0
DAEMON_VARIABLES = (
    "PATH HOME USER LANG LC_ALL XDG_RUNTIME_DIR TMPDIR SYSTEMROOT USERPROFILE APPDATA LOCALAPPDATA TEMP"
    " DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY"
)


class Starter:
    """Starts the daemon and notices when it ended badly."""

    def __init__(self, program: str, home: str) -> None:
        self._command = [program, "-I", "-m", "harken", "serve", "--home", home, "--detached", "--unless-down"]
        self._marker = home + "/run/down"
        self._child, self._last = 0, -RESTART_SECONDS
        self._past: list[int] = []

    def is_forbidden(self) -> bool:
        """Whether a person stopped Harken: then it stays down until a person starts it."""
        try:
            posix.stat(self._marker)
        except OSError:
            return False
        return True

    def start(self) -> None:
        """Start a daemon, unless one was started just now. A second daemon ends by itself."""
        if self._child or monotonic() - self._last < RESTART_SECONDS:
            return
        self._last = monotonic()
        environment = variables(DAEMON_VARIABLES)
        if sys.platform == "win32":
            import subprocess

            flags, null = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP, subprocess.DEVNULL
            subprocess.Popen(self._command, env=environment, creationflags=flags, stdin=null, stdout=null, stderr=null)
            return
        try:
            self._child = posix.fork()
        except OSError:
            return
        if self._child:
            return
        try:
            posix.setsid()
            posix.chdir("/")
            null = posix.open("/dev/null", posix.O_RDWR)
            for descriptor in (0, 1, 2):
                posix.dup2(null, descriptor)
            # What the host left open in us must not live as long as the daemon.
            posix.closerange(3, 4096)
            posix.execve(self._command[0], self._command, environment)
        finally:
            posix._exit(127)

    def settle(self) -> None:
        """Note that a daemon answers: how the one we started ends is no longer a failure to start."""
        self._past += [self._child] if self._child else []
        self._child = 0

    def failure(self) -> str:
        """Return how the started daemon ended, if it ended badly. One that found another running ends well."""
        if sys.platform == "win32":
            return ""
        self._past = [pid for pid in self._past if not posix.waitpid(pid, posix.WNOHANG)[0]]
        pid, status = posix.waitpid(self._child, posix.WNOHANG) if self._child else (0, 0)
        self._child = 0 if pid else self._child
        code = posix.waitstatus_to_exitcode(status) if pid else 0
        return f" (it ended with code {code})" if code else ""


def dial(home: str) -> tuple[_socket.socket, str]:
    """Connect to the daemon and return the token its address demands.

    `FileNotFoundError` and `ConnectionRefusedError` mean that there is no daemon, another `OSError` that it is busy.
    """
    file = posix.open(home + "/run/address", posix.O_RDONLY)
    try:
        kind, _, rest = posix.read(file, 4096).strip().partition(b":")
    finally:
        posix.close(file)
    name, _, port = rest.partition(b":")
    port, _, token = port.partition(b":")
    address: bytes | tuple[str, int] = rest
    if kind == b"unix" and sys.platform != "win32":
        family, token = _socket.AF_UNIX, b""
    elif kind == b"tcp" and name == b"127.0.0.1" and port.isdigit() and int(port) <= MAX_PORT:
        family, address = _socket.AF_INET, ("127.0.0.1", int(port))
    else:
        raise ConnectionRefusedError
    sock = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        sock.settimeout(CONNECT_SECONDS)
        sock.connect(address)
        sock.settimeout(0)
    except OSError:
        sock.close()
        raise
    return sock, token.decode("utf-8", "replace")
