"""What a person looks at: timelines, and the parts that keep an open page up to date. Changes nothing.

Each handler asks the views and renders. The addresses are in `routes.py`; what a person does is in `deeds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final
from urllib.parse import urlencode

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from harken.errors import NotFound, UserError
from harken.inbox.results import TaskStanding
from harken.inbox.views import Overview, Timeline, TimelineItem
from harken.model import INBOX, LOCAL, REPLIES, TASK, Mailbox, State, TaskState, fresh_id
from harken.surfaces.web.front import WebContext
from harken.surfaces.web.page.forms import number
from harken.surfaces.web.page.ledgers import ledger_of
from harken.surfaces.web.page.links import channel_href, mailbox_href, message_href
from harken.surfaces.web.page.markdown import piece_of
from harken.surfaces.web.page.rendering import PageRenderer
from harken.surfaces.web.page.sidebar import mailbox_title
from harken.surfaces.web.page.visible import visible

SEE_OTHER: Final = 303
AROUND: Final = 25  # messages shown after the one that an address names
PAGE: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PageScope:
    """A timeline: of a mailbox, or of a channel over all mailboxes."""

    mailbox: str = ""
    source: str = ""
    channel: str = ""

    @property
    def href(self) -> str:
        """Its address."""
        return mailbox_href(self.mailbox) if self.mailbox else channel_href(self.source, self.channel)

    @property
    def query(self) -> str:
        """Itself, as the parts are asked for it."""
        fields = {"mailbox": self.mailbox, "source": self.source, "channel": self.channel}
        return urlencode({name: value for name, value in fields.items() if value})


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineContext:
    """What surrounds a timeline. `why_not` says why nothing can be written there; empty where one can."""

    title: str
    after: int
    overview: Overview
    why_not: str = ""
    note: str = ""
    task: TaskStanding | None = None


def place_of(fields: Mapping[str, str]) -> PageScope:
    """Return the timeline that an address or a form names."""
    place = PageScope(
        mailbox=fields.get("mailbox", ""), source=fields.get("source", ""), channel=fields.get("channel", "")
    )
    if not place.mailbox and not place.source:
        raise UserError("Which mailbox?", "Load the page again.")
    return place


def days_of(timeline: Timeline) -> Sequence[Sequence[TimelineItem]]:
    """Return the items of each day, in UTC; the page's script draws the days of the person's own zone."""
    return [list(day) for _, day in groupby(timeline.items, key=lambda item: item.message.received_at.date())]


class TimelinePages:
    """What a person looks at."""

    def __init__(self, front: WebContext, pages: PageRenderer) -> None:
        self._front = front
        self._pages = pages

    async def home(self, _request: Request) -> Response:
        """Answer that the inbox comes first."""
        return RedirectResponse(mailbox_href(INBOX), SEE_OTHER)

    async def mailbox(self, request: Request) -> Response:
        """Answer with the timeline of a mailbox, newest or around a message."""
        after = self._front.ticker.newest  # before anything is read: what comes meanwhile is told by the stream
        name = Mailbox(request.path_params["mailbox"])
        overview = await self._front.views.overview()
        task = await self._task(name, overview)
        setting = TimelineContext(
            title=task.task.title if task else mailbox_title(name),
            after=after,
            overview=overview,
            why_not=_why_not(name, task),
            task=task,
        )
        return await self._timeline(request, PageScope(mailbox=name), setting)

    async def channel(self, request: Request) -> Response:
        """Answer with the timeline of a channel."""
        after = self._front.ticker.newest
        place = PageScope(source=request.path_params["source"], channel=request.path_params["channel"])
        origin = "this machine" if place.source == LOCAL else place.source
        setting = TimelineContext(
            title=place.channel or place.source,
            after=after,
            overview=await self._front.views.overview(),
            why_not=f"What is said here comes from {origin}. To answer a message there, choose Reply on it (r).",
            note=f"from {origin}",
        )
        return await self._timeline(request, place, setting)

    async def message(self, request: Request) -> Response:
        """Answer with where a message is: in the timeline of its mailbox."""
        item = await self._front.views.item(request.path_params["ref"])
        return RedirectResponse(message_href(item.message), SEE_OTHER)

    async def items(self, request: Request) -> Response:
        """Answer with more of a timeline: older, or what is new."""
        query = request.query_params
        place = place_of(query)
        is_new = "after" in query
        after = number(query.get("after")) if is_new else None
        timeline = await self._read(place, before=number(query.get("before")), after=after)
        return await self._pages.fragment(
            "items.html.j2",
            headers={"Harken-Newest": str(timeline.newest)},
            days=days_of(timeline),
            older=0 if is_new else timeline.older,
            query=place.query,
            is_new=is_new,
        )

    async def item(self, request: Request) -> Response:
        """Answer with a message as it is now."""
        item = await self._front.views.item(request.path_params["ref"])
        return await self._pages.fragment("item_part.html.j2", item=item)

    async def text(self, request: Request) -> Response:
        """Answer with the text of a message, a long one in pieces."""
        message = (await self._front.views.item(request.path_params["ref"])).message
        return await self._text(request, message.id, message.text)

    async def reply(self, request: Request) -> Response:
        """Answer with the text of a reply to a message, a long one in pieces."""
        item = await self._front.views.item(request.path_params["ref"])
        for row in item.replies:
            if row.id == request.path_params["reply"]:
                return await self._text(request, row.id, visible(row.body))
        raise NotFound("There is no such reply.", "Load the page again.")

    async def sidebar(self, request: Request) -> Response:
        """Answer with the list of places."""
        return await self._pages.sidebar(request.query_params.get("here", ""))

    async def forecast(self, request: Request) -> Response:
        """Answer with what would happen to a message that is sent now."""
        query = request.query_params
        if ref := query.get("ref", ""):
            to = (await self._front.views.item(ref)).message
            return self._pages.part("reply_outlook.html.j2", to=to)
        told = await self._front.views.forecast(query.get("mailbox", ""), query.get("priority") or "normal")
        return self._pages.part("forecast.html.j2", forecast=told)

    async def sent(self, request: Request) -> Response:
        """Answer with what became of a message that was sent, or what will happen to it now."""
        item = await self._front.views.item(request.path_params["ref"])
        message, ledger = item.message, ledger_of(item)
        is_waiting = ledger is not None and ledger.state == State.QUEUED.value
        told = await self._front.views.forecast(message.mailbox, message.priority.value) if is_waiting else None
        return self._pages.part("sent_now.html.j2", message=message, ledger=ledger, forecast=told)

    async def why_not(self, request: Request) -> Response:
        """Answer with why nothing can be written to a mailbox any more; with nothing where one can."""
        name = Mailbox(request.query_params.get("mailbox", ""))
        return self._pages.part("why_not.html.j2", why_not=_why_not(name, await self._task_of(name)))

    async def task(self, request: Request) -> Response:
        """Answer with what a task and its session do now."""
        standing = await self._front.tasks.show(request.path_params["task"])
        return self._pages.part("task_note.html.j2", task=standing)

    async def _text(self, request: Request, name: str, text: str) -> Response:
        start = min(number(request.query_params.get("from")), len(text))
        html, following = await to_thread.run_sync(piece_of, text, start)
        return await self._pages.fragment(
            "text_part.html.j2",
            id=name,
            html=html,
            start=start,
            following=following,
            length=len(text),
            href=f"{request.url.path}?from={following}",
        )

    async def _task(self, mailbox: Mailbox, overview: Overview) -> TaskStanding | None:
        """Return the task of a mailbox, if it is one's; raises for a mailbox that does not exist."""
        line = next((each for each in (*overview.tasks, *overview.mailboxes) if each.name == mailbox), None)
        if line is not None and line.task is not None:
            return line.task
        if task := await self._task_of(mailbox):
            return task
        is_known = line is not None or mailbox == REPLIES
        if not mailbox or not (is_known or (await self._read(PageScope(mailbox=mailbox))).items):
            raise NotFound(f"There is no mailbox {mailbox[:80]!r}.", "The list shows those that exist.")
        return None

    async def _task_of(self, mailbox: Mailbox) -> TaskStanding | None:
        """Return the task that a mailbox is named after; None for one that was removed: its messages may be there."""
        if not mailbox.startswith(TASK):
            return None
        with suppress(NotFound, UserError):
            found = await self._front.tasks.show(mailbox.removeprefix(TASK))
            return found if found.task.mailbox == mailbox else None
        return None

    async def _timeline(self, request: Request, place: PageScope, setting: TimelineContext) -> Response:
        timeline, newest = await self._around(request, place)
        is_past = timeline is not newest
        told = None if setting.why_not else await self._front.views.forecast(place.mailbox, "normal")
        return await self._pages.page(
            "timeline.html.j2",
            here=place.href,
            title=setting.title,
            after=setting.after,
            overview=setting.overview,
            place=place,
            setting=setting,
            days=days_of(timeline),
            older=timeline.older,
            query=place.query,
            # Nothing is added live below a part of the past: what is between would be missing.
            newest="" if is_past else timeline.newest,
            last=timeline.newest,
            all_up_to=newest.newest if await self._has_more(place, timeline, is_past=is_past) else 0,
            is_past=is_past,
            is_new=False,
            forecast=told,
            key=fresh_id("", 20),
        )

    async def _has_more(self, place: PageScope, shown: Timeline, *, is_past: bool) -> bool:
        """Whether something is unseen that is not among what is shown."""
        in_place = partial(
            self._front.views.has_unseen, mailbox=place.mailbox, source=place.source, channel=place.channel
        )
        is_before = shown.older > 1 and await in_place(up_to=shown.older - 1)
        return is_before or (is_past and await in_place(since=shown.newest + 1))

    async def _around(self, request: Request, place: PageScope) -> tuple[Timeline, Timeline]:
        """Return the part of a timeline that an address asks for, and the newest; the same where they are."""
        at, before = number(request.query_params.get("at")), number(request.query_params.get("before"))
        newest = await self._read(place)
        end = at + AROUND if at else before
        if not end or not newest.older or at >= newest.older:
            return newest, newest
        return await self._read(place, before=end), newest

    async def _read(self, place: PageScope, *, before: int = 0, after: int | None = None) -> Timeline:
        return await self._front.views.timeline(
            mailbox=place.mailbox, source=place.source, channel=place.channel, before=before, after=after, limit=PAGE
        )


def _why_not(mailbox: Mailbox, task: TaskStanding | None) -> str:
    """Return why nothing can be written to a mailbox; empty where one can."""
    if mailbox == REPLIES:
        return "These are answers to you. To answer one of them, choose Reply on it (r)."
    if mailbox.startswith(TASK) and (task is None or task.state is TaskState.DONE):
        return "This task is done and takes no more mail."
    return ""
