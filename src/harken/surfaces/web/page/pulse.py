"""What happened lately, ready to be drawn and to be read as a table. Pure.

Takes the inbox's `PulseView` and gives it geometry and words; the template `panels/pulse` turns these values into SVG.
Widths are percentages and heights are pixels, so that a chart fits any screen without its text or its corners being
stretched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from harken.inbox.views import PulseView

CHART_HEIGHT: Final = 168
ROW_HEIGHT: Final = 28
NAMED_IN_A_COLUMN: Final = 4
_ALL: Final = 100
UNNAMED: Final = "without a channel"


@dataclass(frozen=True, slots=True, kw_only=True)
class HourColumn:
    """A column of the chart, and what it says when it is pointed at."""

    column: BarColumn
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    """A channel: its colour, its name, how much came, and its own small chart."""

    series: int
    name: str
    total: int
    share: str
    chart: BarChart


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRow:
    """An hour in the table: a count per channel and the sum."""

    begin: datetime
    counts: Sequence[int]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyView:
    """How long it took from received to seen."""

    seen: int
    median: str
    p95: str
    chart: LatencySpread


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsePage:
    """Everything the page shows of the last hours."""

    hours: int
    total: int
    busiest: int
    chart: BarChart
    columns: Sequence[HourColumn]
    rows: Sequence[ChannelRow]
    table: Sequence[HourRow]
    latency: LatencyView | None

    @property
    def summary(self) -> str:
        """The chart in one sentence, for those who do not see it."""
        if not self.total:
            return f"No messages in the last {self.hours} hours."
        named = ", ".join(f"{row.name} {row.total}" for row in self.rows)
        return f"{counted(self.total)} in the last {self.hours} hours, at most {self.busiest} in one hour: {named}."


def pulse_page(view: PulseView) -> PulsePage:
    """Return what happened lately as the page shows it."""
    series = [row.counts for row in view.rows]
    names = [row.channel or UNNAMED for row in view.rows]
    chart = bars(series, height=CHART_HEIGHT)
    stacks = list(zip(*series, strict=True))
    total = sum(sum(counts) for counts in series)
    return PulsePage(
        hours=len(view.begins),
        total=total,
        busiest=max((column.total for column in chart.columns), default=0),
        chart=chart,
        columns=[
            HourColumn(column=column, said=_said(len(stacks) - 1 - i, stack, names))
            for i, (column, stack) in enumerate(zip(chart.columns, stacks, strict=True))
        ],
        rows=[
            ChannelRow(
                series=i % MAX_SERIES,
                name=name,
                total=sum(counts),
                share=share_of(sum(counts), total),
                chart=bars([counts], height=ROW_HEIGHT, has_scale=False),
            )
            for i, (name, counts) in enumerate(zip(names, series, strict=True))
        ],
        table=[
            HourRow(begin=begin, counts=stack, total=sum(stack))
            for begin, stack in zip(view.begins, stacks, strict=False)
        ],
        latency=_latency(view),
    )


def counted(count: int) -> str:
    """Say how many messages."""
    return "1 message" if count == 1 else f"{count:,} messages"


def share_of(part: int, whole: int) -> str:
    """Say which share a part is; neither little nor much is rounded to nothing or to everything."""
    if not part or not whole:
        return "0 %"
    percent = round(100 * part / whole)
    if percent == 0:
        return "< 1 %"
    return "> 99 %" if percent == _ALL and part < whole else f"{percent} %"


def _latency(view: PulseView) -> LatencyView | None:
    if view.median is None or view.p95 is None:
        return None
    return LatencyView(
        seen=view.seen, median=duration(view.median), p95=duration(view.p95), chart=spread(view.median, view.p95)
    )


def _said(age: int, stack: Sequence[int], names: Sequence[str]) -> str:
    """Say what a column shows. Ages, not times of day: the server does not know the reader's time zone."""
    when = "This hour" if age == 0 else "1 hour ago" if age == 1 else f"{age} hours ago"
    parts = sorted(((count, name) for count, name in zip(stack, names, strict=True) if count), reverse=True)
    if not parts:
        return f"{when}: nothing"
    named = [f"{name} {count}" for count, name in parts[:NAMED_IN_A_COLUMN]]
    rest = sum(count for count, _ in parts[NAMED_IN_A_COLUMN:])
    return f"{when}: {counted(sum(stack))} ({', '.join([*named, *([f'others {rest}'] if rest else [])])})"


MIN_TOP: Final = 2
ROUNDED_FROM: Final = 9.95  # seconds; what is shorter has a tenth
MAX_SERIES: Final = 9  # eight channels and the rest: as many colours as the style sheet has
MIN_HEIGHT: Final = 3.0  # one message beside ten thousand is still to be seen
GAP_SHARE: Final = 0.22  # of a column
MINUTE, HOUR, DAY = 60, 3_600, 86_400
SHORTEST, LONGEST = 0.1, float(DAY)
MARKS: Final = (0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BarSegment:
    """One series in a column, measured from the top in pixels."""

    series: int
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BarColumn:
    """One span of time; in percent. `slot` is its share of the width, its gap included."""

    slot: float
    slot_width: float
    left: float
    width: float
    total: int
    segments: Sequence[BarSegment]


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """Stacked columns under a scale that goes from 0 to `top`."""

    height: int
    top: int
    columns: Sequence[BarColumn]

    @property
    def half(self) -> int:
        """The middle of the scale."""
        return self.top // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleMark:
    """A line of a scale."""

    at: float
    label: str
    anchor: str
    is_minor: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySpread:
    """Two durations on a scale on which each mark is about ten times the one before; places in percent."""

    median: float
    p95: float
    marks: Sequence[ScaleMark]

    @property
    def width(self) -> float:
        """How far the second is from the first."""
        return round(self.p95 - self.median, 3)


def bars(series: Sequence[Sequence[int]], *, height: int, has_scale: bool = True) -> BarChart:
    """Return columns of counts, a sequence of counts per series, the first series at the bottom.

    Without a scale to be read, the highest column takes the whole height.
    """
    if len({len(counts) for counts in series}) > 1:
        raise ValueError("every series needs a count per column")
    stacks = list(zip(*series, strict=True)) if series else []
    most = max((sum(stack) for stack in stacks), default=0)
    top = scale_top(most) if has_scale else max(1, most)
    step = 100 / len(stacks) if stacks else 100.0
    return BarChart(
        height=height,
        top=top,
        columns=[
            BarColumn(
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


def _segments(stack: Sequence[int], top: int, height: int) -> list[BarSegment]:
    total = sum(stack)
    if not total:
        return []
    # The column has at least a height that can be seen; its parts share it, so that they never leave the chart.
    tall = max(min(MIN_HEIGHT, height), height * total / top)
    floor, found = float(height), list[BarSegment]()
    for series, count in enumerate(stack):
        if count:
            part = tall * count / total
            floor -= part
            found.append(BarSegment(series=series % MAX_SERIES, y=round(max(0.0, floor), 2), height=round(part, 2)))
    return found


def scale_top(most: int) -> int:
    """Return an even, round number that is at least `most`: its half is a whole number too."""
    if most <= MIN_TOP:
        return MIN_TOP
    unit = int(10 ** (len(str(most)) - 1))
    # Ten of the unit are always enough, and even.
    return next(factor * unit for factor in (1, 2, 4, 6, 8, 10) if factor * unit >= most and factor * unit % 2 == 0)


def spread(median: float, p95: float) -> LatencySpread:
    """Return where two durations are on the scale; what is beyond its ends is shown at them."""
    marks = [
        ScaleMark(
            at=place(seconds),
            label=duration(seconds),
            anchor="start" if seconds == SHORTEST else "end" if seconds == LONGEST else "middle",
            is_minor=seconds in (10.0, 600.0),
        )
        for seconds in MARKS
    ]
    first = place(median)
    return LatencySpread(median=first, p95=max(first, place(p95)), marks=marks)


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
