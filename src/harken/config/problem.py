"""How a mistake in the settings is put into words: where it is, what was found, what would be accepted or was meant.

Pure. Nothing of a value that may be a secret is repeated, and nothing that could act on a terminal.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harken.config.values import ValueType

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHOWN_CHARS = 60


def dotted(*parts: str) -> str:
    """Return a key's full name; parts that are not plain words are quoted."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else _cut(ascii(part)) for part in parts)


def shown(value: object) -> str:
    """Return what was found, short and harmless."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _cut(f'"{value}"' if value.isprintable() else ascii(value))
    if isinstance(value, int | float):
        return _cut(_number(value))
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list of " + shown(value[0]) + (" and more" if len(value) > 1 else "") if value else "an empty list"
    return "a date or time"


def wrong(where: str, name: str, value: object, wanted: str, *, more: str = "", hide: bool = False) -> str:
    """Say that a value does not fit."""
    found = "a value that is not shown here" if hide else shown(value)
    return f"{where}: {name} is {found}; expected {wanted}.{' ' + more if more else ''}"


def unfit(where: str, name: str, value: object, value_type: ValueType, exc: ValueError) -> str:
    """Say that a value does not fit its type."""
    # A number or a truth value in the place of a text is no secret, and seeing it helps.
    hide = value_type.is_secret and not isinstance(value, bool | int | float)
    return wrong(where, name, value, value_type.wanted, more=str(exc), hide=hide)


def unknown(where: str, name: str, known: Iterable[str]) -> str:
    """Say that there is no such setting, and which was probably meant."""
    return f"{where}: {name} is not a setting.{did_you_mean(closest_name(name, known))}"


def _number(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than Python is willing to print
        return "a very large number"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def closest(word: str, known: Iterable[str]) -> str:
    """Return the known word most like this one, or nothing when none is near; case and hyphens do not count."""
    plain: dict[str, str] = {}
    for candidate in known:
        plain.setdefault(_plain(candidate), candidate)
    near = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.65)
    return plain[near[0]] if near else ""


def closest_name(name: str, known: Iterable[str]) -> str:
    """Return the dotted name most like this one: as a whole, else by its last part alone."""
    names = list(known)
    leaves: dict[str, str] = {}
    for candidate in names:
        leaves.setdefault(_plain(candidate).rpartition(".")[2], candidate)
    leaf = _plain(name).rpartition(".")[2]
    return closest(name, names) or leaves.get(closest(leaf, leaves), "")


def did_you_mean(guess: str) -> str:
    """Return the question to add to an error, or nothing without a guess."""
    return f" Did you mean {guess}?" if guess else ""


def _plain(word: str) -> str:
    # Without the bound, comparing a very long word with every candidate takes seconds.
    return word[:100].casefold().replace("-", "_")
