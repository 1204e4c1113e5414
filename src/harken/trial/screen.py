"""Programs under trial: without a terminal, or in one, with what a person would see and their keyboard.

The terminal is a pseudo-terminal of the system. The `pyte` library keeps what it shows; it knows the terminals of its
time and stumbles over what newer ones can do (key reporting, links, coloured underlines), so that such sequences, which
change nothing that can be read, are taken out before it sees them. Every program is started with a mark in its
environment, which its descendants inherit; at the end what has the mark is ended, and nothing else is touched. It knows
nothing of hosts. Linux and macOS; Windows has no pseudo-terminals.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import secrets
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Final, Protocol, Self

import psutil
import pyte

ROWS: Final = 50
COLUMNS: Final = 160
QUIET_SECONDS: Final = 0.4
SHOWN_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 2.0  # some programs never stop moving
KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "enter": "\r",
        "escape": "\x1b",
        "tab": "\t",
        "backspace": "\x7f",
        "up": "\x1b[A",
        "down": "\x1b[B",
        "ctrl-c": "\x03",
        "ctrl-d": "\x04",
    }
)
# A session gets its terminal by asking for it, and only the new process itself can ask.
_TAKE_TERMINAL: Final = (
    "import fcntl, os, sys, termios; "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvpe(sys.argv[1], sys.argv[1:], os.environ)"
)


class TerminalProgram:
    """A program in a terminal. Use it as a context manager; at the end everything it started is ended."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], cwd: Path) -> None:
        self._argv = (sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, *argv)
        # What a host leaves behind may have no parent any more, and is known by this.
        self._mark = new_mark()
        self._environ = {**environ, MARK: self._mark}
        self._cwd = cwd
        self._changed = threading.Condition()
        self._picture = TerminalPicture(COLUMNS, ROWS)
        self._main = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = threading.Thread(target=self._read, name="trial-screen", daemon=True)

    def __enter__(self) -> Self:
        self._main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        try:
            self._process = subprocess.Popen(
                self._argv,
                stdin=side,
                stdout=side,
                stderr=side,
                cwd=self._cwd,
                env=self._environ,
                start_new_session=True,
            )
        except OSError:
            os.close(self._main)
            raise
        finally:
            os.close(side)
        self._reader.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the program."""
        if self._process is None:
            raise RuntimeError("the program was not started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the program has not ended."""
        return self._process is not None and self._process.poll() is None

    def text(self) -> str:
        """Return what the screen shows."""
        with self._changed:
            return self._picture.text()

    def seen(self, text: str) -> bool:
        """Return whether the screen has ever shown a text, all on one line."""
        with self._changed:
            return self._picture.seen(text)

    def type(self, text: str) -> None:
        """Press the keys of a text, without Enter."""
        self._write(text.encode())

    def press(self, key: str) -> None:
        """Press a key by name, see `KEYS`."""
        self._write(KEYS[key].encode())

    def submit(self, text: str) -> None:
        """Type a text, wait until the program shows it, and press Enter.

        Programs take an Enter that follows too quickly for part of a pasted text.
        """
        self.type(text)
        self.wait_for(lambda shown: text in " ".join(shown.split()), SHOWN_SECONDS)
        self.wait_quiet(seconds=SETTLE_SECONDS)
        self.press("enter")

    def wait_for(self, wanted: str | Callable[[str], bool], seconds: float) -> str:
        """Return what the screen shows once it holds a text, or is as a predicate wants it."""
        fits = wanted if callable(wanted) else lambda shown: wanted in shown
        with self._changed:
            if not self._changed.wait_for(lambda: fits(self._picture.text()), seconds):
                raise TimeoutError(
                    f"the screen did not show {wanted!r} within {seconds:g} s; it shows:\n{self._picture.text()}"
                )
            return self._picture.text()

    def wait_quiet(self, quiet_seconds: float = QUIET_SECONDS, seconds: float = SHOWN_SECONDS) -> str:
        """Return what the screen shows once nothing changed for a while, or when the time is up."""
        end = time.monotonic() + seconds
        with self._changed:
            while time.monotonic() < end:
                before = self._picture.text()
                # Many programs repaint all the time: only a change that can be read counts.
                if not self._changed.wait_for(partial(self._differs, before), quiet_seconds):
                    break
            return self._picture.text()

    def close(self) -> None:
        """End the program and everything it started."""
        process = self._process
        if process is None:
            return
        end(process, self._mark)
        self._reader.join(STOP_SECONDS)
        os.close(self._main)
        self._process = None

    def _differs(self, before: str) -> bool:
        return self._picture.text() != before

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._main, data)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._main, 1 << 16)
            except OSError:
                # Linux says EIO where others say nothing more is coming.
                data = b""
            with self._changed:
                answer = self._picture.feed(data)
                self._changed.notify_all()
            if not data:
                return
            self._write(answer)


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


KEPT_BYTES: Final = 16_384
LAST_LINES: Final = 6
LAST_SECONDS: Final = 1.0
LINE_CHARS: Final = 200


class RunningProgram(Protocol):
    """A program that was started: `HeadlessProgram` and `Screen`."""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        ...

    def text(self) -> str:
        """Return what it says, or shows."""
        ...


class HeadlessProgram:
    """A program without a terminal. Use it as a context manager; at the end everything it started is ended."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], cwd: Path, *, is_fed: bool = False) -> None:
        self._argv = tuple(argv)
        self._mark = new_mark()
        self._environ = {**environ, MARK: self._mark}
        self._cwd = cwd
        self._is_fed = is_fed
        self._lock = threading.Lock()
        self._kept = bytearray()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._process = process = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE if self._is_fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._cwd,
            env=self._environ,
            start_new_session=True,
        )
        if process.stdout is not None:
            self._reader = threading.Thread(target=self._read, args=(process.stdout,), name="trial-host", daemon=True)
            self._reader.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_running(self) -> bool:
        """Whether the program has not ended."""
        return self._process is not None and self._process.poll() is None

    def text(self) -> str:
        """Return the end of what it printed."""
        if self._reader is not None and not self.is_running:
            # Its last words may still be in the pipe; what it left behind may keep the pipe open.
            self._reader.join(LAST_SECONDS)
        with self._lock:
            return self._kept.decode("utf-8", "replace")

    def feed(self, line: str) -> None:
        """Write a line to the program; one that has ended does not get it."""
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def wait(self, seconds: float) -> bool:
        """Return whether it ended within a time."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """End the program and everything it started."""
        process = self._process
        if process is None:
            return
        end(process, self._mark)
        if self._reader is not None:
            self._reader.join(STOP_SECONDS)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process = None

    def _read(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(stream.fileno(), KEPT_BYTES):
                with self._lock:
                    self._kept += data
                    del self._kept[:-KEPT_BYTES]


def last_lines(text: str, most: int = LAST_LINES) -> str:
    """Return the last lines that say something, without the frames that hosts draw."""
    lines = (line.strip().strip("│┃╭╮╰╯─━═┌┐└┘▄▀█").strip() for line in text.splitlines())
    return " / ".join([line[:LINE_CHARS] for line in lines if line][-most:])


MARK: Final = "HARKEN_TRIAL"
STOP_SECONDS: Final = 5.0


def new_mark() -> str:
    """Return a value for `MARK` that no other trial has."""
    return secrets.token_hex(8)


def end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a program that leads a group of its own, and everything with its mark; politely first."""
    started = _children(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)
    for left in (*started, *_marked(mark)):
        # A process id that is used anew belongs to another process, and is left alone.
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _marked(mark: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _mark_of(process) == mark]


def _mark_of(process: psutil.Process) -> str:
    try:
        return process.environ().get(MARK, "")
    except psutil.Error:
        return ""
