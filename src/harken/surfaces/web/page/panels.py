"""The further views of the page: pulse, search, the palette.

Each route asks the inbox, lets a pure module say it in the words of the page, and renders a template of
`templates/panels`. Nothing here changes anything.

In what a search has found the words are marked as pieces of plain text, so that a hostile message cannot become markup.
They are matched as the store's index does: whole words, without regard to case and accents.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.errors import HarkenError, UserError
from harken.inbox.views import MailOverview, TimelineItem
from harken.model import INBOX, REPLIES, Message, Priority, Trust
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.page import pulse
from harken.surfaces.web.page.links import channel_href, mailbox_href, message_href
from harken.surfaces.web.page.messages import sender_of
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
        asked, results = SearchForm(), list[SearchResult]()
        try:
            asked = asked_of(request.query_params)
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
            said=said_of(len(results)),
            problem=problem,
            wider=asked.wider,
            longest=LONGEST_FIELD,
            mailboxes=_with(mailboxes, asked.mailbox),
            channels=sorted(set(channels)),
        )

    async def _found(self, asked: SearchForm) -> Sequence[SearchResult]:
        if not asked.words:
            return []
        items = await self._context.views.search(
            asked.words, mailbox=asked.mailbox, channel=asked.channel, sender=asked.sender, limit=MAX_RESULTS
        )
        return results_of(items, asked.words)


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


LONGEST_FIELD: Final = 300  # characters of a field
MAX_RESULTS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchForm:
    """What to look for; empty fields do not narrow."""

    words: str = ""
    mailbox: str = ""
    channel: str = ""
    sender: str = ""

    @property
    def is_narrowed(self) -> bool:
        """Whether it looks in a part only."""
        return bool(self.mailbox or self.channel or self.sender)

    @property
    def wider(self) -> str:
        """The address of the same search over everything."""
        return "/search?" + urlencode({"q": self.words})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """A message that was found."""

    href: str
    sender: Sequence[MarkedPiece]
    text: Sequence[MarkedPiece]
    place: str
    at: datetime
    unknown_id: str  # of a sender who is not known: a name is anybody's choice
    is_unknown: bool
    is_high: bool


def asked_of(query: Mapping[str, str]) -> SearchForm:
    """Return what a request asks for."""
    asked = SearchForm(
        words=query.get("q", "").strip(),
        mailbox=query.get("mailbox", "").strip(),
        channel=query.get("channel", "").strip(),
        sender=query.get("sender", "").strip(),
    )
    if max(len(asked.words), len(asked.mailbox), len(asked.channel), len(asked.sender)) > LONGEST_FIELD:
        raise UserError(f"A search has at most {LONGEST_FIELD} characters.", "Use fewer words.")
    return asked


def results_of(items: Sequence[TimelineItem], words: str) -> Sequence[SearchResult]:
    """Return what was found as the page shows it."""
    wanted = words_of(words)
    return [
        SearchResult(
            href=message_href(item.message),
            sender=marked(sender_of(item.message).name, wanted),
            text=excerpt(_text(item), wanted),
            place=_place(item.message),
            at=item.message.received_at,
            unknown_id=item.message.sender.id if item.message.trust is Trust.UNKNOWN else "",
            is_unknown=item.message.trust is Trust.UNKNOWN,
            is_high=item.message.priority is Priority.HIGH,
        )
        for item in items
    ]


def said_of(count: int) -> str:
    """Say how much was found."""
    if count >= MAX_RESULTS:
        return f"The {MAX_RESULTS} newest messages with all of these words"
    return "1 message" if count == 1 else f"{count} messages"


def _text(item: TimelineItem) -> str:
    return "This message was deleted where it came from." if item.is_deleted else item.message.text


def _place(message: Message) -> str:
    mailbox = {INBOX: "Inbox", REPLIES: "Replies"}.get(message.mailbox, str(message.mailbox))
    return f"{mailbox} · {message.channel}" if message.channel else mailbox


AROUND: Final = 56  # characters shown before the first match
LONGEST_EXCERPT: Final = 320  # characters of an excerpt
SEARCHED: Final = 20_000  # characters of a text that are looked at for a place to show
MAX_WORDS: Final = 32
ELLIPSIS: Final = "…"
_WORD: Final = re.compile(r"[^\W_]+")  # as the index cuts words
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class MarkedPiece:
    """A part of a text, and whether it is one of the words."""

    text: str
    is_match: bool = False


def words_of(query: str) -> frozenset[str]:
    """Return the words of a search, folded as `folded` does."""
    return frozenset([folded(word) for word in _WORD.findall(query)][:MAX_WORDS])


def folded(word: str) -> str:
    """Return a word without case and accents."""
    plain = (char for char in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(char))
    return "".join(plain)


def excerpt(text: str, words: Collection[str]) -> Sequence[MarkedPiece]:
    """Return the part of a text around the first match, on one line, in pieces; cut ends have an ellipsis."""
    line = _SPACE.sub(" ", text[:SEARCHED]).strip()
    first = next((found.start() for found in _WORD.finditer(line) if folded(found[0]) in words), 0)
    start = _word_start(line, max(0, first - AROUND))
    end = min(len(line), start + LONGEST_EXCERPT)
    pieces = marked(line[start:end], words)
    before = [MarkedPiece(ELLIPSIS)] if start else []
    after = [MarkedPiece(ELLIPSIS)] if end < len(line) or len(text) > SEARCHED else []
    return [*before, *pieces, *after]


def marked(text: str, words: Collection[str]) -> Sequence[MarkedPiece]:
    """Return a text in pieces, the words among them marked. Joined, the pieces are the text."""
    pieces: list[MarkedPiece] = []
    done = 0
    for found in _WORD.finditer(text):
        if folded(found[0]) in words:
            if found.start() > done:
                pieces.append(MarkedPiece(text[done : found.start()]))
            pieces.append(MarkedPiece(found[0], is_match=True))
            done = found.end()
    if done < len(text):
        pieces.append(MarkedPiece(text[done:]))
    return pieces


def _word_start(line: str, place: int) -> int:
    """Return where the next word begins, unless that is far: a text without spaces is cut anywhere."""
    if place == 0:
        return 0
    space = line.find(" ", place, place + AROUND // 3)
    return place if space < 0 else space + 1
