"""Bounds that hold on any machine: on CPU time, on instructions of Python, and on the steps of SQLite.

CPU time is counted in times of a fixed piece of work, measured beside the work itself. A wide bound, too, finds what is
quadratic and should be linear; a bound in seconds finds busy machines.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from harken.store.sqlite.connection import connect

if TYPE_CHECKING:
    from _typeshed import TraceFunction

Ask = Callable[[sqlite3.Connection], object]

PROSE: Final = "The test of the parser failed in the second run, as it did before.\n" * 3_000


def _read_prose() -> float:
    """Return the seconds of CPU that the words of 200 kB of prose cost this process now, about a hundredth."""
    begun = time.process_time()
    sum(len(word.casefold()) for word in re.findall(r"\w+", PROSE))
    return time.process_time() - begun


@contextmanager
def costs_at_most(times: float, spent: Callable[[], float] = time.process_time) -> Iterator[None]:
    """Fail when the block costs more CPU than reading the words of 200 kB of prose so many times over.

    `spent` says the seconds of CPU until now, where that is not of this process.
    """
    before = _read_prose()
    begun = spent()
    yield
    used = spent() - begun
    unit = max(before, _read_prose())
    assert used < times * unit, f"it cost {used / unit:.0f} times as much as reading prose, of at most {times:.0f}"


def instructions_of(work: Callable[[], object]) -> int:
    """Return how many instructions of Python some work takes: the same on every machine, however busy it is."""
    counted = 0

    def count(frame: FrameType, event: str, _argument: object) -> TraceFunction:
        nonlocal counted
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return counted


def steps_of(path: Path, ask: Ask) -> int:
    """Return how many steps SQLite takes for a read."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    with closing(connect(str(path))) as connection:
        # A connection reads the schema once, and that is not what is asked.
        connection.execute("SELECT 1 FROM messages")
        connection.set_progress_handler(count, 1)
        ask(connection)
    return counted
