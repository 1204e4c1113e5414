"""Text that nobody cleaned, made visible: what a run prints, the tools it asked for, what agents answer. Pure.

Messages were sanitised when they came. What agents say was not: what cannot be seen, or turns the direction of letters
around, is written as an escape. Markup is none of its business: templates escape that.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_KEPT: Final = "\n\N{ZERO WIDTH JOINER}"  # the joiner makes one sign of several, and hides none


def visible(text: str) -> str:
    """Return a text in which everything but line ends and joiners is a letter to be seen."""
    if text.isprintable():
        return text
    return "".join(_visible(char) for char in text.replace("\r\n", "\n"))


def _visible(char: str) -> str:
    if char in _KEPT or char.isprintable():
        return char
    if char == "\t" or unicodedata.category(char) == "Zs":
        return " "
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
