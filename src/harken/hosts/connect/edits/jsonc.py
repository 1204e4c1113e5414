"""Changes to JSON and JSONC files in place: everything that is not named stays as it is, byte for byte.

Pure: bytes in, bytes out. Comments, spacing, line ends and a byte order mark are kept; what is added is written in
the style of the file. Every edit may be made twice. Taking out what was set into a file gives the first bytes again,
with two exceptions: an object or array that was there and empty goes with the last thing in it, and a file without
any value is an empty object afterwards. `None` stands for a file that does not exist.

The scanner is strict: comments and a comma at the end are accepted, because the hosts accept them; anything else that
is not JSON is an error with its place. It is our own because none of the libraries fits: one needs Node at run time,
one is GPL and takes neither a byte order mark nor a comma at the end, the JSON5 ones take single quotes and bare words
for good, and the tree-sitter grammar takes two documents for one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harken.errors import UserError
from harken.hosts.connect.edits.text import BOM, decode, fault, newline_of

Where = Sequence[str | int]
"""The keys, and numbers of items, that lead from the root to a value."""

_SPACES: Final = " \t\r\n"

_INDENT: Final = "  "

MAX_DEPTH: Final = 200
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z.+-])")
_WORD: Final = re.compile(r"(?:true|false|null)(?![0-9A-Za-z_])")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_COMMENT: Final = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)


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


def json_put_item(
    data: bytes | None, path: Where, is_same: Callable[[object], bool], item: object, *, file: Path
) -> bytes:
    """Put an item in the place of the one that satisfies a predicate in the array at a path, or at its end."""
    there = json_value(data, path, file=file)
    found = [number for number, each in enumerate(there if isinstance(there, list) else ()) if is_same(each)]
    if found:
        return json_set(data, (*path, found[0]), item, file=file)
    return json_append(data, path, item, file=file)


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
    """Return what follows a colon: nothing or one space, as after the first key."""
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


@dataclass(frozen=True, slots=True)
class JsonNode:
    """One value: where it begins and ends, what it means, and what is in it."""

    start: int
    end: int
    value: object
    entries: tuple[JsonEntry, ...] = ()

    @property
    def is_object(self) -> bool:
        """Whether it has keys."""
        return isinstance(self.value, dict)

    @property
    def is_array(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.value, list)

    def find(self, part: str | int) -> JsonEntry | None:
        """Return the member or item of that name or number; of members that are there twice the last, which counts."""
        if isinstance(part, int):
            return self.entries[part] if self.is_array and 0 <= part < len(self.entries) else None
        return next((entry for entry in reversed(self.entries) if entry.key == part), None)


@dataclass(frozen=True, slots=True)
class JsonEntry:
    """A member of an object or an item of an array."""

    start: int  # of the key, where there is one
    key: str | None
    node: JsonNode
    comma: int  # where the comma after it stands; -1 without

    @property
    def end(self) -> int:
        """Where its value ends."""
        return self.node.end


@dataclass(frozen=True, slots=True)
class JsonDocument:
    """A text and its value; `root` is None where the text holds nothing but space and comments."""

    text: str
    root: JsonNode | None
    comments: tuple[tuple[int, int], ...]

    def last_comment(self, start: int, end: int) -> int:
        """Return where the last comment between two places ends; `start` when there is none."""
        return max((stop for begin, stop in self.comments if start <= begin and stop <= end), default=start)

    def is_line_comment(self, end: int) -> bool:
        """Whether a comment that runs to the end of its line ends here."""
        return any(stop == end and self.text.startswith("//", begin) for begin, stop in self.comments)


def scan(text: str, file: Path) -> JsonDocument:
    """Return the places of everything in a text; raises `UserError` at the first thing that is wrong."""
    scanner = _Scanner(text, file)
    scanner.skip()
    root = scanner.node(0) if scanner.place < len(text) else None
    scanner.skip()
    if scanner.place < len(text):
        raise scanner.wrong("something follows the end of the document")
    return JsonDocument(text, root, tuple(scanner.comments))


class _Scanner:
    """A place in a text that moves forward. Lives for one scan."""

    def __init__(self, text: str, file: Path) -> None:
        self.text = text
        self.file = file
        self.place = 1 if text.startswith(BOM) else 0
        self.comments: list[tuple[int, int]] = []

    def wrong(self, reason: str) -> UserError:
        return fault(self.text, self.place, reason, self.file)

    def skip(self) -> None:
        """Step over space and comments."""
        while True:
            space = _SPACE.match(self.text, self.place)
            self.place = space.end() if space else self.place
            if not self.text.startswith(("//", "/*"), self.place):
                return
            comment = _COMMENT.match(self.text, self.place)
            if comment is None:
                raise self.wrong("this comment has no end")
            self.comments.append(comment.span())
            self.place = comment.end()

    def node(self, depth: int) -> JsonNode:
        if depth > MAX_DEPTH:
            raise self.wrong("this is nested too deeply")
        char = self.text[self.place : self.place + 1]
        if char in {"{", "["}:
            return self._container(depth, is_object=char == "{")
        start, value = self.place, self._scalar()
        return JsonNode(start, self.place, value)

    def _container(self, depth: int, *, is_object: bool) -> JsonNode:
        start, close = self.place, "}" if is_object else "]"
        self.place += 1
        entries: list[JsonEntry] = []
        while True:
            self.skip()
            if self.text.startswith(close, self.place):
                break
            if entries and entries[-1].comma < 0:
                raise self.wrong(f"a comma or {close} is missing here")
            entries.append(self._entry(depth, is_object=is_object))
        self.place += 1
        if is_object:
            return JsonNode(start, self.place, {entry.key: entry.node.value for entry in entries}, tuple(entries))
        return JsonNode(start, self.place, [entry.node.value for entry in entries], tuple(entries))

    def _entry(self, depth: int, *, is_object: bool) -> JsonEntry:
        start, key = self.place, None
        if is_object:
            key = self._string()
            self.skip()
            if not self.text.startswith(":", self.place):
                raise self.wrong("a colon is missing here")
            self.place += 1
            self.skip()
        node = self.node(depth + 1)
        self.skip()
        comma = self.place if self.text.startswith(",", self.place) else -1
        self.place += comma >= 0
        return JsonEntry(start, key, node, comma)

    def _string(self) -> str:
        found = _STRING.match(self.text, self.place)
        if found is None:
            raise self.wrong("a string in double quotes is missing here, or not closed on its line")
        self.place = found.end()
        value: str = json.loads(found[0])
        return value

    def _scalar(self) -> object:
        if self.text.startswith('"', self.place):
            return self._string()
        found = _NUMBER.match(self.text, self.place) or _WORD.match(self.text, self.place)
        if found is None:
            raise self.wrong("a value is missing here")
        try:
            value: object = json.loads(found[0])
        except ValueError as exc:
            raise self.wrong("this number is too long") from exc
        self.place = found.end()
        return value
