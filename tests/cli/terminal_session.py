"""A person at a terminal of some size, with a real `harken` in it: what they see, and their keys."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from harken.testing.daemon import is_forked, start_harken
from harken.trial.screen import TerminalPicture
from tests.cli.rig import COMMAND, SECONDS, Rig

UP, DOWN, ESC, ENTER, CTRL_C = b"\x1b[A", b"\x1b[B", b"\x1b", b"\r", b"\x03"
# Around each change of the screen: what a terminal shows of half a change is not what a person sees.
_CHANGE_BEGINS, _CHANGE_ENDS = b"\x1b[?7l", b"\x1b[?7h"
# Signals of a terminal reach only whoever it belongs to, and only the new process itself can ask for it.
_TAKE: Final = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvpe(sys.argv[1], sys.argv[1:], os.environ)
"""


class TerminalSession:
    """Use it as a context manager; a command that is still there at the end is killed."""

    def __init__(self, rig: Rig, *words: str, columns: int = 80, rows: int = 24, typed: bytes = b"") -> None:
        self._command = (*COMMAND, *words)
        self._environment = rig.environment
        self._size = (columns, rows)
        self._typed = typed
        self._changed = threading.Condition()
        self._is_between = False  # in the middle of a change
        self._tail = b""
        self._picture = TerminalPicture(columns, rows)
        self._main, self._side = pty.openpty()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._set_size()
        self.before = termios.tcgetattr(self._side)
        if self._typed:
            os.write(self._main, self._typed)
        has_terminal = is_forked(self._command, self._environment)  # from the start: the server gives it
        self.process = start_harken(
            self._command if has_terminal else (sys.executable, "-I", "-S", "-c", _TAKE, *self._command),
            stdin=self._side,
            stdout=self._side,
            stderr=self._side,
            env=self._environment,
            start_new_session=True,
        )
        self._reader.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        os.close(self._side)
        self._reader.join(SECONDS)
        os.close(self._main)

    @property
    def is_as_before(self) -> bool:
        """Whether the terminal has the settings again that it had."""
        return termios.tcgetattr(self._side) == self.before

    def text(self) -> str:
        """Return what they see."""
        return self.sees()

    def press(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._main, keys)

    def sees(self, *wanted: str | Callable[[str], bool]) -> str:
        """Wait until they see all of it, and return what they see then."""

        def is_so() -> bool:
            if self._is_between:
                return False
            shown = self._picture.text()
            return all(each(shown) if callable(each) else each in shown for each in wanted)

        with self._changed:
            assert self._changed.wait_for(is_so, SECONDS), f"{wanted} is not in:\n{self._picture.text()}"
            return self._picture.text()

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size; nothing of what it showed is kept."""
        with self._changed:
            self._size = (columns, rows)
            self._picture = TerminalPicture(columns, rows)
            self._set_size()

    def leaves(self) -> int:
        """Wait until the command ended, and return its exit code."""
        return self.process.wait(SECONDS)

    def _set_size(self) -> None:
        columns, rows = self._size
        fcntl.ioctl(self._side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._main, 65_536)
            except OSError:  # how Linux says that the other side is closed
                return
            if not data:
                return
            with self._changed:
                self._picture.feed(data)
                recent = self._tail + data
                begins, ends = recent.rfind(_CHANGE_BEGINS), recent.rfind(_CHANGE_ENDS)
                self._is_between = begins > ends or (begins == ends and self._is_between)
                self._tail = recent[1 - len(_CHANGE_BEGINS) :]
                self._changed.notify_all()
