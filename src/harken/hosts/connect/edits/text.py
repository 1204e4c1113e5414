"""Settings files as text: decoded without loss, errors that name the place, and a marked block in such a file.

Pure. What is decoded here is encoded to the same bytes again: a byte order mark and the line ends stay in the text. The
block stands in a file like AGENTS.md and is put, replaced and removed; the rest stays as it is, in any encoding that
keeps ASCII. A file that held nothing but the block is gone without it (None), also one that was empty before.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from harken.errors import UserError

BOM = "\ufeff"
_HINT = "Nothing was changed. Repair the file, then run this again."

BEGIN: Final = "<!-- harken:begin -->"
END: Final = "<!-- harken:end -->"
_BLOCK: Final = re.compile(rb"<!-- harken:begin -->.*?<!-- harken:end -->", re.DOTALL)
_MARK: Final = re.compile(rb"<!-- harken:(?:begin|end) -->")


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


def block_text(data: bytes | None, *, file: Path) -> str | None:
    """Return what stands between the marks, without the line ends beside them; None when there is no block."""
    found = _find(data or b"", file)
    if found is None:
        return None
    inner = found[0][len(BEGIN) : -len(END)].decode("utf-8", "replace").replace("\r\n", "\n")
    return inner.removeprefix("\n").removesuffix("\n")


def block_put(data: bytes | None, text: str, *, file: Path) -> bytes:
    """Put a block with this text at the end of a file, or in the place of the block that is there."""
    whole = data or b""
    found = _find(whole, file)
    newline = _newline(whole, found)
    block = newline.join(line.encode() for line in (BEGIN, *text.strip("\n").split("\n"), END))
    if found is not None:
        return whole[: found.start()] + block + whole[found.end() :]
    if not whole:
        return block + newline
    # A last line without an end gets none after the block either: that is how the removal knows.
    if whole.endswith(b"\n"):
        return whole + newline + block + newline
    return whole + newline + newline + block


def block_remove(data: bytes | None, *, file: Path) -> bytes | None:
    """Take the block out of a file, with the empty line that was put before it."""
    found = _find(data or b"", file)
    if data is None or found is None:
        return data
    newline = _newline(data, found)
    before, after = data[: found.start()], data[found.end() :]
    if not after:
        return before.removesuffix(newline).removesuffix(newline) or None
    after = after.removeprefix(newline)
    if not after or after.startswith(newline):
        before = before.removesuffix(newline)
    return before + after or None


def _newline(data: bytes, found: re.Match[bytes] | None) -> bytes:
    """Return how lines end: in the block itself where there is one, else as the first line of the file does."""
    if found is not None:
        return b"\r\n" if found[0].startswith(BEGIN.encode() + b"\r\n") else b"\n"
    first = data.find(b"\n")
    return b"\r\n" if first > 0 and data[first - 1 : first] == b"\r" else b"\n"


def _find(data: bytes, file: Path) -> re.Match[bytes] | None:
    found = _BLOCK.search(data)
    marks = [(mark.start(), mark[0]) for mark in _MARK.finditer(data)]
    if [name for _, name in marks] in ([], [BEGIN.encode(), END.encode()]):
        return found
    text = data.decode("utf-8", "replace")
    place = len(data[: marks[0][0]].decode("utf-8", "replace"))
    raise fault(text, place, "the marks harken:begin and harken:end are not one pair here", file)
