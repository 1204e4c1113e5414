"""Times as people write them: how long (`90s`, `1h30m`, `7d`), and when (`-2h`, `in 2h`, `14:00`, `2026-01-05T09:00`).

Pure. One grammar for settings, commands and what shows them. Rules alone have another, in `rules/fields.py`, because
their file has the durations of the program that it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from types import MappingProxyType
from typing import Final

LENGTHS: Final = "90s, 30m, 1h30m, 7d"
COMING: Final = "18:00, in 2h, tomorrow 9:00, 2026-01-05T09:00"
MOMENTS: Final = "14:00, -2h, yesterday 14:00, 2026-01-05T09:00"

_HOURS_OF_A_DAY: Final = 24
_UNITS: Final[Mapping[str, int]] = MappingProxyType({"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1})
_PART: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([wdhms])")
_LENGTH: Final = re.compile(rf"{_PART.pattern}(?: ?{_PART.pattern}){{0,4}}")
_DAY: Final = re.compile(r"(today|yesterday|tomorrow)(?:\s+(\S+))?|([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)")


def parse_duration(text: str) -> timedelta:
    """Return how long `15m`, `1h30m`, `1.5h` or `365d` is, in whole seconds; raise `ValueError` for other texts."""
    parts = _PART.findall(text) if _LENGTH.fullmatch(text) else []
    units = [unit for _, unit in parts]
    seconds, rest = divmod(sum(round(float(number) * 1_000) * _UNITS[unit] for number, unit in parts), 1_000)
    # Each unit once, the longest first: anything else is a slip of the hand.
    if not units or units != [unit for unit in _UNITS if unit in units] or rest:
        raise ValueError("not a duration")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError("too long a duration") from None


def format_duration(value: timedelta) -> str:
    """Return the shortest text that `parse_duration` reads as this time, in whole seconds."""
    minutes, seconds = divmod(value.days * 86_400 + value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    # A day is written as 24h until there are more of them: "24h" is how people say it.
    days, hours = divmod(hours, _HOURS_OF_A_DAY) if hours > _HOURS_OF_A_DAY else (0, hours)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the time that a text names, seen from `now` on this machine; raise `ValueError` if it names none.

    Without a zone it is that of this machine, with the rules of that day: not today's difference from UTC.
    """
    words = " ".join(text.lower().split())
    try:
        if words.startswith("-"):
            return now - parse_duration(words.removeprefix("-").lstrip())
        if words.startswith("in "):
            return now + parse_duration(words.removeprefix("in "))
        if found := _DAY.fullmatch(words):
            day = now.date() + timedelta(days={"yesterday": -1, "tomorrow": 1}.get(found[1] or "", 0))
            clock = found[2] or found[3] or ("09:00" if found[1] == "tomorrow" else "00:00")  # people mean the morning
            moment = datetime.combine(day, time.fromisoformat(clock if clock[1:2] != ":" else f"0{clock}"))
        else:
            moment = now if words == "now" else datetime.fromisoformat(text.strip())
        moment.astimezone(UTC)  # raises where there is no such time in UTC
        return moment.astimezone()
    except (OverflowError, OSError) as exc:
        raise ValueError("not a time") from exc


def format_moment(moment: datetime, now: datetime) -> str:
    """Return a time as people here say it: the hour, with the day unless that is today."""
    here, today = moment.astimezone(), now.astimezone()
    return f"{here:%H:%M}" if here.date() == today.date() else f"{here:%Y-%m-%d %H:%M}"
