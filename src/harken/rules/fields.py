"""What each field of a rule accepts.

Every reader takes what the file says and returns the value, or raises `FieldMisfit`. Pure. Durations are those of Go,
`1h30m` and the like, as in the files that rules are compatible with; `5min` is refused as what was probably meant,
`5m`. Which fields a rule needs together is `load`'s business; the same limits, for editors, are in `schema`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import time, timedelta
from fractions import Fraction
from typing import Final

from harken.automation import Mode, QuietHours
from harken.model import Trust
from harken.rules.fault import FieldMisfit, closest
from harken.rules.match import MAX_PATTERN_CHARS, PatternFault, compile_pattern

NAME_CHARS: Final = 64
LINE_CHARS: Final = 256
PROMPT_CHARS: Final = 64_000
MAX_TOOLS: Final = 200
MAX_TURNS: Final = 200
LONGEST_RUN: Final = timedelta(hours=24)

# Control and bidi characters, and those that nobody sees. Joiners stay: scripts and pictures need them. Written so that
# editors, which read them in the published schema, understand them too: they have no escape beyond four digits.
_HIDDEN: Final = (
    r"\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f"
)
NOT_IN_A_LINE: Final = rf"[\u0000-\u001f\u007f-\u009f{_HIDDEN}]"
NOT_IN_A_TEXT: Final = rf"[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f{_HIDDEN}]"
QUIET_HOURS: Final = r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])"
WORKDIR: Final = r"(?:/|~/|~$|[A-Za-z]:[\\/])"

_LINE: Final = re.compile(NOT_IN_A_LINE)
_TEXT: Final = re.compile(NOT_IN_A_TEXT)
_QUIET: Final = re.compile(QUIET_HOURS)
_WORKDIR: Final = re.compile(WORKDIR)
_LOOSE_QUIET: Final = re.compile(
    r"\s*([0-9]{1,2})(?:[:.h]([0-9]{2}))?\s*(?:-|to|\u2013)\s*([0-9]{1,2})(?:[:.h]([0-9]{2}))?\s*"
)
_GO_DURATION: Final = "a duration such as 300ms, 30s, 5m or 1h30m"


def name(value: object, most: int = NAME_CHARS) -> str:
    """Return a name: something that can be seen, on one line."""
    found = line(value, most)
    if not found.strip():
        raise FieldMisfit(f"it needs 1 to {most} characters that can be seen")
    return found


def line(value: object, most: int = LINE_CHARS) -> str:
    """Return a text on one line."""
    if not isinstance(value, str):
        raise FieldMisfit("it must be a text in quotes")
    if len(value) > most:
        raise FieldMisfit(f"it may have at most {most:,} characters, and has {len(value):,}")
    if found := _LINE.search(value):
        raise FieldMisfit(f"it may have no control or invisible characters, and has U+{ord(found[0]):04X}")
    return value


def prompt(value: object) -> str:
    """Return a template; one of blanks only is none."""
    found = _text(value, PROMPT_CHARS)
    return found if found.strip() else ""


def content_regex(value: object) -> str:
    """Return a regular expression that can be compiled."""
    found = _text(value, MAX_PATTERN_CHARS)
    try:
        compile_pattern(found)
    except PatternFault as exc:
        place = f", at character {exc.position}" if exc.position else ""
        said = _LINE.sub("?", exc.reason)[:LINE_CHARS]
        raise FieldMisfit(
            f"it must be a regular expression of RE2 ({said}{place}); in JSON each backslash is written twice"
        ) from exc
    return found


def mode(value: object) -> Mode:
    """Return a mode; an empty one is `notify`, as in older files."""
    if value == "":
        return Mode.NOTIFY
    if isinstance(value, str) and value in list(Mode):
        return Mode(value)
    raise FieldMisfit(_one_of([item.value for item in Mode], value))


def trust(value: object) -> Trust:
    """Return the least trust of a sender."""
    if isinstance(value, str) and value in list(Trust):
        return Trust(value)
    raise FieldMisfit(_one_of([item.value for item in Trust], value))


def tools(value: object) -> tuple[str, ...]:
    """Return the tools that a run may use."""
    if isinstance(value, str):
        raise FieldMisfit("it must be a list: put the tool in brackets")
    if not isinstance(value, list):
        raise FieldMisfit("it must be a list of tools")
    if len(value) > MAX_TOOLS:
        raise FieldMisfit(f"it may have at most {MAX_TOOLS} tools, and has {len(value)}")
    for number, item in enumerate(value, 1):
        try:
            name(item, LINE_CHARS)
        except FieldMisfit as exc:
            raise FieldMisfit(f"of number {number}: {exc}") from exc
    return tuple(value)


def duration(value: object) -> timedelta:
    """Return a duration; an empty one is none."""
    if not isinstance(value, str):
        number = value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None
        meant = "" if number is None else f'write "{number}s" or "{number}m": '
        raise FieldMisfit(f"{meant}it must be {_GO_DURATION}, in quotes")
    if not value:
        return timedelta(0)
    try:
        return parse_duration(value)
    except DurationFault as exc:
        meant = f"write {exc.suggestion}: " if exc.suggestion else ""
        raise FieldMisfit(f"{meant}it must be {_GO_DURATION}") from exc


def timeout(value: object) -> timedelta:
    """Return how long a run may take."""
    found = duration(value)
    if not timedelta(seconds=1) <= found <= LONGEST_RUN:
        raise FieldMisfit(f"it must be from 1s to {format_duration(LONGEST_RUN)}")
    return found


def max_turns(value: object) -> int:
    """Return how many turns a run may take."""
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not is_whole or not isinstance(value, int | float) or not 1 <= value <= MAX_TURNS:
        raise FieldMisfit(f"it must be a whole number from 1 to {MAX_TURNS}")
    return int(value)


def truth(value: object) -> bool:
    """Return a yes or no."""
    if not isinstance(value, bool):
        raise FieldMisfit("it must be true or false")
    return value


def workdir(value: object) -> str:
    """Return a folder, written in full."""
    found = line(value, 4096)
    if found and not _WORKDIR.match(found):
        raise FieldMisfit("it must be a folder written in full, beginning with / or ~/")
    return found


def quiet_hours(value: object) -> QuietHours | None:
    """Return the hours in which a rule does not fire; empty ones are none."""
    found = line(value)
    if not found:
        return None
    parts = _QUIET.fullmatch(found)
    if parts is None:
        raise FieldMisfit(f'{_meant_hours(found)}it must be two times of the day, such as "22:00-07:00"')
    begin, end = time(int(parts[1]), int(parts[2])), time(int(parts[3]), int(parts[4]))
    if begin == end:
        raise FieldMisfit("begin and end must differ; to silence a rule, take it out")
    return QuietHours(begin, end)


KEYS: Final = (
    "name", "server", "channel", "contentRegex", "mode", "prompt", "tools", "rateLimit", "dedupWindow",
    "agent", "workdir", "trust", "timeout", "maxTurns", "reply", "quietHours", "mailbox", "machine",
)  # fmt: skip
MIN_TRUST: Final[Mapping[Mode, Trust]] = {Mode.AUTO: Trust.KNOWN}
"""The least trust of a sender where a rule names none; unknown for the other modes."""


def _text(value: object, most: int) -> str:
    if not isinstance(value, str):
        raise FieldMisfit("it must be a text in quotes")
    if len(value) > most:
        raise FieldMisfit(f"it may have at most {most:,} characters, and has {len(value):,}")
    if found := _TEXT.search(value):
        raise FieldMisfit(f"it may have no control or invisible characters, and has U+{ord(found[0]):04X}")
    return value


def _one_of(known: list[str], value: object) -> str:
    guess = closest(value.strip(), known) if isinstance(value, str) else ""
    listed = f"{', '.join(known[:-1])} or {known[-1]}"
    return f"write {guess} (it is one of {listed})" if guess else f"it must be {listed}"


def _meant_hours(text: str) -> str:
    found = _LOOSE_QUIET.fullmatch(text[:LINE_CHARS])
    if found is None:
        return ""
    meant = f"{int(found[1]):02}:{found[2] or '00'}-{int(found[3]):02}:{found[4] or '00'}"
    return f"write {meant}: " if _QUIET.fullmatch(meant) else ""


MAX_CHARS: Final = 64
UNITS: Final = "ns|us|\u00b5s|\u03bcs|ms|s|m|h"  # two signs look like the Greek letter, and both are in use
PATTERN: Final = rf"\+?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:{UNITS}))+)"
"""What a duration looks like; also part of the published schema."""

_MAX: Final = timedelta(microseconds=(1 << 63) // 1000)  # as much as Go can hold
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
    if len(text) > MAX_CHARS or not _WHOLE.fullmatch(text):
        raise DurationFault(text, _suggestion(text))
    seconds = sum((Fraction(number) * _SECONDS[unit] for number, unit in _numbers(text)), Fraction(0))
    if seconds > Fraction(_MAX // timedelta(seconds=1)):
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
    if not 0 < len(text) <= MAX_CHARS:
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
