"""Bounds on CPU time that hold on any machine: in times of a fixed piece of work, measured beside the work itself.

A wide bound, too, finds what is quadratic and should be linear; a bound in seconds finds busy machines.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PROSE: Final = "The test of the parser failed in the second run, as it did before.\n" * 3_000


def _read_prose() -> float:
    """Return the seconds of CPU that the words of 200 kB of prose cost this process now, about a hundredth."""
    begun = time.process_time()
    sum(len(word.casefold()) for word in re.findall(r"\w+", PROSE))
    return time.process_time() - begun


@contextmanager
def costs_at_most(times: float) -> Iterator[None]:
    """Fail when the block costs more CPU than reading the words of 200 kB of prose so many times over."""
    before = _read_prose()
    begun = time.process_time()
    yield
    used = time.process_time() - begun
    unit = max(before, _read_prose())
    assert used < times * unit, f"it cost {used / unit:.0f} times as much as reading prose, of at most {times:.0f}"
