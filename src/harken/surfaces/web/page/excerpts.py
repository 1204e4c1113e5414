"""Where the words of a search are in a text, as plain pieces that a template escapes and marks. Pure.

It makes no markup. The words are matched as the store's index does: whole words, without regard to case and accents.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

AROUND: Final = 56  # characters shown before the first match
LONGEST: Final = 320  # characters of an excerpt
SEARCHED: Final = 20_000  # characters of a text that are looked at for a place to show
MOST_WORDS: Final = 32
ELLIPSIS: Final = "…"
_WORD: Final = re.compile(r"[^\W_]+")  # as the index cuts words
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, and whether it is one of the words."""

    text: str
    is_match: bool = False


def words_of(query: str) -> frozenset[str]:
    """Return the words of a search, folded as `folded` does."""
    return frozenset([folded(word) for word in _WORD.findall(query)][:MOST_WORDS])


def folded(word: str) -> str:
    """Return a word without case and accents."""
    plain = (char for char in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(char))
    return "".join(plain)


def excerpt(text: str, words: Collection[str]) -> Sequence[Piece]:
    """Return the part of a text around the first match, on one line, in pieces; cut ends have an ellipsis."""
    line = _SPACE.sub(" ", text[:SEARCHED]).strip()
    first = next((found.start() for found in _WORD.finditer(line) if folded(found[0]) in words), 0)
    start = _word_start(line, max(0, first - AROUND))
    end = min(len(line), start + LONGEST)
    pieces = marked(line[start:end], words)
    before = [Piece(ELLIPSIS)] if start else []
    after = [Piece(ELLIPSIS)] if end < len(line) or len(text) > SEARCHED else []
    return [*before, *pieces, *after]


def marked(text: str, words: Collection[str]) -> Sequence[Piece]:
    """Return a text in pieces, the words among them marked. Joined, the pieces are the text."""
    pieces: list[Piece] = []
    done = 0
    for found in _WORD.finditer(text):
        if folded(found[0]) in words:
            if found.start() > done:
                pieces.append(Piece(text[done : found.start()]))
            pieces.append(Piece(found[0], is_match=True))
            done = found.end()
    if done < len(text):
        pieces.append(Piece(text[done:]))
    return pieces


def _word_start(line: str, place: int) -> int:
    """Return where the next word begins, unless that is far: a text without spaces is cut anywhere."""
    if place == 0:
        return 0
    space = line.find(" ", place, place + AROUND // 3)
    return place if space < 0 else space + 1
