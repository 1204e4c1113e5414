"""The way to the daemon: dialling the address it wrote, starting one when there is none, and the words between.

JSON is written by hand before the first answer and by `json` after it.
"""

from __future__ import annotations

import _socket
import sys
from time import monotonic

if sys.platform == "win32":
    import nt as posix
else:
    import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_LINE = 16 << 20
MAX_PORT = 65535
CONNECT_SECONDS, RESTART_SECONDS = 2.0, 2.0
MAX_REASON = 1 << 16
HOPELESS = ("user_error", "needs_person", "refused")  # errors that no second try can heal
DAEMON_VARIABLES = (
    "PATH HOME USER LANG LC_ALL XDG_RUNTIME_DIR TMPDIR SYSTEMROOT USERPROFILE APPDATA LOCALAPPDATA TEMP"
    " DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY"
)


class Starter:
    """Starts the daemon, and knows why the last one that it started ended badly."""

    def __init__(self, program: str, home: str) -> None:
        self._command = [program, "-I", "-m", "harken", "serve", "--home", home, "--detached", "--unless-down"]
        self._home = home
        self._line: _socket.socket | None = None  # to the watcher of a daemon that has not answered yet
        self._said, self._last = b"", -RESTART_SECONDS
        self._failure, self.is_hopeless = ("", "", ""), False

    @property
    def trouble(self) -> tuple[str, str, str]:
        """What to say of it: a message, a hint and a code."""
        reason, hint, code = self._failure
        look = f"run `harken up`, then look at {self._home}/logs/daemon.log"
        return f"Harken's daemon cannot be started{reason}", hint or look, code or "unavailable"

    def is_forbidden(self) -> bool:
        """Whether a person stopped Harken: then it stays down until a person starts it."""
        try:
            posix.stat(self._home + "/run/down")
        except OSError:
            return False
        return True

    def start(self) -> None:
        """Start a daemon, unless one was started just now. A second daemon ends by itself."""
        if self._line or monotonic() - self._last < RESTART_SECONDS:
            return
        self._last, self.is_hopeless = monotonic(), False
        environment = variables(DAEMON_VARIABLES)
        if sys.platform == "win32":
            import subprocess

            flags, null = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP, subprocess.DEVNULL
            subprocess.Popen(self._command, env=environment, creationflags=flags, stdin=null, stdout=null, stderr=null)
            return
        from harken.edge.launch import launch

        try:
            self._line, self._said = launch(self._command, environment), b""
        except OSError as exc:
            self._failure = f" ({exc.strerror})", "", ""

    def settle(self) -> None:
        """Note that a daemon answers: how the one we started ends is no longer a failure to start."""
        if self._line:
            self._line.close()
        self._line, self._failure, self.is_hopeless = None, ("", "", ""), False

    def has_failed(self, codec: Codec) -> bool:
        """Return whether the started daemon has ended badly since the last look, and note why.

        One that found another running ends well. It `is_hopeless` when a person must act before the next can start.
        """
        try:
            while self._line and (data := self._line.recv(64)):
                self._said += data
        except BlockingIOError:
            return False
        except OSError:
            pass
        if self._line:
            self._line.close()
        pid, _, code = self._said.decode().strip().partition("\n")
        self._line, self._said, is_bad = None, b"", code not in {"", "0"}
        if is_bad:
            self._failure = self._last_words(pid, codec) or (f" (it ended with code {code})", "", "")
            self.is_hopeless = self._failure[2] in HOPELESS
        return is_bad

    def _last_words(self, pid: str, codec: Codec) -> tuple[str, str, str] | None:
        """Return what the daemon itself has left about its end."""
        try:
            file = posix.open(self._home + "/run/failed", posix.O_RDONLY)
        except OSError:
            return None
        try:
            left = codec.read(posix.read(file, MAX_REASON))
        finally:
            posix.close(file)
        error = fields(left.get("error"))
        if str(left.get("pid")) != pid or not error.get("message"):
            return None
        return f": {error['message']}", str(error.get("hint", "")), str(error.get("code", ""))


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


def quote(text: str) -> str:
    """Return the text as a JSON string, without `json`."""
    text = text.encode("utf-8", "replace").decode()
    return '"' + "".join(c if c >= " " and c not in '"\\' else f"\\u{ord(c):04x}" for c in text) + '"'


def variables(names: str) -> dict[str, str]:
    """Return those of the named environment variables that are set."""
    if sys.platform == "win32":
        return {name: posix.environ[name] for name in names.split() if name in posix.environ}
    present = ((name, posix.environ.get(name.encode())) for name in names.split())
    return {name: value.decode("utf-8", "replace") for name, value in present if value is not None}


def log(text: str) -> None:
    """Write one line for people to stderr, if anyone listens."""
    try:
        posix.write(2, f"harken mcp: {text}\n".encode("utf-8", "replace"))
    except OSError:
        return


def fields(value: object) -> dict[str, object]:
    """Return a JSON object as it is, and anything else as an empty one."""
    return value if isinstance(value, dict) else {}


class Codec:
    """JSON, made late: importing it costs as much as starting the interpreter."""

    def __init__(self) -> None:
        import json

        # `int` refuses NaN and Infinity, which are not JSON.
        self._decode = json.JSONDecoder(parse_constant=int).decode
        self.encode: Callable[[object], str] = json.dumps

    def decode(self, line: bytes) -> object:
        """Return the value of a line, or `...` when it is not JSON in UTF-8 or is nested too deep."""
        try:
            return self._decode(line.decode())
        except (ValueError, RecursionError):
            return ...

    def read(self, line: bytes) -> dict[str, object]:
        """Return the object in a line, an empty one when there is none."""
        return fields(self.decode(line))

    def key(self, identifier: object) -> str:
        """Return a request id as JSON text, so that 1 and "1" differ; empty when it cannot be an id."""
        return self.encode(identifier) if type(identifier) in {str, int} else ""


class Lines:
    """Cuts a stream into lines, with None in place of a line that is too long, which is not kept."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Yield the lines that are complete now, each with its newline."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            if self._size + len(end) < MAX_LINE:
                yield b"".join((*self._parts, end, b"\n"))
            elif self._size < MAX_LINE:
                yield None
            self._parts.clear()
            self._size = 0
        was_short = self._size < MAX_LINE
        self._size += len(rest)
        if self._size < MAX_LINE:
            self._parts.append(rest)
        elif was_short:
            self._parts.clear()
            yield None
