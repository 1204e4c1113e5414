"""The text format that Prometheus reads, version 0.0.4: families of samples, written line by line.

Pure, and by hand: it is a page of rules, and a library for it would be imported at every start of the daemon. It knows
nothing of what is measured; that is declared in the daemon, above. Values of labels may be any text: what could end a
line or a quote in them is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Final

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricKind(StrEnum):
    """What a family's numbers are."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class FamilyInfo:
    """What is measured, declared once: its name, what kind of number it is, and what it says."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One number, with the values of its family's labels in their order."""

    value: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricHistogram:
    """What a histogram says: how many were at most each bound (and the last: above all), and their sum."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """A family with what was found."""

    family: FamilyInfo
    samples: Sequence[MetricSample] = ()
    spread: MetricHistogram | None = None


@dataclass(slots=True)
class Buckets:
    """Counts values by how large they are. Changes; `spread` is what it says now."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list[int])
    total: float = 0.0

    def __post_init__(self) -> None:
        """Begin at zero."""
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        place = next((at for at, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))
        self.counts[place] += 1
        self.total += value

    def spread(self) -> MetricHistogram:
        """Return what was counted until now."""
        return MetricHistogram(bounds=self.bounds, counts=tuple(self.counts), total=self.total)


def exposition(found: Iterable[MetricFamily]) -> str:
    """Return everything that was measured as one text."""
    return "".join(f"{line}\n" for measured in found for line in _lines(measured))


def _lines(measured: MetricFamily) -> Iterator[str]:
    family = measured.family
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in measured.samples:
        yield f"{family.name}{_labels(dict(zip(family.labels, sample.labels, strict=True)))} {_number(sample.value)}"
    if measured.spread is not None:
        yield from _spread_lines(family.name, measured.spread)


def _spread_lines(name: str, spread: MetricHistogram) -> Iterator[str]:
    counts = list(accumulate(spread.counts))
    for bound, count in zip((*spread.bounds, math.inf), counts, strict=True):
        yield f"{name}_bucket{_labels({'le': _number(bound)})} {count}"
    yield f"{name}_sum {_number(spread.total)}"
    yield f"{name}_count {counts[-1]}"


def _labels(values: Mapping[str, str]) -> str:
    if not values:
        return ""
    pairs = (f'{name}="{_escaped(value).replace(chr(34), chr(92) + chr(34))}"' for name, value in values.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    # Half of a surrogate pair has no UTF-8, and the answer is UTF-8.
    sound = text.encode("utf-8", "replace").decode("utf-8")
    return sound.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
