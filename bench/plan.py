"""How a run is done: its size, its folder, and what it shows while it works."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

FULL_MESSAGES: Final = 1_000_000
QUICK_MESSAGES: Final = 20_000
REDRAW_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured; tests use tiny ones."""

    messages: int = FULL_MESSAGES
    sessions: int = 300
    crowds: tuple[int, ...] = (1_000, 2_000)  # sessions that are woken at once
    connected: int = 2_000  # sessions that connect one after the other
    shared_sessions: int = 2_000  # of several daemons together
    load_seconds: float = 3.0
    idle_seconds: float = 5.0
    is_quick: bool = False
    rounds: int = 0  # 0: each benchmark has its own number


FULL: Final = Size()
QUICK: Final = Size(
    messages=QUICK_MESSAGES,
    crowds=(1_000,),
    connected=600,
    shared_sessions=400,
    load_seconds=1.0,
    idle_seconds=2.0,
    is_quick=True,
)


class Progress:
    """One line on a terminal that is drawn again, nothing where nobody looks."""

    def __init__(self, out: TextIO = sys.stderr) -> None:
        self._out = out
        self._is_shown = out.isatty()
        self._drawn_at = 0.0

    def step(self, what: str, done: int, total: int) -> None:
        """Show how far something is."""
        now = time.monotonic()
        if self._is_shown and (now - self._drawn_at > REDRAW_SECONDS or done >= total):
            self._drawn_at = now
            self._out.write(f"\r\x1b[K{what}: {done:,} of {total:,}")
            self._out.flush()

    def say(self, text: str) -> None:
        """Show a line that stays."""
        clear = "\r\x1b[K" if self._is_shown else ""
        self._out.write(f"{clear}{text}\n")
        self._out.flush()


@dataclass(frozen=True, slots=True)
class Plan:
    """What a benchmark is given. `folder` is its own, on a real disk, removed after the run."""

    size: Size
    folder: Path
    progress: Progress

    def rounds(self, what: str, full: int, quick: int) -> Iterator[int]:
        """Count the rounds of a measurement, showing them."""
        total = self.size.rounds or (quick if self.size.is_quick else full)
        for number in range(total):
            self.progress.step(what, number + 1, total)
            yield number

    def home(self, name: str) -> Path:
        """Return a folder for a daemon."""
        return self.folder / name
