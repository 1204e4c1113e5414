"""Where in a file of rules each rule and each of its fields is written, for people who look for it in an editor.

Pure. Only for texts that were read as JSON before: nothing is checked here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

_SPACE: Final = re.compile(r"[ \t\n\r]*")


class RulePositions:
    """The places of a text's rules, by their number from 0, and of their fields."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: Mapping[tuple[int, str], int] = dict(_rules(text))

    def of(self, rule: int, field: str = "") -> tuple[int, int]:
        """Return line and column, from 1, of a field's value, else of its rule; zeros when there is no such rule."""
        place = self._found.get((rule, field), self._found.get((rule, "")))
        return (0, 0) if place is None else position(self._text, place)


def position(text: str, place: int) -> tuple[int, int]:
    """Return the line and column, from 1, of a place in a text."""
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


def _rules(text: str) -> Iterator[tuple[tuple[int, str], int]]:
    for key, place in _members(text, _skip(text, 0)):
        if key == "rules" and text[place] == "[":
            for number, begin in enumerate(_items(text, place)):
                yield (number, ""), begin
                if text[begin] == "{":
                    yield from (((number, field), value) for field, value in _members(text, begin) if field)


def _members(text: str, place: int) -> Iterator[tuple[str, int]]:
    """Yield the keys of the object that begins at a place, each with where its value begins."""
    decoder = json.JSONDecoder()
    place = _skip(text, place + 1)
    while text[place] != "}":
        key, place = decoder.raw_decode(text, place)
        place = _skip(text, _skip(text, place) + 1)
        yield key, place
        place = _next(text, decoder.raw_decode(text, place)[1])


def _items(text: str, place: int) -> Iterator[int]:
    """Yield where the items of the list begin that begins at a place."""
    decoder = json.JSONDecoder()
    place = _skip(text, place + 1)
    while text[place] != "]":
        yield place
        place = _next(text, decoder.raw_decode(text, place)[1])


def _next(text: str, place: int) -> int:
    """Return where the next member begins, or the end of what it is a member of."""
    place = _skip(text, place)
    return _skip(text, place + 1) if text[place] == "," else place


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place
