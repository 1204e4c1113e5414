"""What waits for an answer, as a page: the messages as any timeline shows them, and the field to answer them.

A person answers there, or says that no answer is needed. Above are the routes of `app.py`; below the use cases of
`inbox/questions.py` and the views.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from harken.model import fresh_id
from harken.surfaces.web.front import WebContext
from harken.surfaces.web.page.forms import form_of
from harken.surfaces.web.page.links import PageScope
from harken.surfaces.web.page.rendering import SEE_OTHER, PageRenderer, answered, is_part
from harken.surfaces.web.page.sidebar import WAITING as HERE
from harken.surfaces.web.page.timelines import TimelineContext

MOST_SHOWN: Final = 50


def waiting_routes(front: WebContext) -> list[Route]:
    """Return the routes of what waits for an answer."""
    pages = PageRenderer(front)
    waits = WaitingPages(front, pages)
    return [
        Route(HERE, answered(pages, waits.look), methods=["GET"]),
        Route("/do/settle", answered(pages, waits.settle), methods=["POST"]),
    ]


class WaitingPages:
    """What a person looks at and does about questions."""

    def __init__(self, front: WebContext, pages: PageRenderer) -> None:
        self._front = front
        self._pages = pages

    async def look(self, _request: Request) -> Response:
        """Answer with what waits, the oldest first."""
        after = self._front.ticker.newest
        overview = await self._front.views.overview()
        items = await self._front.views.open_items(MOST_SHOWN)
        setting = TimelineContext(
            title="Waiting",
            after=after,
            overview=overview,
            why_not="To answer a message, choose Reply on it (r).",
        )
        return await self._pages.page(
            "panels/waiting.html.j2",
            here=HERE,
            title=setting.title,
            after=after,
            overview=overview,
            setting=setting,
            place=PageScope(),
            items=items,
            most=MOST_SHOWN,
            forecast=None,
            key=fresh_id("", 20),
        )

    async def settle(self, request: Request) -> Response:
        """Note that a message needs no answer."""
        ref = (await form_of(request)).get("ref", "")
        [message] = await self._front.questions.settle(self._front.desk().caller, [ref])
        if not is_part(request):
            return RedirectResponse(HERE, SEE_OTHER)
        return await self._pages.fragment("item_part.html.j2", item=await self._front.views.item(message))
