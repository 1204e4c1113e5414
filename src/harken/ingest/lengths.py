"""How long a text may be: what is said here and now is refused when it is longer, what a source yields is cut.

Whoever says something through Harken can be told, and says less. A mail or a webhook cannot: its text is kept up to
`MAX_TEXT_BYTES`, and what is over that is counted in the message's own record. Pure.
"""

from __future__ import annotations

from typing import Final

from harken.errors import TooLong
from harken.model import MAX_TEXT_BYTES

MAX_SAID_CHARS: Final = 64_000
"""How many characters a person or an agent says in one message, unless `limits.max_message_chars` says otherwise."""

IN_PARTS: Final = "Send it in parts, or put it in a file and name that file."


def check_said(text: str, most: int, what: str, hint: str = IN_PARTS, *, can_be_file: bool = False) -> None:
    """Refuse a text that somebody says here and that is too long. `what` names it: "A message"."""
    length = len(text)
    # No character takes more than four bytes.
    size = utf8_bytes(text) if 4 * length > MAX_TEXT_BYTES else 0
    if length > most:
        message = f"{what} has at most {most:,} characters, and this has {length:,}."
    elif size > MAX_TEXT_BYTES:
        message = f"{what} has at most {MAX_TEXT_BYTES:,} bytes, and this has {size:,}."
    else:
        return
    raise TooLong(message, hint, length=length, limit=most, can_be_file=can_be_file)


def utf8_bytes(text: str) -> int:
    """Return how many bytes a text has in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def chars_within(text: str, max_bytes: int) -> int:
    """Return how many of the first characters of a text fit into so many bytes of UTF-8."""
    if text.isascii() or 4 * len(text) <= max_bytes:
        return min(len(text), max_bytes)
    # Of a character that is torn apart at the end nothing is left, so that it does not count.
    return len(text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore"))
