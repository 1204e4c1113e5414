"""A host at work without a terminal: started in a group of its own, its last words kept, ended with all it started.

It drives any program and knows nothing of hosts. The same handles as a `Screen` where both have them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Protocol, Self

from harken.trial.ending import MARK, STOP_SECONDS, end, new_mark

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
