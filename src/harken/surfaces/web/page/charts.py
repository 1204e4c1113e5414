"""The geometry of the charts: counts and durations in, places and sizes out. Pure.

It draws nothing: templates turn these values into SVG. Widths are percentages and heights are pixels, so that a chart
fits any screen without its text or its corners being stretched. Above is `pulse.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LEAST_TOP: Final = 2
ROUNDED_FROM: Final = 9.95  # seconds; what is shorter has a tenth
MOST_SERIES: Final = 9  # eight channels and the rest: as many colours as the style sheet has
LEAST_HEIGHT: Final = 3.0  # one message beside ten thousand is still to be seen
GAP_SHARE: Final = 0.22  # of a column
MINUTE, HOUR, DAY = 60, 3_600, 86_400
SHORTEST, LONGEST = 0.1, float(DAY)
MARKS: Final = (0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One series in a column, measured from the top in pixels."""

    series: int
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One span of time; in percent. `slot` is its share of the width, its gap included."""

    slot: float
    slot_width: float
    left: float
    width: float
    total: int
    segments: Sequence[Segment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Stacked columns under a scale that goes from 0 to `top`."""

    height: int
    top: int
    columns: Sequence[Column]

    @property
    def half(self) -> int:
        """The middle of the scale."""
        return self.top // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A line of a scale."""

    at: float
    label: str
    anchor: str
    is_minor: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Two durations on a scale on which each mark is about ten times the one before; places in percent."""

    median: float
    p95: float
    marks: Sequence[Mark]

    @property
    def width(self) -> float:
        """How far the second is from the first."""
        return round(self.p95 - self.median, 3)


def bars(series: Sequence[Sequence[int]], *, height: int, has_scale: bool = True) -> Bars:
    """Return columns of counts, a sequence of counts per series, the first series at the bottom.

    Without a scale to be read, the highest column takes the whole height.
    """
    if len({len(counts) for counts in series}) > 1:
        raise ValueError("every series needs a count per column")
    stacks = list(zip(*series, strict=True)) if series else []
    most = max((sum(stack) for stack in stacks), default=0)
    top = scale_top(most) if has_scale else max(1, most)
    step = 100 / len(stacks) if stacks else 100.0
    return Bars(
        height=height,
        top=top,
        columns=[
            Column(
                slot=round(step * i, 3),
                slot_width=round(step, 3),
                left=round(step * (i + GAP_SHARE / 2), 3),
                width=round(step * (1 - GAP_SHARE), 3),
                total=sum(stack),
                segments=_segments(stack, top, height),
            )
            for i, stack in enumerate(stacks)
        ],
    )


def _segments(stack: Sequence[int], top: int, height: int) -> list[Segment]:
    total = sum(stack)
    if not total:
        return []
    # The column has at least a height that can be seen; its parts share it, so that they never leave the chart.
    tall = max(min(LEAST_HEIGHT, height), height * total / top)
    floor, found = float(height), list[Segment]()
    for series, count in enumerate(stack):
        if count:
            part = tall * count / total
            floor -= part
            found.append(Segment(series=series % MOST_SERIES, y=round(max(0.0, floor), 2), height=round(part, 2)))
    return found


def scale_top(most: int) -> int:
    """Return an even, round number that is at least `most`: its half is a whole number too."""
    if most <= LEAST_TOP:
        return LEAST_TOP
    unit = int(10 ** (len(str(most)) - 1))
    # Ten of the unit are always enough, and even.
    return next(factor * unit for factor in (1, 2, 4, 6, 8, 10) if factor * unit >= most and factor * unit % 2 == 0)


def spread(median: float, p95: float) -> Spread:
    """Return where two durations are on the scale; what is beyond its ends is shown at them."""
    marks = [
        Mark(
            at=place(seconds),
            label=duration(seconds),
            anchor="start" if seconds == SHORTEST else "end" if seconds == LONGEST else "middle",
            is_minor=seconds in (10.0, 600.0),
        )
        for seconds in MARKS
    ]
    first = place(median)
    return Spread(median=first, p95=max(first, place(p95)), marks=marks)


def place(seconds: float) -> float:
    """Return where a duration is on the scale, in percent."""
    within = min(max(seconds, SHORTEST), LONGEST)
    return round(100 * math.log(within / SHORTEST) / math.log(LONGEST / SHORTEST), 3)


def duration(seconds: float) -> str:
    """Say how long something took, with two units at most."""
    if seconds < ROUNDED_FROM:
        return f"{round(max(0.0, seconds), 1):g} s"
    whole = round(seconds)
    for size, unit, part, part_unit in ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {part_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
