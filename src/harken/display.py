"""Text of others for people to read: on one line, with nothing that could act on a terminal. Pure."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    """Return the text with everything but line ends that is not plainly visible written as an escape."""
    if text.isprintable():
        return text
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    if char.isprintable() or char == "\n":
        return char
    if char == "\t" or unicodedata.category(char) == "Zs":
        return " "
    return char.encode("unicode_escape").decode("ascii")


def one_line(text: str) -> str:
    """Return the text on one line, safe to print."""
    return visible(" ".join(text.split("\n")) if "\n" in text else text)
