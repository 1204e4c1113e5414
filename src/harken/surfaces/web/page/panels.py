"""The further views of the page: pulse, search, the palette.

Each route asks the inbox, lets a pure module say it in the words of the page, and renders a template of
`templates/panels`. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.errors import HarkenError
from harken.inbox.views import MailOverview
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.page import pulse, search
from harken.surfaces.web.page.links import channel_href, mailbox_href
from harken.surfaces.web.page.rendering import PageRenderer, answered
from harken.surfaces.web.page.sidebar import LISTED, NEEDS, VIEWS, WAITING, mailbox_title


def panel_routes(context: WebContext) -> list[Route]:
    """Return the routes of the further views."""
    pages = PageRenderer(context)
    panels = Panels(context, pages)
    views = (
        ("/pulse", panels.show_pulse),
        ("/search", panels.show_search),
        ("/part/palette", panels.palette),
    )
    return [Route(path, answered(pages, view), methods=["GET"]) for path, view in views]


class Panels:
    """The views over one context."""

    def __init__(self, context: WebContext, pages: PageRenderer) -> None:
        self._context = context
        self._pages = pages

    async def show_pulse(self, _request: Request) -> Response:
        """Show what happened lately, as charts and as a table."""
        after = self._context.ticker.newest
        shown = pulse.pulse_page(await self._context.views.pulse())
        return await self._pages.page(
            "panels/pulse.html.j2",
            here="/pulse",
            title="Pulse",
            after=after,
            now=self._context.clock.now(),
            pulse=shown,
        )

    async def palette(self, _request: Request) -> Response:
        """Answer with everything that the palette leads to."""
        entries = palette_entries(await self._context.views.overview())
        return await self._pages.fragment("palette.html.j2", entries=entries)

    async def show_search(self, request: Request) -> Response:
        """Show what contains all the words."""
        problem: HarkenError | None = None
        asked, results = search.SearchForm(), list[search.SearchResult]()
        try:
            asked = search.asked_of(request.query_params)
            results += await self._found(asked)
        except HarkenError as exc:
            problem = exc  # shown where results would be: the words stay in their field
        overview = await self._context.views.overview()
        mailboxes = [line.name for line in (*overview.mailboxes, *overview.tasks)]
        channels = [line.channel for line in overview.channels if line.channel]
        return await self._pages.page(
            "panels/search.html.j2",
            here="/search",
            title=f"Search: {asked.words}" if asked.words else "Search",
            overview=overview,
            now=self._context.clock.now(),
            asked=asked,
            results=results,
            said=search.said_of(len(results)),
            problem=problem,
            wider=asked.wider,
            longest=search.LONGEST_FIELD,
            mailboxes=_with(mailboxes, asked.mailbox),
            channels=sorted(set(channels)),
        )

    async def _found(self, asked: search.SearchForm) -> Sequence[search.SearchResult]:
        if not asked.words:
            return []
        items = await self._context.views.search(
            asked.words, mailbox=asked.mailbox, channel=asked.channel, sender=asked.sender, limit=search.MAX
        )
        return search.results_of(items, asked.words)


def palette_entries(overview: MailOverview) -> Sequence[tuple[str, str, str]]:
    """Return every place: its address, its name, and what it is."""
    lists = [(f"{LISTED}?view={name}", label, "list") for name, label in VIEWS.items() if name != "open"]
    return [
        (LISTED, "Inbox", "list"),
        *lists,
        (NEEDS, "Needs you", "list"),
        (WAITING, "Waiting for an answer", "list"),
        *((path, title, "page") for path, title in _PAGES),
        *((mailbox_href(line.name), mailbox_title(line.name), "mailbox") for line in overview.mailboxes),
        *((mailbox_href(line.name), line.task.task.title, "task") for line in overview.tasks if line.task),
        *(
            (channel_href(line.source, line.channel), line.channel or line.source, f"channel of {line.source}")
            for line in overview.channels
        ),
    ]


_PAGES: Final = (
    ("/tasks/new", "New task"),
    ("/tasks", "Tasks"),
    ("/sessions", "Sessions"),
    ("/agents", "Connect an agent"),
    ("/sources", "Sources"),
    ("/sources/new", "Add a source"),
    ("/pair", "Pair a sender"),
    ("/pulse", "Pulse"),
    ("/rules", "Rules"),
    ("/runs", "Runs"),
    ("/search", "Search"),
)


def _with(names: Sequence[str], chosen: str) -> Sequence[str]:
    """Return the names to choose from; the chosen one is among them, also when it is new or gone."""
    return sorted({*names, *([chosen] if chosen else [])})
