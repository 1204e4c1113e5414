"""How texts, names and numbers are shown to people: with nothing that could act on a terminal. Pure."""

from __future__ import annotations

import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

YOU: Final = "you"
_THOUSAND: Final = 1000
_YOURS: Final = frozenset({YOU, "owner"})
_YOUR_READER, _YOUR_AUTHOR, _YOUR_TASK_SENDER = "watch", "owner", "user"  # what is stored for you
_AROUND: Final = " ?.:★☆"  # what a name may have around it without looking like another

# Spaces that are none to a program, fillers, and marks without a shape, which Python calls printable: first and last.
_UNSEEN: Final = (
    "\xa0\xa0\u034f\u034f\u115f\u1160\u1680\u1680\u17b4\u17b5\u180b\u180f\u2000\u200a\u202f\u202f\u205f\u205f"
    "\u2800\u2800\u3000\u3000\u3164\u3164\ufe00\ufe0f\uffa0\uffa0\U000e0100\U000e01ef"
)


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
    return _escape(char)


def legible(text: str) -> str:
    """Return the text as `visible` does, and also with everything as an escape that looks like a space or like nothing.

    For what is to be allowed: a name with an invisible letter is another name.
    """
    if text.isascii():
        return visible(text)
    # The table is made here: every command imports this module, and hardly one asks for it.
    unseen = [
        code
        for first, last in zip(_UNSEEN[::2], _UNSEEN[1::2], strict=True)
        for code in range(ord(first), ord(last) + 1)
    ]
    return visible(text.translate({code: _escape(chr(code)) for code in unseen}))


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def one_line(text: str) -> str:
    """Return the text on one line, safe to print."""
    return visible(" ".join(text.split("\n")) if "\n" in text else text)


def counted(count: int, noun: str) -> str:
    """Return a number of things, as people say it."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def reader_name(consumer: str) -> str:
    """Return what people call a consumer, on one line."""
    return YOU if consumer == _YOUR_READER else one_line(consumer)


def author_name(author: str) -> str:
    """Return what people call the author of a reply, on one line."""
    return YOU if author == _YOUR_AUTHOR else one_line(author)


def task_sender_name(sender: str, trust: str) -> str:
    """Return what people call the sender of a message to a task, on one line."""
    return YOU if (sender, trust) == (_YOUR_TASK_SENDER, _YOUR_AUTHOR) else one_line(sender)


def passes_for_you(name: str) -> bool:
    """Whether the name of a sender could be taken for the person who reads it."""
    return name.strip(_AROUND).casefold() in _YOURS


def size_text(size: float) -> str:
    """Return a size as people say it."""
    for unit in ("bytes", "KB", "MB"):
        if size < _THOUSAND:
            return f"{size:.0f} {unit}"
        size /= _THOUSAND
    return f"{size:.1f} GB"
