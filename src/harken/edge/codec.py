"""Words for the wire: JSON by hand before the first answer, by `json` after it, and lines cut from a stream."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import nt as posix
else:
    import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_LINE = 16 << 20


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
