"""Mail addresses and ids of mails in headers: found, and refused where they could be something else. Pure.

Only what has one plain meaning counts: no quoted local parts, no spaces, no line ends, so that nothing that is let
through can add a header or a recipient. Above are reading and composing.
"""

from __future__ import annotations

import re
from email.utils import getaddresses
from typing import Final

from harken.model import Sender

MOST_ADDRESSES: Final = 50
MOST_ADDRESS: Final = 254  # characters; no mail can go to a longer one
MOST_ID: Final = 400  # characters of a mail's own id; a longer one is not kept
MOST_HEADER: Final = 8_000

_ADDRESS: Final = re.compile(r"[^\s<>@,;:\"()\[\]\\\x00-\x20\x7f]{1,64}@[^\s<>@,;:\"()\[\]\\\x00-\x20\x7f]{1,255}")
# Not with an encoded word in it: in a header of an answer it would be decoded, and may hold line ends.
_ID: Final = re.compile(r"<(?![^<>]*=\?)[^\s<>\x00-\x20\x7f-\U0010ffff]{1,398}>")


def is_address(text: str) -> bool:
    """Whether a text is one mail address and nothing else."""
    return len(text) <= MOST_ADDRESS and _ADDRESS.fullmatch(text) is not None and text.isprintable()


def people_in(header: str) -> list[Sender]:
    """Return the people that a header names: the address, in small letters, and the name as it was written."""
    try:
        pairs = getaddresses([header[:MOST_HEADER]])
    except (ValueError, IndexError, TypeError, RecursionError):
        return []
    # Upper and lower case are the same person, and rules about a sender are written in one of them.
    return [Sender(address.lower(), name) for name, address in pairs[:MOST_ADDRESSES] if is_address(address)]


def ids_in(header: str) -> list[str]:
    """Return the ids of mails that a header names, in order, each once."""
    return list(dict.fromkeys(_ID.findall(header[:MOST_HEADER])))
