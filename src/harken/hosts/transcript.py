"""What the records of hosts prove that link each entry to the one before it. Pure.

A line that holds a delivery's id was part of the conversation; that the model read it is shown only by an answer that
follows from it. A prompt that was taken back before any answer stays in the file for ever, and proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from harken.sessions.turns import holds


def above_an_answer(lines: Sequence[bytes], ids: Collection[str], kinds: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand in an entry of one of these kinds, above an answer of the model."""
    entries = [(line, entry) for line in lines if (entry := _entry(line))]
    parents = {str(entry.get("uuid")): str(entry.get("parentUuid") or "") for _, entry in entries}
    read: set[str] = set()
    for _, entry in entries:
        place = str(entry.get("uuid")) if entry.get("type") == "assistant" else ""
        while place and place not in read:
            read.add(place)
            place = parents.get(place, "")
    held = [line for line, entry in entries if entry.get("type") in kinds and str(entry.get("uuid")) in read]
    return {each for each in ids if any(holds(line, each) for line in held)}


def _entry(line: bytes) -> Mapping[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
