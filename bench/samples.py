"""Numbers that were measured, and what is said about them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Samples:
    """The measurements of one thing, in the order they were taken."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle."""
        return statistics.median(self.values)

    @property
    def minimum(self) -> float:
        """The smallest: what it costs when nothing else runs."""
        return min(self.values)

    @property
    def maximum(self) -> float:
        """The largest."""
        return max(self.values)

    @property
    def p95(self) -> float:
        """The value that 95 of 100 do not exceed, by nearest rank."""
        ordered = sorted(self.values)
        return ordered[max(0, -(-95 * len(ordered) // 100) - 1)]


def samples(values: Iterable[float]) -> Samples:
    """Return measurements as a value; there must be at least one."""
    kept = tuple(values)
    if not kept:
        raise ValueError("nothing was measured")
    return Samples(kept)
