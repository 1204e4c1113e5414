"""What a fuzz target is: hostile bytes in, one word for how it ended out, and an error for whatever may not happen.

A judge calls real code and looks at what comes back; it raises for a broken promise and lets through what the code
raises by itself. Its words are counted, so that a target which only ever refuses its input is noticed. Nothing here
chooses bytes (`mutating`) or counts cases (`campaign`).
"""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

Judge = Callable[[bytes], str]
"""Runs one case and says in a word how it ended."""

CORPUS: Final = Path(__file__).parent / "corpus"
# Formats that are seen: signs before a number or a verse, in scripts that need them.
_VISIBLE_FORMATS: Final = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
_ALLOWED: Final = frozenset("\n\t\u200d\ufe0f") | _VISIBLE_FORMATS


class Broken(AssertionError):
    """A promise that did not hold for some bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One door for hostile bytes. `reaches` are words that its own seeds must end in: else it tests nothing."""

    name: str
    opened: Callable[[], AbstractContextManager[Judge]]
    reaches: frozenset[str]
    tokens: Sequence[bytes] = ()
    most_bytes: int = 4_096
    small_cases: int = 400  # of the run with every test

    def seeds(self) -> list[bytes]:
        """Return what the search begins with."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).iterdir())]


def plain(judge: Judge) -> Callable[[], AbstractContextManager[Judge]]:
    """Return how a judge is opened that holds nothing."""

    @contextlib.contextmanager
    def opened() -> Iterator[Judge]:
        yield judge

    return opened


@dataclass(frozen=True, slots=True)
class Letter:
    """Bytes as a head of lines and a body: `word` is the first line, then come `name: value`, then a blank line."""

    word: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    def chosen(self, known: Sequence[str]) -> str:
        """Return the one of some names that the word means: itself, or any, but always the same one."""
        return self.word if self.word in known else known[sum(self.word.encode("utf-8", "replace")) % len(known)]


def letter(data: bytes) -> Letter:
    """Return bytes as a letter; all bytes are one."""
    head, _, body = data.partition(b"\n\n")
    word, *lines = head.decode("latin-1").split("\n")
    pairs = [line.partition(":") for line in lines]
    return Letter(word, {name.strip().lower(): value.strip(" ") for name, _, value in pairs}, body)


def words(data: bytes) -> str:
    """Return bytes as a text that may hold half letters, as a careless program would hand it over."""
    return data.decode("utf-8", "surrogateescape")


def must(truth: object, what: str, *shown: object) -> None:
    """Raise `Broken` for a promise that does not hold."""
    if not truth:
        raise Broken(f"{what}: {' | '.join(repr(each)[:300] for each in shown)}")


def acting(text: str) -> list[str]:
    """Return the characters of a text that nobody sees or that act on a terminal, by Unicode's own tables."""
    return [
        each
        for each in text
        if not (each.isascii() and each.isprintable())
        and each not in _ALLOWED
        and unicodedata.category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]
