"""The screen of `harken watch`: lines that stay, and below them a banner that is drawn anew in its place.

It needs no second screen of the terminal: what has scrolled away can be scrolled back to, also after the end. Each
line it is given must be safe already and fit into the width. It does not know what the lines say.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Sequence
from typing import Final

from harken.cli.output import cut, width_of

COLUMNS, ROWS = 80, 24
_KEPT: Final = 200
_TO_END: Final = "\x1b[J"
_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]*m)")
_CLEAR: Final = "\x1b[H\x1b[2J"
# A line that is wider than was thought, which differs between terminals, is cut and takes no second row.
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


def size_of_terminal() -> tuple[int, int]:
    """Return columns and rows of stdout, as they are now."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return COLUMNS, ROWS
    return size.columns or COLUMNS, size.lines or ROWS


class Canvas:
    """Lines and a banner. Writes only what changes, and each change at once."""

    def __init__(self) -> None:
        self._banner: tuple[str, ...] = ()
        self._kept: deque[str] = deque(maxlen=_KEPT)

    def draw(self, lines: Sequence[str], banner: Sequence[str]) -> None:
        """Add lines, and show the banner below them."""
        wanted = tuple(banner)
        if not lines and wanted == self._banner:
            return
        self._kept.extend(lines)
        begin = "" if self._banner else _PASTE_ON
        self._write(begin + self._up() + _TO_END + "\n".join([*lines, *wanted]))
        self._banner = wanted

    def redraw(self, banner: Sequence[str]) -> None:
        """Show the last lines and the banner on a screen that has another size now."""
        # How a terminal moves lines when it is resized differs, so nothing on it can be relied on.
        columns, rows = size_of_terminal()
        room = max(0, rows - len(banner))
        last = [_shortened(line, columns - 1) for line in list(self._kept)[-room:]] if room else []
        self._write(_PASTE_ON + _CLEAR + "\n".join([*last, *banner]))
        self._banner = tuple(banner)

    def close(self) -> None:
        """Take the banner away; the lines stay."""
        self._write(self._up() + _TO_END + _PASTE_OFF)
        self._banner = ()

    def _up(self) -> str:
        return "\r" + (f"\x1b[{len(self._banner) - 1}A" if len(self._banner) > 1 else "")

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(f"{_CUT}{text}{_WRAP}")
        sys.stdout.flush()


def _shortened(line: str, width: int) -> str:
    """Return a line that was made for a wider screen, with its colours."""
    parts: list[str] = []
    for part in _COLOUR.split(line):
        if _COLOUR.fullmatch(part):
            parts.append(part)
        elif width > 0:
            parts.append(cut(part, width))
            width -= width_of(part)
    return "".join(parts)
