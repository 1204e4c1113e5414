"""Looking into JSON that others wrote: what is not there, or not of the kind expected, is empty.

Pure. For the protocol modules, which must not fall over a request they did not foresee.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

EVENT_STREAM: Final = "text/event-stream"
PLAIN_JSON: Final = "application/json"


def table(value: object) -> Mapping[str, object]:
    """Return an object's members."""
    return {str(key): part for key, part in value.items()} if isinstance(value, Mapping) else {}


def row(value: object) -> Sequence[object]:
    """Return an array's items."""
    return value if isinstance(value, list | tuple) else ()


def word(value: object) -> str:
    """Return a string."""
    return value if isinstance(value, str) else ""


def texts(value: object) -> str:
    """Return every text in a content, under any name of its blocks; anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(texts(part) for part in value)
    if isinstance(value, Mapping):
        if isinstance(value.get("text"), str):
            return str(value["text"])
        if "content" in value:
            return texts(value["content"])
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def compact(value: object) -> str:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def events(*parts: tuple[str, object]) -> bytes:
    """Return a stream of named events."""
    return "".join(f"event: {name}\ndata: {compact(data)}\n\n" for name, data in parts).encode()


def lines(*parts: object) -> bytes:
    """Return a stream of events without names."""
    return "".join(f"data: {compact(data)}\n\n" for data in parts).encode()
