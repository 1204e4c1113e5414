"""What a terminal shows after a program printed some bytes, and what it answers when the program asks it something.

Pure. The `pyte` library keeps the screen; it knows the terminals of its time and stumbles over what newer ones can do
(key reporting, links, coloured underlines), so that such sequences, which change nothing that can be read, are taken
out before it sees them.
"""

from __future__ import annotations

import contextlib
import re
from typing import Final

import pyte

# A string for the terminal itself (title, link, clipboard), or one control sequence.
_SEQUENCE: Final = re.compile(
    rb"(\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~])",
)
_UNFINISHED: Final = re.compile(rb"\x1b(?:[\]PX^_][^\x07\x1b]*\x1b?|\[[0-?]*[ -/]*)?\Z")
_KNOWN: Final = re.compile(rb"\x1b\[(?:\?[0-9;]*[hl]|[0-9;]*[@-~])")
# A title without an end would hold back everything after it.
_LONGEST: Final = 1 << 16
# Of everything that was ever shown, so many different lines are remembered.
_LINES: Final = 20_000


class _AnsweringScreen(pyte.Screen):
    """The screen, which keeps what it would answer."""

    def __init__(self, columns: int, rows: int) -> None:
        self.answers: list[str] = []
        super().__init__(columns, rows)

    def write_process_input(self, data: str) -> None:
        """Keep an answer to a question of the program."""
        self.answers.append(data)


class TerminalPicture:
    """One screen, painted by bytes that may come in any pieces."""

    def __init__(self, columns: int, rows: int) -> None:
        self._screen = _AnsweringScreen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._rest = b""
        self._lines: dict[str, None] = {}

    def feed(self, data: bytes) -> bytes:
        """Paint, and return what the terminal answers."""
        data = self._rest + data
        unfinished = _UNFINISHED.search(data)
        at = unfinished.start() if unfinished and len(data) - unfinished.start() < _LONGEST else len(data)
        self._rest = data[at:]
        for piece in _SEQUENCE.split(data[:at]):
            if not _SEQUENCE.fullmatch(piece) or _KNOWN.fullmatch(piece):
                # The library counts on the number of parameters that its terminals had.
                with contextlib.suppress(TypeError, ValueError, NameError, LookupError):
                    self._stream.feed(piece)
        self._remember()
        answers, self._screen.answers = self._screen.answers, []
        return "".join(answers).encode()

    def text(self) -> str:
        """Return what can be read."""
        return "\n".join(line.rstrip() for line in self._screen.display).strip("\n")

    def seen(self, text: str) -> bool:
        """Return whether a line that was shown after some feed held a text, also when it is gone by now."""
        return any(text in line for line in self._lines)

    def _remember(self) -> None:
        for line in self._screen.display:
            # Taken out and put in again: what is still shown is not what is forgotten first.
            self._lines.pop(line, None)
            self._lines[line] = None
        while len(self._lines) > _LINES:
            del self._lines[next(iter(self._lines))]
