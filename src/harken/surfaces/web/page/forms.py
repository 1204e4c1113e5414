"""What a form of the page sent: bounded, decoded, and nothing of it trusted. Knows no use case."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from harken.errors import UserError
from harken.surfaces.web.guard import MAX_BODY

MAX_FIELDS: Final = 16
MAX_KEY: Final = 64
_TOP: Final = (1 << 63) - 1


async def form_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a form; of a field that is there twice the last."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise UserError("That is too long to send.", f"At most {MAX_BODY} bytes.")
    try:
        return dict(parse_qsl(data.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as exc:
        raise UserError("This form has too many fields.", "Load the page again.") from exc


def number(text: str | None) -> int:
    """Return a position from an address or a form, 0 for none; refuses what is none."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_TOP))):
        raise UserError("That is not a place in a timeline.", "Load the page again.")
    return min(int(text), _TOP)


def once_key(key: str, text: str) -> str:
    """Return the key that makes a second try the same message. A text that was changed meanwhile is another one."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return f"page/{key[:MAX_KEY]}/{digest}" if key else ""
