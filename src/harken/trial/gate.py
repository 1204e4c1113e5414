"""A gate inside a tool call: a shell command that does not end until it is told to.

The command reads a named pipe, so nothing polls and nothing has to be written from inside a sandbox. Whoever holds
the gate knows when the tool has begun, can do something meanwhile, and lets it end.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

JOIN_SECONDS: Final = 5.0


class RequestGate:
    """Use it as a context manager; at the end the gate is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun = threading.Event()
        self._opened = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="trial-gate", daemon=True)

    def __enter__(self) -> Self:
        os.mkfifo(self._path, 0o600)
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.open()
        # A writer waits for a reader: be that reader when no tool ever came.
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        self._thread.join(JOIN_SECONDS)
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    @property
    def command(self) -> str:
        """The shell command that stays until the gate is opened."""
        return f"cat {shlex.quote(str(self._path))}"

    def wait(self, seconds: float) -> None:
        """Return when the tool has begun; raises `TimeoutError` when it does not."""
        if not self._begun.wait(seconds):
            raise TimeoutError(f"the tool did not begin within {seconds:g} s")

    def open(self) -> None:
        """Let the tool end, now or as soon as it begins."""
        self._opened.set()

    def _keep(self) -> None:
        with self._path.open("wb", buffering=0):
            self._begun.set()
            self._opened.wait()
