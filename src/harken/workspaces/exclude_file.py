"""A task's block in a repository's `info/exclude`: what git leaves alone here, while the task is there.

Pure: bytes in, bytes out. Blocks of several tasks stand side by side and go in any order; what others wrote in the
file stays as it is, down to a last line without an end. Which files are named is the seeding's business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

_SPECIAL: Final = re.compile(r"([\\*?\[\]])")


def pattern(path: PurePath) -> str:
    """Return the pattern that means one file and no other, from its name relative to the work tree."""
    # A line end cannot be written in a pattern; any one character can.
    return "/" + _SPECIAL.sub(r"\\\1", path.as_posix()).replace("\n", "?").replace("\r", "?")


def with_block(data: bytes | None, name: str, lines: Sequence[str]) -> bytes:
    """Return the file with a block of this name at its end, and no other of this name."""
    whole = without_block(data, name) or b""
    begin, end = _marks(name)
    block = b"\n".join([begin, *(os.fsencode(line) for line in lines), end])
    # A last line without an end gets none after the block either: that is how the removal knows.
    return whole + b"\n" + block if whole and not whole.endswith(b"\n") else whole + block + b"\n"


def without_block(data: bytes | None, name: str) -> bytes | None:
    """Return the file as it would be without the block; None stays None."""
    begin, end = _marks(name)
    found = re.search(rb"(?m)^%b$.*?^%b$" % (re.escape(begin), re.escape(end)), data or b"", re.DOTALL)
    if data is None or found is None:
        return data
    before, after = data[: found.start()], data[found.end() :]
    if not after:
        return before.removesuffix(b"\n")
    return before + after.removeprefix(b"\n")


def _marks(name: str) -> tuple[bytes, bytes]:
    return f"# harken: begin {name}".encode(), f"# harken: end {name}".encode()
