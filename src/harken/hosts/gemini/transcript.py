"""What Gemini CLI's own record of a conversation proves. Pure.

It appends a line for each message, and writes an answer again when its tools are done, with what hooks added to their
results. So an answer with an id that was not there before is needed after the user's line that holds a delivery's id.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence


def recorded(lines: Sequence[bytes], ids: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand before a new answer of the model."""
    held: set[str] = set()
    read: set[str] = set()
    answers: set[str] = set()
    for line in lines:
        kind, name = _entry(line)
        if kind == "user":
            held |= {each for each in ids if each.encode() in line}
        elif kind == "gemini" and name not in answers:
            answers.add(name)
            read |= held
    return read


def _entry(line: bytes) -> tuple[str, str]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return "", ""
    return (str(value.get("type", "")), str(value.get("id", ""))) if isinstance(value, dict) else ("", "")
