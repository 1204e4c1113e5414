"""What Copilot CLI's own record of a conversation proves. Pure.

The record also holds what hooks said, whether or not the model got it. Only a prompt or a tool's result that holds a
delivery's id, with an answer of the model after it, shows that it was read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from harken.sessions.frames import holds

_CARRIERS = frozenset({"user.message", "tool.execution_complete"})


def recorded(lines: Sequence[bytes], ids: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand before an answer of the model."""
    held: set[str] = set()
    read: set[str] = set()
    for line in lines:
        kind = _kind(line)
        if kind in _CARRIERS:
            held |= {each for each in ids if holds(line, each)}
        elif kind == "assistant.message":
            read |= held
    return read


def _kind(line: bytes) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    return str(value.get("type")) if isinstance(value, dict) else ""
