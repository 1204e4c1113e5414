"""How words of others appear in sentences and prompts: as they are when plain, else in quotes. Pure.

Not a cleaner of texts: `ingest.sanitise` did that before anything was stored. Here a value is only kept from looking
like the sentence around it.
"""

from __future__ import annotations

import json
import re
from typing import Final

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
