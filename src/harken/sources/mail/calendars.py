"""An invitation as lines that people read: what is asked, what, when, where, who. Pure.

It reads the few fields of the first event and no rules of repetition; times are told as they are written, with the
name of their zone. Above is `reading.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

MOST_LINES: Final = 5_000
MOST_VALUE: Final = 300

_METHODS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "REQUEST": "Meeting invitation",
        "CANCEL": "Meeting cancelled",
        "REPLY": "Answer to a meeting invitation",
        "COUNTER": "Another time is proposed for a meeting",
        "PUBLISH": "Meeting announced",
    }
)
_FOLD: Final = re.compile(r"\r?\n[ \t]")
_TIME: Final = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})(Z?))?")
_ESCAPED: Final = re.compile(r"\\([nN,;\\])")
_ZONE: Final = re.compile(r";TZID=(?:\"([^\"]{1,80})\"|([^;:]{1,80}))", re.IGNORECASE)
_MAILTO: Final = re.compile(r"(?i)mailto:")
_WANTED: Final = frozenset({"SUMMARY", "DTSTART", "DTEND", "LOCATION", "ORGANIZER", "RRULE"})


def invitation_lines(calendar: str) -> list[str]:
    """Return what an invitation says; nothing if it holds no event."""
    method, fields = _fields(calendar)
    if not fields:
        return []
    lines = [f"[{_METHODS.get(method, 'About a meeting')}]"]
    begin, end = _when(fields.get("DTSTART", "")), _when(fields.get("DTEND", ""))
    if what := _value(fields.get("SUMMARY", "")):
        lines.append(f"What: {what}")
    if begin:
        lines.append(f"When: {begin}{f' to {end}' if end else ''}{', repeated' if 'RRULE' in fields else ''}")
    if where := _value(fields.get("LOCATION", "")):
        lines.append(f"Where: {where}")
    if organiser := _MAILTO.sub("", _value(fields.get("ORGANIZER", ""))):
        lines.append(f"Organiser: {organiser}")
    return lines


def _fields(calendar: str) -> tuple[str, dict[str, str]]:
    """Return the method, and the wanted fields of the first event with what stands behind their names."""
    method, fields, is_inside = "", dict[str, str](), False
    depth = 0
    for line in _FOLD.sub("", calendar).splitlines()[:MOST_LINES]:
        name = re.split(r"[;:]", line, maxsplit=1)[0].strip().upper()
        if name == "METHOD":
            method = line.partition(":")[2].strip().upper()
        elif line.strip().upper() == "BEGIN:VEVENT":
            is_inside = True
        elif is_inside and name == "BEGIN":
            depth += 1  # an alarm, with a description of its own
        elif is_inside and name == "END":
            if depth == 0:
                return method, fields or {"": ""}
            depth -= 1
        elif is_inside and depth == 0 and name in _WANTED:
            fields.setdefault(name, line[len(name) :])
    return method, fields


def _value(rest: str) -> str:
    # A colon inside quotes belongs to a parameter.
    is_quoted = False
    for place, char in enumerate(rest[: 4 * MOST_VALUE]):
        if char == '"':
            is_quoted = not is_quoted
        elif char == ":" and not is_quoted:
            said = _ESCAPED.sub(lambda found: " " if found[1] in "nN" else found[1], rest[place + 1 :][:MOST_VALUE])
            return " ".join(said.split())
    return ""


def _when(rest: str) -> str:
    time = _TIME.match(_value(rest))
    if time is None:
        return ""
    year, month, day, hour, minute, _, zulu = time.groups()
    if hour is None:
        return f"{year}-{month}-{day}"
    zone = _ZONE.search(rest)
    named = "UTC" if zulu else " ".join((zone[1] or zone[2]).split()) if zone else ""
    return f"{year}-{month}-{day} {hour}:{minute}{f' {named}' if named else ''}"
