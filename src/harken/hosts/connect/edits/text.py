"""Settings files as text: decoded without loss, and errors that name the place.

Pure. What is decoded here is encoded to the same bytes again: a byte order mark and the line ends stay in the text.
"""

from __future__ import annotations

from pathlib import Path

from harken.errors import UserError

BOM = "\ufeff"
_HINT = "Nothing was changed. Repair the file, then run this again."


def decode(data: bytes, file: Path) -> str:
    """Return the text of a file; raises `UserError` where it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        before = data[: exc.start].decode("utf-8", "replace")
        raise fault(before, len(before), "this is not UTF-8 text", file) from exc


def newline_of(text: str) -> str:
    """Return how the lines of a text end; the first one decides."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def fault(text: str, place: int, reason: str, file: Path) -> UserError:
    """Return the error for something at one place of a file."""
    line = text.count("\n", 0, place) + 1
    column = place - (text.rfind("\n", 0, place) + 1) + 1
    return fault_at(file, line, column, reason)


def fault_at(file: Path, line: int, column: int, reason: str) -> UserError:
    """Return the error for something at a line and column of a file, both counted from 1."""
    return UserError(f"{file}, line {line}, column {column}: {reason}.", _HINT)
