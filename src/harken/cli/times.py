"""Options with a time as their value: how long, and when. What may be written is in `harken.times`."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from harken.times import LENGTHS, MOMENTS, parse_duration, parse_moment

LONGEST = timedelta(days=3_650)


class Moment(click.ParamType[datetime]):
    """A point in time."""

    name = "time"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return it, aware of its zone."""
        if isinstance(value, datetime):
            return value
        try:
            return parse_moment(value, datetime.now().astimezone())
        except ValueError:
            self.fail(f"{value[:40]!r} is not a time: write it as {MOMENTS}.", param, ctx)


class Length(click.ParamType[float]):
    """A length of time, as seconds."""

    name = "time"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return its seconds."""
        if not isinstance(value, str):
            return value
        try:
            found = parse_duration(value.strip())
        except ValueError:
            found = timedelta()
        if not timedelta() < found <= LONGEST:
            self.fail(f"{value[:40]!r} is not a duration: write it as {LENGTHS}.", param, ctx)
        return found.total_seconds()
