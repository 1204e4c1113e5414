"""The addresses of the page, apart from its panels.

What is behind them is in `timelines.py` and `message_actions.py`. Errors become a line in a part, or a page. Who may
ask at all is decided before, in `guard.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from harken.errors import HarkenError
from harken.surfaces.web.front import WebContext
from harken.surfaces.web.page.message_actions import MessageActions
from harken.surfaces.web.page.rendering import PageRenderer
from harken.surfaces.web.page.static_files import static_route
from harken.surfaces.web.page.timelines import TimelinePages

CLIENT_GONE: Final = 499  # nobody reads it

Handler = Callable[[Request], Awaitable[Response]]


def page_routes(front: WebContext) -> list[Route]:
    """Return the routes of the page, apart from its panels."""
    pages = PageRenderer(front)
    look, do = TimelinePages(front, pages), MessageActions(front, pages)
    shown: tuple[tuple[str, Handler], ...] = (
        ("/", look.home),
        ("/m/{mailbox:path}", look.mailbox),
        ("/c/{source}/{channel:path}", look.channel),
        ("/message/{ref}", look.message),
        ("/part/items", look.items),
        ("/part/item/{ref}", look.item),
        ("/part/text/{ref}", look.text),
        ("/part/reply/{ref}/{reply}", look.reply),
        ("/part/sidebar", look.sidebar),
        ("/part/forecast", look.forecast),
        ("/part/sent/{ref}", look.sent),
        ("/part/why-not", look.why_not),
        ("/part/task/{task}", look.task),
    )
    done: tuple[tuple[str, Handler], ...] = (("/do/send", do.send), ("/do/seen", do.seen))
    return [
        *(Route(path, answered(pages, handler), methods=["GET"]) for path, handler in shown),
        *(Route(path, answered(pages, handler), methods=["POST"]) for path, handler in done),
        static_route(pages.files),
    ]


def answered(pages: PageRenderer, handler: Handler) -> Handler:
    """Return a handler whose errors are answers too."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except HarkenError as exc:
            return await pages.problem(request, exc)
        except ClientDisconnect:
            return Response(status_code=CLIENT_GONE)

    return answer
