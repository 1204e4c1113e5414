"""How a JSON file is written: its line ends, its indentation, and whether it is on one line.

Pure. What is added to a file is written as its owner would have; where the file does not tell, two spaces are used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from harken.hosts.connect.edits.scan import JsonDocument, JsonNode
from harken.hosts.connect.edits.text import BOM, newline_of

_INDENT: Final = "  "
_SPACES: Final = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a file is written, as far as it can be told."""

    newline: str
    indent: str
    gap: str  # after a colon, and after a comma on one line
    is_flat: bool  # all on one line


def style_of(document: JsonDocument) -> Style:
    """Return how a file is written."""
    text, root = document.text, document.root
    if root is None or not root.entries:
        return Style(newline=newline_of(text), indent=_INDENT, gap=" ", is_flat=False)
    is_flat = "\n" not in text[root.start : root.end]
    unit = "" if is_flat else _unit(text, root)
    return Style(newline=newline_of(text), indent=unit or _INDENT, gap=_gap(text, root), is_flat=is_flat)


def indent_at(text: str, place: int) -> str:
    """Return the space that the line of a place begins with."""
    line = text[text.rfind("\n", 0, place) + 1 : place].removeprefix(BOM)
    return line[: len(line) - len(line.lstrip(" \t"))]


def space_before(text: str, place: int) -> str:
    """Return the space directly before a place."""
    start = place
    while start and text[start - 1] in _SPACES:
        start -= 1
    return text[start:place]


def written(value: object, style: Style, indent: str | None) -> str:
    """Return a value as JSON: on one line when `indent` is None, else with lines that begin with it."""
    if indent is None:
        return _dumped(value, None, ("," + style.gap, ":" + style.gap))
    return _dumped(value, style.indent, (",", ": ")).replace("\n", style.newline + indent)


def _dumped(value: object, indent: str | None, separators: tuple[str, str]) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:  # a path that is not UTF-8
        return json.dumps(value, indent=indent, separators=separators)
    return text


def _gap(text: str, root: JsonNode) -> str:
    """Return what follows a colon: taken from the first value whose colon stands directly before it, or one space."""
    for entry in root.entries:
        if entry.key is not None:
            return "" if text[entry.node.start - 1] == ":" else " "
    return " "


def _unit(text: str, node: JsonNode) -> str:
    """Return by how much the first thing that begins a line stands further in than what it is part of."""
    for entry in node.entries:
        space = space_before(text, entry.start)
        if "\n" in space:
            return space.rpartition("\n")[2].removeprefix(indent_at(text, node.start))
        if inner := _unit(text, entry.node):
            return inner
    return ""
