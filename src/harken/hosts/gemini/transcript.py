"""What Gemini CLI's own record of a conversation proves. Pure.

It appends a line for each message, and writes an answer again when its tools are done, with what hooks added to their
results. So an answer with an id that was not there before is needed after the user's line that holds a delivery's id.
A rewound conversation goes on in the same file, after a line that names the message it was taken back to.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from harken.sessions.frames import holds


def recorded(lines: Sequence[bytes], ids: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand before a new answer of the model."""
    held: dict[str, str] = {}  # by the message that holds it
    read: set[str] = set()
    names: dict[str, None] = {}  # of all messages so far, in their order
    for line in lines:
        entry = _entry(line)
        kind, name = str(entry.get("type", "")), str(entry.get("id", ""))
        if "$rewindTo" in entry:
            held = _before(str(entry["$rewindTo"]), names, held)
        elif kind == "user":
            held |= {each: name for each in ids if holds(line, each)}
        elif kind == "gemini" and name not in names:
            read.update(held)
        names[name] = None
    return read


def _before(place: str, names: Collection[str], held: Mapping[str, str]) -> dict[str, str]:
    """Return what stands before the message that a conversation was taken back to; nothing when that is not known."""
    order = list(names)
    kept = set(order[: order.index(place)]) if place in order else set[str]()
    return {each: name for each, name in held.items() if name in kept}


def _entry(line: bytes) -> Mapping[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
