"""Cuts a page into statements (a bullet, a row of a table, a paragraph), each in one line, and these into sentences."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_BLOCK_OF_CODE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_ARROW = re.compile(r"^ *(\S+ --> \w+: .*)$", re.MULTILINE)
_HEADING = re.compile(r"#+ (.*)")
_BULLET = re.compile(r"(?:-|\d+\.) +(.*)")
_RULE = re.compile(r"[| -]+")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z`*\[])")


@dataclass(frozen=True)
class Statement:
    """What a page says in one place, with the heading above it."""

    section: str
    text: str

    def sentences(self) -> Iterator[tuple[int, int]]:
        """Yield where each sentence begins and ends; bold words that begin a statement are part of the first."""
        ends = [found.end() for found in _SENTENCE_END.finditer(self.text)]
        yield from zip([0, *ends], [*ends, len(self.text)], strict=True)


def statements(text: str, *, without: Collection[str] = ()) -> Iterator[Statement]:
    """Yield what a page in Markdown says, without some of its sections, its code and the heads of its tables.

    Of a diagram of states, each arrow with a label is a statement.
    """
    section = ""
    for block in re.split(r"\n\s*\n|\n(?=#)", _BLOCK_OF_CODE.sub(_arrows, text)):
        lines = block.strip().splitlines()
        if lines and (heading := _HEADING.fullmatch(lines[0])):
            section = heading[1]
            lines = lines[1:]
        if section not in without:
            yield from (Statement(section, each) for each in _in_block(lines))


def _arrows(block: re.Match[str]) -> str:
    """Return the arrows of a diagram as bullets; nothing of other code."""
    return "".join(f"- {arrow}\n" for arrow in _ARROW.findall(block[0]))


def _in_block(lines: list[str]) -> Iterator[str]:
    """Yield the statements of lines without an empty one: rows of a table, bullets, or one paragraph."""
    if lines and lines[0].startswith("|"):
        yield from (" ".join(line.strip("| ").split()) for line in lines[1:] if not _RULE.fullmatch(line))
        return
    found: list[str] = []
    for line in lines:
        if bullet := _BULLET.match(line):
            found.append(bullet[1])
        elif found:
            found[-1] += " " + line.strip()
        else:
            found.append(line.strip())
    yield from (" ".join(each.split()) for each in found)
