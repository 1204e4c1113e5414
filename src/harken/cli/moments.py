"""A time as people write it on the command line: `14:00`, `-2h`, `yesterday 14:00`, `2026-01-05T09:00`.

Pure, but for the clock of whoever asks. Where no zone is named the time is that of this machine. Durations alone are
those of `rules`; this is about points in time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from types import MappingProxyType
from typing import Final

import click

from harken.model import timestamp

EXAMPLES: Final = "14:00, -2h, yesterday 14:00, 2026-01-05T09:00"
_AGO: Final = re.compile(r"-\s*((?:[0-9]{1,6}\s*[wdhms]\s*)+)")
_PART: Final = re.compile(r"([0-9]+)\s*([wdhms])")
_DAY: Final = re.compile(r"(today|yesterday)(?:\s+(\S+))?|([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)")
_UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
)


def moment_of(text: str, now: datetime) -> datetime | None:
    """Return the time that a text names, seen from `now` on this machine; None when it names none."""
    words = " ".join(text.lower().split())
    try:
        if ago := _AGO.fullmatch(words):
            parts = [timedelta(**{_UNITS[unit]: int(number)}) for number, unit in _PART.findall(ago[1])]
            return now - sum(parts, timedelta())
        if found := _DAY.fullmatch(words):
            day = now.date() - timedelta(days=1 if found[1] == "yesterday" else 0)
            clock = found[2] or found[3] or "00:00"
            return _aware(datetime.combine(day, time.fromisoformat(clock if clock[1:2] != ":" else f"0{clock}")))
        return now if words == "now" else _aware(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError, OSError):
        return None


def _aware(moment: datetime) -> datetime:
    # Without a zone it is that of this machine, with the rules of that day: not today's difference from UTC.
    aware = moment.astimezone()
    timestamp(aware)  # raises where there is no such time in UTC
    return aware


class Moment(click.ParamType[datetime]):
    """A point in time."""

    name = "time"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return it, aware of its zone."""
        if isinstance(value, datetime):
            return value
        found = moment_of(value, datetime.now().astimezone())
        if found is None:
            self.fail(f"{value[:40]!r} is no time: {EXAMPLES}, for example.", param, ctx)
        return found
