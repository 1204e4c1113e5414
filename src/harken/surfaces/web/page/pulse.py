"""What happened lately, ready to be drawn and to be read as a table. Pure.

Takes the inbox's `PulseView`, gives it the geometry of `charts.py` and the words. The template is `panels/pulse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from harken.inbox.views import PulseView
from harken.surfaces.web.page.charts import MOST_SERIES, Bars, Column, Spread, bars, duration, spread

CHART_HEIGHT: Final = 168
ROW_HEIGHT: Final = 28
NAMED_IN_A_COLUMN: Final = 4
_ALL: Final = 100
UNNAMED: Final = "without a channel"


@dataclass(frozen=True, slots=True, kw_only=True)
class HourColumn:
    """A column of the chart, and what it says when it is pointed at."""

    column: Column
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    """A channel: its colour, its name, how much came, and its own small chart."""

    series: int
    name: str
    total: int
    share: str
    chart: Bars


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRow:
    """An hour in the table: a count per channel and the sum."""

    begin: datetime
    counts: Sequence[int]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long it took from received to seen."""

    seen: int
    median: str
    p95: str
    chart: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsePage:
    """Everything the page shows of the last hours."""

    hours: int
    total: int
    busiest: int
    chart: Bars
    columns: Sequence[HourColumn]
    rows: Sequence[ChannelRow]
    table: Sequence[HourRow]
    latency: Latency | None

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
                series=i % MOST_SERIES,
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


def _latency(view: PulseView) -> Latency | None:
    if view.median is None or view.p95 is None:
        return None
    return Latency(
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
