"""How HTTP answers outside the page proper: JSON for programs, a small plain page for a browser.

An error says the same to both: one sentence, one hint. Nothing of the request is repeated, so nothing in it can act.
"""

from __future__ import annotations

from html import escape

from starlette.responses import Response

from harken.errors import HarkenError, Unavailable
from harken.memory import json_bytes

HTML = "text/html"
UNAUTHORIZED, FORBIDDEN, TOO_LARGE = 401, 403, 413


def json_answer(value: object) -> Response:
    """Return an answer for a program."""
    return Response(json_bytes(value), media_type="application/json")


def error_answer(error: HarkenError, status: int = 0, *, as_page: bool = False, style: str = "") -> Response:
    """Return what went wrong, as a page when a browser wants to show it."""
    status = status or error.http_status
    if as_page:
        return plain_page(error.message, error.hint, status=status, style=style)
    answer = Response(json_bytes({"error": error.as_dict()}), status_code=status, media_type="application/json")
    if isinstance(error, Unavailable):
        answer.headers["Retry-After"] = str(int(error.retry_after))
    if status == UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def plain_page(title: str, hint: str, *, status: int, style: str = "") -> Response:
    """Return a page that only says something; `style` is the address of a stylesheet."""
    sheet = f'<link rel="stylesheet" href="{escape(style)}">' if style else ""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)} · Harken</title>{sheet}</head>'
        f'<body class="plain"><main><h1>{escape(title)}</h1><p>{escape(hint)}</p></main></body></html>'
    )
    return Response(page, status_code=status, media_type=HTML)


def wants_page(accept: str) -> bool:
    """Whether an Accept header is that of a browser which would show the answer to a person."""
    return HTML in accept.lower()
