"""Changes to JSON and JSONC files in place: everything that is not named stays as it is, byte for byte.

Pure: bytes in, bytes out. Comments, spacing, line ends and a byte order mark are kept; what is added is written in
the style of the file. Every edit may be made twice. Taking out what was set into a file gives the first bytes again,
with two exceptions: an object or array that was there and empty goes with the last thing in it, and a file without
any value is an empty object afterwards. `None` stands for a file that does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from harken.hosts.connect.edits.scan import JsonDocument, JsonEntry, JsonNode, scan
from harken.hosts.connect.edits.style import Style, indent_at, space_before, style_of, written
from harken.hosts.connect.edits.text import BOM, decode, fault, newline_of

Where = Sequence[str | int]
"""The keys, and numbers of items, that lead from the root to a value."""

_SPACES = " \t\r\n"


def json_value(data: bytes | None, path: Where = (), *, file: Path) -> object:
    """Return what stands at a path; None when nothing does."""
    node = _open(data, file).root
    for part in path:
        entry = node.find(part) if node else None
        node = entry.node if entry else None
    return node.value if node else None


def json_set(data: bytes | None, path: Where, value: object, *, file: Path) -> bytes:
    """Set the value at a path, with the objects that lead there; an equal value is left as it is written."""
    document = _open(data, file)
    node, rest = _reach(document, path, file)
    if rest:
        return _with(document, node, str(rest[0]), _nested(rest[1:], value))
    if _same(node.value, value) and data is not None:
        return data
    style = style_of(document)
    was_flat = bool(node.entries) and "\n" not in document.text[node.start : node.end]
    indent = None if style.is_flat or was_flat else indent_at(document.text, node.start)
    return _replaced(document.text, [(node.start, node.end, written(value, style, indent))])


def json_append(data: bytes | None, path: Where, item: object, *, file: Path) -> bytes:
    """Append an item to the array at a path, unless an equal one is there; a missing array is made."""
    document = _open(data, file)
    node, rest = _reach(document, path, file)
    if rest:
        return _with(document, node, str(rest[0]), _nested(rest[1:], [item]))
    if not node.is_array:
        raise fault(document.text, node.start, "a list was expected here", file)
    if any(_same(entry.node.value, item) for entry in node.entries) and data is not None:
        return data
    return _with(document, node, None, item)


def json_remove(data: bytes | None, path: Where, *, file: Path) -> bytes | None:
    """Take out what stands at a path, and every parent that this leaves empty."""
    if data is None:
        return None
    while True:
        document = _open(data, file)
        chain = _chain(document, path)
        if len(chain) < len(path) or not path:
            return data
        data = _without(document, chain)


def json_remove_items(
    data: bytes | None, path: Where, is_unwanted: Callable[[object], bool], *, file: Path
) -> bytes | None:
    """Take the items that satisfy a predicate out of the array at a path, and every parent that this leaves empty."""
    if data is None:
        return None
    while True:
        document = _open(data, file)
        chain = _chain(document, path)
        array = chain[-1][1].node if chain else document.root
        if len(chain) < len(path) or array is None or not array.is_array:
            return data
        item = next((entry for entry in array.entries if is_unwanted(entry.node.value)), None)
        if item is None:
            return data
        data = _without(document, [*chain, (array, item)])


def _open(data: bytes | None, file: Path) -> JsonDocument:
    document = scan(decode(data or b"", file), file)
    if document.root is not None:
        return document
    # Space and comments only, which the hosts take for no settings at all.
    text = document.text
    gap = newline_of(text) if text.strip(_SPACES + BOM) and not text.endswith("\n") else ""
    return scan(f"{text}{gap}{{}}{newline_of(text)}", file)


def _reach(document: JsonDocument, path: Where, file: Path) -> tuple[JsonNode, list[str | int]]:
    """Follow a path as far as it goes; return the last node on it and the parts that are not there."""
    node = document.root
    if node is None:
        raise fault(document.text, 0, "a value is missing here", file)
    rest = list(path)
    while rest and (entry := node.find(rest[0])):
        node = entry.node
        rest.pop(0)
    if rest and not (node.is_object and all(isinstance(part, str) for part in rest)):
        raise fault(document.text, node.start, "an object in braces was expected here", file)
    return node, rest


def _chain(document: JsonDocument, path: Where) -> list[tuple[JsonNode, JsonEntry]]:
    """Return the entries on a path, each with what it stands in; shorter than the path where that ends early."""
    chain: list[tuple[JsonNode, JsonEntry]] = []
    node = document.root
    for part in path:
        entry = node.find(part) if node else None
        if node is None or entry is None:
            break
        chain.append((node, entry))
        node = entry.node
    return chain


def _nested(rest: Sequence[str | int], value: object) -> object:
    for part in reversed(rest):
        value = {part: value}
    return value


def _same(one: object, other: object) -> bool:
    """Whether two values are written alike: 1, 1.0 and true are not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _with(document: JsonDocument, node: JsonNode, key: str | None, value: object) -> bytes:
    """Return the text with one entry more at the end of an object or array."""
    style = style_of(document)
    if node.entries:
        return _with_another(document, node, key, value, style)
    text, inside = document.text, node.start + 1
    place = document.last_comment(inside, node.end - 1)
    outer = indent_at(text, node.start)
    if place == inside:  # nothing but space in it
        if style.is_flat:
            added = _entry(key, value, style, None)
        else:
            own = style.newline + outer + style.indent
            added = own + _entry(key, value, style, outer + style.indent) + style.newline + outer
        return _replaced(text, [(inside, node.end - 1, added)])
    # After a comment: what follows it, a line end at least where it runs to the end of the line, stays.
    is_flat = "\n" not in text[place : node.end]
    indent = None if is_flat else outer + style.indent
    gap = " " if indent is None else style.newline + indent
    return _replaced(text, [(place, place, gap + _entry(key, value, style, indent))])


def _with_another(document: JsonDocument, node: JsonNode, key: str | None, value: object, style: Style) -> bytes:
    text, last = document.text, node.entries[-1]
    place = document.last_comment(max(last.end, last.comma + 1), node.end - 1)
    spaces = [space_before(text, entry.start) for entry in reversed(node.entries)]
    broken = next((space for space in spaces if "\n" in space), "")
    indent: str | None = None
    if broken:
        indent = broken.rpartition("\n")[2]
    elif "\n" in text[last.end : node.end - 1]:
        indent = indent_at(text, node.start) + style.indent
    gap = spaces[0] if len(spaces) > 1 and indent is None else style.gap
    added = (gap if indent is None else style.newline + indent) + _entry(key, value, style, indent)
    if last.comma >= 0:
        return _replaced(text, [(place, place, added + ",")])
    return _replaced(text, [(last.end, last.end, ","), (place, place, added)])


def _entry(key: str | None, value: object, style: Style, indent: str | None) -> str:
    name = "" if key is None else written(key, style, indent) + ":" + (style.gap if indent is None else " ")
    return name + written(value, style, indent)


def _without(document: JsonDocument, chain: Sequence[tuple[JsonNode, JsonEntry]]) -> bytes:
    """Return the text without the last entry of a chain, and without the parents that it alone filled."""
    last = len(chain) - 1
    while last > 0 and _fills(document, *chain[last]):
        last -= 1
    node, entry = chain[last]
    if _fills(document, node, entry):
        return _replaced(document.text, [(node.start + 1, node.end - 1, "")])
    text, number = document.text, node.entries.index(entry)
    # A comma of its own goes with it; without one, the comma that the entry before has because of it.
    comma = entry.comma if entry.comma >= 0 else node.entries[number - 1].comma if number else -1
    rest = text[entry.end : comma] + text[comma + 1 :] if comma > entry.start else text[entry.end :]
    begin = entry.start - len(space_before(text, entry.start))
    if document.is_line_comment(begin) and not rest.lstrip(" \t").startswith(("\n", "\r\n")):
        begin = entry.start  # else what follows would become part of the comment
    cuts = [(begin, entry.end, "")]
    if comma >= 0:
        cuts.append((comma, comma + 1, ""))
    return _replaced(text, sorted(cuts))


def _fills(document: JsonDocument, node: JsonNode, entry: JsonEntry) -> bool:
    """Whether an entry is all there is in an object or array, not even a comment beside it."""
    beside = [(node.start, entry.start), (entry.end, node.end)]
    return len(node.entries) == 1 and all(document.last_comment(*span) == span[0] for span in beside)


def _replaced(text: str, changes: Sequence[tuple[int, int, str]]) -> bytes:
    parts, place = [], 0
    for start, end, new in changes:
        parts += [text[place:start], new]
        place = end
    return "".join([*parts, text[place:]]).encode()
