"""What a run prints, kept: one file of JSON lines per run, with a limit, that can be followed while it grows.

The kinds of lines are those of `sandbox.OutputKind`, and `begin`, `end`, `stderr`, `cut`, `changed` and `undone`.
Lines are numbered from 1. What is over the limit is counted and not kept; the end is always kept. Files of runs that
the store has forgotten are removed by `sweep`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

import anyio
import msgspec

from harken.automation import OutputLine, OutputPart, RunId
from harken.memory import json_bytes
from harken.model import timestamp

_log = logging.getLogger("harken.runs")

MOST_BYTES: Final = 1_000_000
MOST_LINE_CHARS: Final = 16_000
MOST_LINES_AT_ONCE: Final = 500
SUFFIX: Final = ".jsonl"
RECORD: Final = "-changes.jsonl"  # what a run changed is kept beside; see `folders`
PRIVATE: Final = 0o600


class RunOutput:
    """The output of one run that is going on."""

    def __init__(self, path: Path) -> None:
        self._file = _opened(path)
        self._left = MOST_BYTES
        self._dropped = 0
        self._grown = anyio.Event()

    def add(self, at: datetime, kind: str, text: str = "", tool: str = "") -> None:
        """Keep a line, if there is room."""
        line = self._encoded(at, kind, text, tool)
        if len(line) > self._left:
            self._dropped += 1
            return
        self._left -= len(line)
        self._write(line)

    def close(self, at: datetime, text: str) -> None:
        """Say how it ended, and how much was not kept."""
        if self._dropped:
            self._write(self._encoded(at, "cut", f"{self._dropped} more lines were not kept"))
        self._write(self._encoded(at, "end", text))
        if self._file is not None:
            self._file.close()

    def wake(self) -> None:
        """Let whoever waits for a line look again."""
        self._grown.set()
        self._grown = anyio.Event()

    async def grown(self) -> None:
        """Wait for the next line."""
        await self._grown.wait()

    def _encoded(self, at: datetime, kind: str, text: str = "", tool: str = "") -> bytes:
        cut = text if len(text) <= MOST_LINE_CHARS else f"{text[:MOST_LINE_CHARS]}…"
        return json_bytes(OutputLine(timestamp(at), kind, cut, tool[:200])) + b"\n"

    def _write(self, line: bytes) -> None:
        try:
            if self._file is not None:
                self._file.write(line)
        except OSError:
            # The disk is full: the run matters more than what it says.
            self._dropped += 1
        self.wake()


class RunOutputs:
    """The outputs of all runs of one home."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._live: dict[RunId, RunOutput] = {}

    def path(self, run: RunId) -> Path:
        """Return where a run's output is."""
        return self._folder / f"{run}{SUFFIX}"

    def begin(self, run: RunId) -> RunOutput:
        """Begin the output of a run."""
        output = self._live[run] = RunOutput(self.path(run))
        return output

    def finish(self, run: RunId) -> None:
        """Nothing more comes from a run."""
        output = self._live.pop(run, None)
        if output is not None:
            output.wake()

    def read(self, run: RunId, after: int) -> OutputPart:
        """Return the lines after a number."""
        try:
            kept = self.path(run).read_bytes().split(b"\n")
        except OSError:
            return OutputPart([], after)
        # What follows the last line end is being written, or nothing.
        lines = kept[:-1][max(after, 0) :][:MOST_LINES_AT_ONCE]
        found = [line for each in lines if (line := _decoded(each)) is not None]
        return OutputPart(found, max(after, 0) + len(lines))

    async def wait(self, run: RunId, after: int, seconds: float) -> OutputPart:
        """Return the lines after a number, as soon as there is one, it is over, or the time is."""
        with anyio.move_on_after(seconds):
            while (live := self._live.get(run)) is not None:
                part = self.read(run, after)
                if part.lines:
                    return part
                await live.grown()
        return self.read(run, after)

    def sweep(self, known: Collection[RunId]) -> int:
        """Remove the outputs of runs that are not known any more; return how many."""
        kept = {f"{run}{SUFFIX}" for run in known}
        found = (path for path in self._folder.glob(f"*{SUFFIX}") if not path.name.endswith(RECORD))
        gone = [path for path in found if path.name not in kept]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)


def _opened(path: Path) -> BinaryIO | None:
    """Return a new private file to write to, or nothing where there can be none: the run goes on without."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE), "ab", buffering=0)
    except OSError as exc:
        _log.warning("what a run says cannot be kept: %s", exc)
        return None


def _decoded(line: bytes) -> OutputLine | None:
    """Return a line, or nothing of one that a crash cut short."""
    try:
        return msgspec.json.decode(line, type=OutputLine)
    except msgspec.DecodeError:
        return None
