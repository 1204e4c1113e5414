"""Where everything stands in a JSON or JSONC text: the positions that in-place edits need.

Pure, and strict: comments and a comma at the end are accepted, because the hosts accept them; anything else that is
not JSON is an error with its place. We have a scanner of our own because none of the libraries fits: one needs Node
at run time, one is GPL and takes neither a byte order mark nor a comma at the end, the JSON5 ones take single quotes
and bare words for good, and the tree-sitter grammar takes two documents for one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harken.errors import UserError
from harken.hosts.connect.edits.text import BOM, fault

MAX_DEPTH: Final = 200
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z.+-])")
_WORD: Final = re.compile(r"(?:true|false|null)(?![0-9A-Za-z_])")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_COMMENT: Final = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)


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
