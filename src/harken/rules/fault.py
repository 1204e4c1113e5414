"""What is wrong with a file of rules, in words: which rule, which field, what was found, what would be accepted.

Pure. A file may hold anything: nothing of it is repeated that could act on a terminal, and only its beginning.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from harken.errors import UserError

FOUND_CHARS: Final = 60
_NEAR: Final = 0.65
_WORD_CHARS: Final = 100
HINT: Final = "Correct the file, then look again: harken rules check. Until then the rules stay as they were."


@dataclass(frozen=True, slots=True)
class RuleFault:
    """One thing that is wrong, or that is probably not meant."""

    rule: str  # its name, or `#3`; empty: about the file
    field: str  # empty: about the rule as a whole
    found: str
    accepted: str
    line: int = 0  # from 1; 0: unknown
    column: int = 0

    @property
    def sentence(self) -> str:
        """All of it, for people."""
        where = f"line {self.line}, column {self.column}: " if self.line else ""
        owner = f"rule {self.rule}" if self.rule else "the file"
        subject = f"{owner}: {self.field}" if self.field else owner
        return f"{where}{subject} is {self.found}; {self.accepted}."


class InvalidRules(UserError):
    """A file of rules that cannot be used, with everything that is wrong with it."""

    def __init__(self, faults: Sequence[RuleFault]) -> None:
        super().__init__("\n".join(fault.sentence for fault in faults), HINT)
        self.faults = tuple(faults)


class FieldMisfit(ValueError):
    """A value that does not fit its field; the text says what would."""


def shown(value: object) -> str:
    """Return what was found, short and harmless."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return quoted(cut(value, FOUND_CHARS))
        case int() | float():
            return cut(str(value), FOUND_CHARS)
        case dict():
            return "an object"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return "something else"


def closest(word: str, known: Iterable[str]) -> str:
    """Return the known word most like this one, empty when none is near; case, `-` and `_` do not count."""
    plain = {_plain(candidate): candidate for candidate in known}
    near = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=_NEAR)
    return plain[near[0]] if near else ""


def _plain(word: str) -> str:
    # Without the bound, comparing a very long word takes seconds.
    return word[:_WORD_CHARS].casefold().replace("-", "").replace("_", "")


PLAIN_CHARS: Final = 128


_PLAIN: Final = re.compile(rf"[A-Za-z0-9._:/@-]{{1,{PLAIN_CHARS}}}")


def quoted(text: str) -> str:
    """Return a text as a JSON string on one line; what cannot be seen is escaped."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def plain_or_quoted(text: str) -> str:
    """Return a plain name as it is, and anything else in quotes."""
    return text if _PLAIN.fullmatch(text) else quoted(text)


def cut(text: str, most: int) -> str:
    """Return a text that is at most this long."""
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
