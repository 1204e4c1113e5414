"""What a benchmark reports: a row with its reference, its ratio and its budget. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bench.samples import Samples

TIMES: Final = "\N{MULTIPLICATION SIGN}"


class Unit(StrEnum):
    """In what a row is measured. Times are taken in seconds and shown in the row's unit."""

    MILLISECONDS = "ms"
    MICROSECONDS = "µs"
    MEGABYTES = "MB"
    PER_SECOND = "/s"
    PERCENT = "%"

    @property
    def factor(self) -> float:
        """What a measurement is multiplied with to be shown."""
        return _FACTORS.get(self, 1.0)


_FACTORS: Final = {Unit.MILLISECONDS: 1e3, Unit.MICROSECONDS: 1e6, Unit.MEGABYTES: 1e-6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit: of the ratio to the reference, or of the value itself in the row's unit."""

    at_most: float | None = None
    at_least: float | None = None
    is_of_ratio: bool = True

    def text(self, unit: Unit) -> str:
        """The budget as people read it."""
        limit, sign = (self.at_most, "≤") if self.at_most is not None else (self.at_least, "≥")
        return f"{sign} {limit:,g} {TIMES}" if self.is_of_ratio else f"{sign} {limit:,g} {unit}"

    def is_met_by(self, number: float) -> bool:
        """Whether a ratio, or a value in the row's unit, is within the budget."""
        if self.at_most is not None:
            return number <= self.at_most
        return self.at_least is None or number >= self.at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One side of a row: its usual value and its best one, as measured (seconds, bytes, per second)."""

    usual: float
    best: float


def least(measured: Samples) -> Figure:
    """Where less is better: the median and the minimum."""
    return Figure(usual=measured.median, best=measured.minimum)


def most(measured: Samples) -> Figure:
    """Where more is better: the median and the maximum."""
    return Figure(usual=measured.median, best=measured.maximum)


def once(value: float) -> Figure:
    """Where there is one number only."""
    return Figure(usual=value, best=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. `limited_by` says what holds it back, shown when the budget is missed."""

    name: str
    what: str
    unit: Unit
    value: Figure
    reference_name: str = ""
    reference: Figure | None = None
    is_speedup: bool = False  # the ratio says how much faster than the reference, not how much slower
    budget: Budget | None = None
    limited_by: str = ""

    @property
    def ratio(self) -> Figure | None:
        """How the value compares with the reference."""
        if self.reference is None or not (self.reference.usual and self.reference.best):
            return None
        if self.is_speedup:
            return Figure(usual=self.reference.usual / self.value.usual, best=self.reference.best / self.value.best)
        return Figure(usual=self.value.usual / self.reference.usual, best=self.value.best / self.reference.best)

    @property
    def is_met(self) -> bool | None:
        """Whether the budget is met by the usual figure; None when there is no budget."""
        if self.budget is None:
            return None
        if not self.budget.is_of_ratio:
            return self.budget.is_met_by(self.value.usual * self.unit.factor)
        return self.ratio is not None and self.budget.is_met_by(self.ratio.usual)
