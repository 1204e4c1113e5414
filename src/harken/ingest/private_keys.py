"""Where private keys stand in a text: whole ones from BEGIN to END, and what is left of those that were cut.

Pure and linear: the edges of all blocks are found in one pass, and an END belongs to the nearest BEGIN that is still
open. Expressions only recognise an edge or a line; which lines make a key is decided here, in the open. `redact`
replaces what is found. Other secrets, which are one word each, are its own business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_EDGE: Final = re.compile(r"-----(?P<kind>BEGIN|END) (?P<label>[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?")
# Between two lines: white space, the marks of a quoted mail, and line ends as JSON and programs write them.
_BREAK: Final = r"[\s>]{0,200}(?:\\{1,4}[nrt][\s>]{0,200}){0,8}"
_NAME: Final = r"[A-Za-z][A-Za-z0-9\-]{1,30}: "
_HEADER: Final = re.compile(rf"{_BREAK}{_NAME}[^\n\\]{{0,200}}")
_FOLDED_HEADERS: Final = re.compile(rf"{_BREAK}{_NAME}[^\n]{{0,400}}?(?=[A-Za-z0-9+/=]{{16}})")  # all on one line
_LINE: Final = re.compile(rf"{_BREAK}[A-Za-z0-9+/=]{{16,}}")
_LAST_LINE: Final = re.compile(rf"(?=[\s\\]){_BREAK}(?P<rest>[A-Za-z0-9+/=]{{1,15}})(?=[\n\r\\\"']|$)")
_MOST_HEADERS: Final = 8


def find_private_keys(text: str) -> list[tuple[int, int]]:
    """Return from where to where the private keys are, in order and none inside another."""
    spans, still_open = list[tuple[int, int]](), list[re.Match[str]]()
    for edge in _EDGE.finditer(text):
        if edge["label"] is None:
            # Another kind of block begins or ends: no key goes on across it.
            spans += _cut_keys(text, still_open)
            still_open = []
        elif edge["kind"] == "BEGIN":
            still_open.append(edge)
        elif still_open:
            spans.append((still_open.pop().start(), edge.end()))
    spans += _cut_keys(text, still_open)
    return _outermost(spans)


def _cut_keys(text: str, beginnings: list[re.Match[str]]) -> Iterator[tuple[int, int]]:
    for beginning in beginnings:
        end = _cut_key_end(text, beginning.end())
        if end:
            yield beginning.start(), end


def _cut_key_end(text: str, begin: int) -> int:
    """Return up to where the lines of a key go that has no END; 0 if no line follows."""
    end = _lines_end(text, _headers_end(text, begin))
    if not end and (folded := _FOLDED_HEADERS.match(text, begin)):
        end = _lines_end(text, folded.end())
    if end and (last := _LAST_LINE.match(text, end)) and _is_no_word(last["rest"]):
        end = last.end()
    return end


def _headers_end(text: str, position: int) -> int:
    for _ in range(_MOST_HEADERS):
        header = _HEADER.match(text, position)
        if header is None:
            break
        position = header.end()
    return position


def _lines_end(text: str, position: int) -> int:
    end = 0
    while line := _LINE.match(text, position):
        position = end = line.end()
    return end


def _is_no_word(rest: str) -> bool:
    return any(character in "0123456789+/=" for character in rest) or rest[1:] not in (
        rest[1:].lower(),
        rest[1:].upper(),
    )


def _outermost(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    outer, done = list[tuple[int, int]](), 0
    for start, end in sorted(spans):
        if start >= done:
            outer.append((start, end))
            done = end
    return outer
