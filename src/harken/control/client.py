"""The command line's end of the daemon's socket: blocking, and the least of the standard library, because it is felt.

Each line asks, each line answers. Every verb may be asked twice (`send` and `reply` carry a key), so a connection
that breaks is made anew and the question asked again, a bounded number of times. It does not know what a verb means.
"""

from __future__ import annotations

import _socket
import os
import sys

from harken.config.folder import ADDRESS_FILE, DAEMON_LOG
from harken.errors import Conflict, Forbidden, HarkenError, NeedsPerson, NotFound, TooLong, Unavailable, UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Any, Self

    Result = dict[str, Any]
    """What a verb answers: JSON, documented in the reference."""
    Place = str | os.PathLike[str]
    """The folder of a home."""
else:
    Result = dict

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 60.0
MAX_TRIES = 3
MAX_LINE = 64 * 1024 * 1024
CHUNK = 65_536
PROTOCOL = 1
LOOPBACK = "127.0.0.1"
KEY, ITEM = ": ", ", "
OTHER_ARGUMENTS = (  # how versions of the daemon begin to say that they know one more or one less than this command
    *("Object contains unknown field", "Object missing required field"),
    *("it has no argument", "the argument "),
)


class NoDaemon(Unavailable):
    """Nothing listens for this home."""


def dial(home: Place, seconds: float = CONNECT_SECONDS) -> tuple[_socket.socket, str]:
    """Connect to the daemon of a home and return the token its address demands; raises `NoDaemon` and `OSError`."""
    try:
        with open(f"{os.fspath(home)}/{ADDRESS_FILE}", "rb") as stream:
            address = os.fsdecode(stream.read().strip())
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise no_daemon(home) from exc
    kind, _, rest = address.partition(":")
    if kind == "unix":
        return _connected(home, _socket.AF_UNIX, rest, seconds), ""
    host, port, token = (*rest.split(":", 2), "", "")[:3]
    if kind != "tcp" or host != LOOPBACK or not port.isdigit():
        raise no_daemon(home)
    return _connected(home, _socket.AF_INET, (host, int(port)), seconds), token


def _connected(home: Place, family: int, target: str | tuple[str, int], seconds: float) -> _socket.socket:
    sock = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        sock.settimeout(seconds)
        sock.connect(target)
    except (FileNotFoundError, ConnectionRefusedError) as exc:
        sock.close()
        raise no_daemon(home) from exc
    except OSError:
        sock.close()
        raise
    return sock


def no_daemon(home: Place) -> NoDaemon:
    """Return the error that says so."""
    return NoDaemon(f"No daemon is running for {os.fspath(home)}.", "Start it: harken up")


class DaemonRecord(dict[str, "Any"]):
    """An object of an answer. A field that it lacks is not a fault of ours: the daemon is of an earlier version."""

    def __missing__(self, name: str) -> object:
        """Say so, with what to do."""
        raise other_version(f"does not say {name!r}")


def other_version(what: str) -> Conflict:
    """Return the error that a daemon of another version runs, which has or says less than this command asks for."""
    return Conflict(f"The running daemon is of another version and {what}.", "Restart it: harken down && harken up")


class DaemonConnection:
    """One connection. Raises `ConnectionError` when it breaks, and what the daemon answered when that is an error."""

    def __init__(self, sock: _socket.socket, token: str) -> None:
        self._sock = sock
        self._buffer = bytearray()
        self._next = 0
        hello = {"harken": PROTOCOL, "kind": "call", "pid": os.getpid()} | ({"token": token} if token else {})
        if token or sys.platform != "linux":
            # The daemon cannot see who is at the other end, or not into its environment.
            hello["env"] = _marks(os.environ)
        self._write(hello)

    def call(self, method: str, params: dict[str, Any], seconds: float) -> Result:
        """Ask, and return the result."""
        self._next += 1
        self._write({"id": self._next, "method": method, "params": params})
        self._sock.settimeout(seconds)
        while True:
            answer = self._answer()
            if "error" in answer:
                error = as_error(answer["error"])
                # Every verb and every argument that is asked for here is in our table.
                if error.message == f"There is no verb {method!r}.":
                    raise other_version(f"has no {method!r}")
                if error.message.startswith(tuple(f"{method}: {each}" for each in OTHER_ARGUMENTS)):
                    raise other_version(f"has other arguments of {method!r}")
                raise error
            if answer.get("id") == self._next:
                result: Result = answer["result"]
                return result

    def close(self) -> None:
        """Hang up."""
        self._sock.close()

    def _write(self, message: dict[str, Any]) -> None:
        try:
            self._sock.sendall(encode(message, is_ascii=False).encode() + b"\n")
        except UnicodeEncodeError as exc:
            raise UserError("A word of this command is not UTF-8.", "Write it in UTF-8.") from exc
        except BrokenPipeError:
            return  # a daemon that refuses us has said why before it hung up

    def _answer(self) -> dict[str, Any]:
        try:
            answer = decode(self._line(), DaemonRecord)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ConnectionResetError  # whatever listens there, it is no daemon of ours
        return answer

    def _line(self) -> bytes:
        start = 0
        while (end := self._buffer.find(b"\n", start)) < 0:
            start = len(self._buffer)
            data = self._sock.recv(CHUNK)
            if not data or start > MAX_LINE:
                raise ConnectionResetError
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line


class DaemonClient:
    """The daemon of a home, as a verb sees it: there when asked, started again if need be."""

    def __init__(
        self, home: Place, *, can_start: bool = True, notice: Callable[[], Callable[[float], None]] | None = None
    ) -> None:
        self._home = home
        self._log = f"{os.fspath(home)}/{DAEMON_LOG}"
        self._can_start = can_start
        self._notice = notice
        self._client: DaemonConnection | None = None
        self.tries = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._hang_up()

    def ask(self, method: str, /, **params: object) -> Result:
        """Ask a verb, and return its result; asks again on a new connection when the daemon went away meanwhile."""
        return self.ask_within(ANSWER_SECONDS, method, **params)

    def ask_within(self, seconds: float, method: str, /, **params: object) -> Result:
        """Ask a verb that may take this long to answer."""
        for self.tries in range(1, MAX_TRIES + 1):
            try:
                if self._client is None:
                    self._client = self._connect()
                return self._client.call(method, params, seconds)
            except ConnectionError:
                self._hang_up()
            except TimeoutError as exc:
                self._hang_up()
                raise Unavailable(
                    "The daemon does not answer.", f"Look at {self._log}, or restart it: harken down"
                ) from exc
            except OSError as exc:
                self._hang_up()
                raise Unavailable(f"The daemon cannot be reached: {exc.strerror}.", "See: harken status") from exc
        raise Unavailable("The daemon ended each time it was asked.", f"Look at {self._log}")

    def _connect(self) -> DaemonConnection:
        try:
            return DaemonConnection(*dial(self._home))
        except NoDaemon:
            if not self._can_start:
                raise
        from pathlib import Path

        from harken.config.home import Home
        from harken.control.start import start

        start(Home(Path(self._home)), self._notice() if self._notice else None)
        return DaemonConnection(*dial(self._home))

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None


def _marks(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what in our environment says who has started us, for a daemon that cannot look there itself."""
    from harken.hosts.registry import host_marks
    from harken.runs.mark import MARK

    known = host_marks().values()
    names = {MARK, *(name for marks in known for name in (*marks.variables, marks.session, marks.process))}
    return {name: environ[name] for name in names if name in environ}


def as_error(value: dict[str, Any]) -> HarkenError:
    """Return the error that the daemon answered."""
    code, message, hint = str(value.get("code")), str(value.get("message")), str(value.get("hint", ""))
    if code == Unavailable.code:
        return Unavailable(message, hint, retry_after=float(value.get("retry_after", 1.0)))
    if code == NeedsPerson.code:
        return NeedsPerson(message, hint, action=str(value.get("action", "")))
    if code == TooLong.code:
        length, limit = int(value.get("length", 0)), int(value.get("limit", 0))
        return TooLong(message, hint, length=length, limit=limit, can_be_file=bool(value.get("can_be_file")))
    kinds: tuple[type[HarkenError], ...] = (UserError, NotFound, Conflict, Forbidden)
    return next((kind for kind in kinds if kind.code == code), HarkenError)(message, hint)


class _DecoderSettings:
    """What the scanner asks of a decoder."""

    strict = True
    array_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int

    def __init__(self, kind: type[dict[str, Any]] | None) -> None:
        self.object_hook = kind


def decode(data: bytes, kind: type[dict[str, Any]] | None = None) -> object:
    """Return the value of one JSON text in UTF-8, with objects of a kind; raise `ValueError` for any other text.

    By the standard library's own function in C: importing `json` costs every command half of the interpreter's start.
    """
    text = data.decode().strip(" \t\r\n")
    settings: Any = _DecoderSettings(kind)
    value: object
    try:
        from _json import make_scanner

        scan = make_scanner(settings)
    except (ImportError, AttributeError, TypeError):  # an interpreter that does it otherwise
        import json

        value = json.loads(text, object_hook=kind)
        return value
    try:
        value, end = scan(text, 0)
    except StopIteration:
        raise ValueError("no JSON") from None
    if end != len(text):
        raise ValueError("more than one value")
    return value


def encode(value: object, *, is_ascii: bool = True) -> str:
    """Return a value as JSON on one line: in ASCII only, or with the letters of every script."""
    try:
        from _json import encode_basestring, encode_basestring_ascii, make_encoder

        quote = encode_basestring_ascii if is_ascii else encode_basestring
        chunks = make_encoder(
            markers=None,
            default=_refuse,
            encoder=quote,
            indent=None,
            key_separator=KEY,
            item_separator=ITEM,
            sort_keys=False,
            skipkeys=False,
            allow_nan=True,
        )
    except (ImportError, AttributeError, TypeError):  # an interpreter that does it otherwise
        import json

        return json.dumps(value, ensure_ascii=is_ascii)
    return "".join(chunks(value, 0))


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is no JSON")
