"""Durations as rules write them: those of Go, `1h30m` and the like.

Pure. What cannot be read is refused with what was probably meant: `5min` is `5m`. Settings have a way of their own to
write a time (`config.values`); rules keep that of the files they are compatible with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from typing import Final

MOST_CHARS: Final = 64
UNITS: Final = "ns|us|\u00b5s|\u03bcs|ms|s|m|h"  # two signs look like the Greek letter, and both are in use
PATTERN: Final = rf"\+?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:{UNITS}))+)"
"""What a duration looks like; also part of the published schema."""

_MOST: Final = timedelta(microseconds=(1 << 63) // 1000)  # as much as Go can hold
_WHOLE: Final = re.compile(PATTERN)
_PARTS: Final = re.compile(rf"([0-9]*\.?[0-9]*)({UNITS})")
_MICROSECOND: Final = Fraction(1, 10**6)
_SECONDS: Final[Mapping[str, Fraction]] = {
    "ns": _MICROSECOND / 1000,
    "us": _MICROSECOND,
    "\u00b5s": _MICROSECOND,
    "\u03bcs": _MICROSECOND,
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_LOOSE: Final = re.compile(r"[\s,]*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([a-z\u00b5\u03bc]*)[\s,.]*", re.IGNORECASE)
_MEANT: Final[Mapping[str, tuple[int, str]]] = {
    "ms": (1, "ms"), "msec": (1, "ms"), "millisecond": (1, "ms"), "milli": (1, "ms"),
    "s": (1, "s"), "sec": (1, "s"), "second": (1, "s"),
    "m": (1, "m"), "min": (1, "m"), "minute": (1, "m"),
    "h": (1, "h"), "hr": (1, "h"), "hour": (1, "h"),
    "d": (24, "h"), "day": (24, "h"),
    "w": (168, "h"), "week": (168, "h"),
}  # fmt: skip


class DurationFault(ValueError):
    """A text that is no duration; `suggestion` is what was probably meant, empty when nothing comes to mind."""

    def __init__(self, text: str, suggestion: str) -> None:
        super().__init__(f"not a duration: {text!r:.80}")
        self.suggestion = suggestion


def parse_duration(text: str) -> timedelta:
    """Return how long a text says. Raises `DurationFault`.

    What is shorter than a microsecond counts as one: nothing but 0 means none.
    """
    if len(text) > MOST_CHARS or not _WHOLE.fullmatch(text):
        raise DurationFault(text, _suggestion(text))
    seconds = sum((Fraction(number) * _SECONDS[unit] for number, unit in _numbers(text)), Fraction(0))
    if seconds > Fraction(_MOST // timedelta(seconds=1)):
        raise DurationFault(text, "")
    return timedelta(microseconds=-(-seconds // _MICROSECOND))


def format_duration(duration: timedelta) -> str:
    """Return a duration as rules write it, the shortest way; empty for none."""
    minutes, rest = divmod(duration, timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else ""]
    microseconds = rest // timedelta(microseconds=1)
    if rest >= timedelta(seconds=1):
        parts.append(_decimal(microseconds, 6) + "s")
    elif rest >= timedelta(milliseconds=1):
        parts.append(_decimal(microseconds, 3) + "ms")
    elif microseconds:
        parts.append(f"{microseconds}us")
    return "".join(parts)


def _numbers(text: str) -> list[tuple[str, str]]:
    # `5.` and `.5` are numbers in Go, and to Fraction only the second is.
    return [(number + "0" if number.endswith(".") else number, unit) for number, unit in _PARTS.findall(text)]


def _decimal(number: int, places: int) -> str:
    whole, rest = divmod(number, 10**places)
    return f"{whole}.{rest:0{places}}".rstrip("0").rstrip(".")


def _suggestion(text: str) -> str:
    """Return what was probably meant."""
    meant, place, text = "", 0, text.strip().lstrip("+-\u2212")
    if not 0 < len(text) <= MOST_CHARS:
        return ""
    if re.fullmatch(r"[0-9]{1,9}", text):
        return f"{text}s or {text}m"
    while place < len(text):
        found = _LOOSE.match(text, place)
        if found is None:
            return ""
        word = found[2].lower()
        times, unit = _MEANT.get(word) or _MEANT.get(word.removesuffix("s"), (0, ""))
        if not unit:
            return ""
        meant += _times(found[1], times) + unit
        place = found.end()
    return meant


def _times(number: str, times: int) -> str:
    return number if times == 1 else _decimal(int(Fraction(number) * times * 10**6), 6)
