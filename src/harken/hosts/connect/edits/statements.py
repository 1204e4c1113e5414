"""Where the statements of a TOML text stand: headers and `key = value`, each with its whole path.

Pure, for text that has been parsed already: it finds places and does not judge. tomlkit keeps a file as it is, but
when a table is taken out it takes the comments of the next one along, it ends what it adds with bare line feeds, and
it knows no places; so the edits are made at the places found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import tomlkit

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY: Final = re.compile(rf"[ \t]*({_PART}(?:[ \t]*\.[ \t]*{_PART})*)[ \t]*")
_ONE_PART: Final = re.compile(_PART)
_BLANK: Final = re.compile(r"[ \t\r]*(?:#[^\n]*)?(?:\n|\Z)")
_STRINGS: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")|' + r"'''.*?'{3,5}(?!')|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlStatement:
    """One header or one `key = value`, from the beginning of its line to the end of its last."""

    start: int
    end: int
    path: tuple[str, ...]
    section: tuple[str, ...]  # the path of the header that it stands under, or its own
    is_header: bool
    is_listed: bool = False  # in a [[list]] of tables: its path names several things
    value_start: int = 0
    value_end: int = 0


def statements(text: str) -> Iterator[TomlStatement]:
    """Yield the statements of a text that is valid TOML."""
    place, listed = 0, False
    section: tuple[str, ...] = ()
    while place < len(text):
        blank = _BLANK.match(text, place)
        if blank is not None:
            place = blank.end()
            continue
        start = place
        inside = _after_space(text, start)
        if text.startswith("[", inside):
            listed = text.startswith("[[", inside)
            path, after = _key(text, inside + 1 + listed)
            place = _line_end(text, after + 1 + listed)
            section = path
            yield TomlStatement(start=start, end=place, path=path, section=path, is_header=True, is_listed=listed)
            continue
        own, after = _key(text, start)
        begin = _after_space(text, after + 1)
        end = _value_end(text, begin)
        place = _line_end(text, end)
        yield TomlStatement(
            start=start,
            end=place,
            path=(*section, *own),
            section=section,
            is_header=False,
            is_listed=listed,
            value_start=begin,
            value_end=end,
        )


def _key(text: str, place: int) -> tuple[tuple[str, ...], int]:
    found = _KEY.match(text, place)
    if found is None:
        raise ValueError(text[place : place + 20])
    parts = (_plain(part) for part in _ONE_PART.findall(found[1]))
    return tuple(parts), found.end()


def _plain(part: str) -> str:
    if part[0] not in "\"'":
        return part
    value: str = tomlkit.parse(f"v = {part}").unwrap()["v"]
    return value


def _value_end(text: str, place: int) -> int:
    depth = 0
    end = place
    while place < len(text):
        char = text[place]
        if char in "\"'" and (string := _STRINGS.match(text, place)):
            place = end = string.end()
            continue
        if char == "#" or (char == "\n" and depth == 0):
            if depth == 0:
                break
            place = text.find("\n", place) if char == "#" else place
        depth += (char in "[{") - (char in "]}")
        place += 1
        if not char.isspace() and char != "#":
            end = place
    return end


def _after_space(text: str, place: int) -> int:
    while text[place : place + 1] in {" ", "\t"}:
        place += 1
    return place


def _line_end(text: str, place: int) -> int:
    found = text.find("\n", place)
    return len(text) if found < 0 else found + 1
