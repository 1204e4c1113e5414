"""What Claude Code's own record of a conversation proves. Pure.

A line that holds a delivery's id was part of the conversation; that the model read it is shown only by an answer that
follows from it. A prompt that was taken back before any answer stays in the file for ever, and so does what waited in
a queue: both prove nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

_CARRIERS = frozenset({"user", "attachment"})


def recorded(lines: Sequence[bytes], ids: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand above an answer of the model."""
    whole = [(line, entry) for line in lines if (entry := _entry(line))]
    entries = [entry for _, entry in whole]
    parents = {str(entry.get("uuid")): str(entry.get("parentUuid") or "") for entry in entries}
    read: set[str] = set()
    for entry in entries:
        place = str(entry.get("uuid")) if entry.get("type") == "assistant" else ""
        while place and place not in read:
            read.add(place)
            place = parents.get(place, "")
    held = [line for line, e in whole if e.get("type") in _CARRIERS and str(e.get("uuid")) in read]
    return {each for each in ids if any(each.encode() in line for line in held)}


def _entry(line: bytes) -> Mapping[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
