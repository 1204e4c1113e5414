"""The timelines of the page, the parts that keep it up to date, and what you do there: write, answer, mark as seen.

Each handler asks the views, or the inbox, and renders. A form that is sent twice does its work once: it carries a key.
Errors become a line in a part, or a page. Who may ask at all is decided before, in `guard.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from harken.errors import NotFound, TooLong, UserError
from harken.inbox.inbox import Inbox
from harken.inbox.results import Forecast, SendResult, TaskProgress
from harken.inbox.views import MailOverview, Timeline, TimelineItem
from harken.model import LOCAL, REPLIES, TASK, DeliveryState, Mailbox, ScheduledMessage, TaskState, fresh_id
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.page.links import PageScope, mailbox_href, message_href, place_of
from harken.surfaces.web.page.markdown import piece_of, visible
from harken.surfaces.web.page.messages import ledger_of, sender_of
from harken.surfaces.web.page.rendering import (
    SEE_OTHER,
    Handler,
    PageRenderer,
    answered,
    form_of,
    is_part,
    number,
    once_key,
)
from harken.surfaces.web.page.sidebar import LISTED, mailbox_title
from harken.surfaces.web.page.sidebar import WAITING as HERE
from harken.surfaces.web.shell import static_route

AROUND: Final = 25  # messages shown after the one that an address names
PAGE: Final = 50
NO_SENDING: Final = "Nothing new can be written from here."


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineContext:
    """What surrounds a timeline. `why_not` says why nothing can be written there; empty where one can."""

    title: str
    after: int
    overview: MailOverview
    why_not: str = ""
    note: str = ""
    task: TaskProgress | None = None
    conversation: str = ""  # its newest message, where the timeline is of one


def days_of(timeline: Timeline) -> Sequence[Sequence[TimelineItem]]:
    """Return the items of each day, in UTC; the page's script draws the days of the person's own zone."""
    return [list(day) for _, day in groupby(timeline.items, key=lambda item: item.message.received_at.date())]


class TimelinePages:
    """What a person looks at."""

    def __init__(self, context: WebContext, pages: PageRenderer) -> None:
        self._context = context
        self._pages = pages

    async def home(self, _request: Request) -> Response:
        """Answer that the list of conversations comes first."""
        return RedirectResponse(LISTED, SEE_OTHER)

    async def mailbox(self, request: Request) -> Response:
        """Answer with the timeline of a mailbox, newest or around a message."""
        after = self._context.ticker.newest  # before anything is read: what comes meanwhile is told by the stream
        name = Mailbox(request.path_params["mailbox"])
        overview = await self._context.views.overview()
        task = await self._task(name, overview)
        setting = TimelineContext(
            title=task.task.title if task else mailbox_title(name),
            after=after,
            overview=overview,
            why_not=self._to_answer(_why_not(name, task)) if _why_not(name, task) else self._read_only(),
            task=task,
        )
        return await self._timeline(request, PageScope(mailbox=name), setting)

    async def channel(self, request: Request) -> Response:
        """Answer with the timeline of a channel."""
        after = self._context.ticker.newest
        place = PageScope(source=request.path_params["source"], channel=request.path_params["channel"])
        origin = "this machine" if place.source == LOCAL else place.source
        setting = TimelineContext(
            title=place.channel or place.source,
            after=after,
            overview=await self._context.views.overview(),
            why_not=self._to_answer(
                f"What is said here comes from {origin}. To answer a message there, choose Reply on it (r)."
            ),
            note=f"from {origin}",
        )
        return await self._timeline(request, place, setting)

    def _read_only(self) -> str:
        return "" if self._context.can("send") else NO_SENDING

    def _to_answer(self, how: str) -> str:
        return how if self._context.can("reply") else NO_SENDING

    async def conversation(self, request: Request) -> Response:
        """Answer with the messages of one conversation."""
        after = self._context.ticker.newest
        place = place_of(request.query_params)
        items = (await self._read(place)).items
        if not place.thread or not items:
            raise NotFound("There is no such conversation.", "The list shows those that exist.")
        # Mail for a task may be in the thread; it is shown, and names no conversation.
        item = next((each for each in reversed(items) if not each.message.mailbox.startswith(TASK)), items[-1])
        setting = TimelineContext(
            title=sender_of(item.message).name,
            after=after,
            overview=await self._context.views.overview(),
            why_not=self._to_answer("To answer, choose Reply on a message (r)."),
            note=sender_of(item.message).origin,
            conversation=item.message.id,
        )
        return await self._timeline(request, place, setting)

    async def message(self, request: Request) -> Response:
        """Answer with where a message is: in the timeline of its mailbox."""
        item = await self._context.views.item(request.path_params["ref"])
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
        item = await self._context.views.item(request.path_params["ref"])
        return await self._pages.fragment("item_part.html.j2", item=item)

    async def text(self, request: Request) -> Response:
        """Answer with the text of a message, a long one in pieces."""
        message = (await self._context.views.item(request.path_params["ref"])).message
        return await self._text(request, message.id, message.text)

    async def reply(self, request: Request) -> Response:
        """Answer with the text of a reply to a message, a long one in pieces."""
        item = await self._context.views.item(request.path_params["ref"])
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
            to = (await self._context.views.item(ref)).message
            return self._pages.part("reply_outlook.html.j2", to=to)
        told = await self._context.views.forecast(query.get("mailbox", ""), query.get("priority") or "normal")
        return self._pages.part("forecast.html.j2", forecast=told)

    async def sent(self, request: Request) -> Response:
        """Answer with what became of a message that was sent, or what will happen to it now."""
        item = await self._context.views.item(request.path_params["ref"])
        message, ledger = item.message, ledger_of(item)
        is_waiting = ledger is not None and ledger.state == DeliveryState.QUEUED.value
        told = await self._context.views.forecast(message.mailbox, message.priority.value) if is_waiting else None
        return self._pages.part("sent_now.html.j2", message=message, ledger=ledger, forecast=told)

    async def scheduled(self, request: Request) -> Response:
        """Answer with what waits for its time in a mailbox."""
        name = request.query_params.get("mailbox", "")
        return await self._pages.fragment("scheduled.html.j2", scheduled=await scheduled_in(self._context.inbox, name))

    async def why_not(self, request: Request) -> Response:
        """Answer with why nothing can be written to a mailbox any more; with nothing where one can."""
        name = Mailbox(request.query_params.get("mailbox", ""))
        return self._pages.part("why_not.html.j2", why_not=_why_not(name, await self._task_of(name)))

    async def task(self, request: Request) -> Response:
        """Answer with what a task and its session do now."""
        standing = await self._context.tasks.show(request.path_params["task"])
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

    async def _task(self, mailbox: Mailbox, overview: MailOverview) -> TaskProgress | None:
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

    async def _task_of(self, mailbox: Mailbox) -> TaskProgress | None:
        """Return the task that a mailbox is named after; None for one that was removed: its messages may be there."""
        if not mailbox.startswith(TASK):
            return None
        with suppress(NotFound, UserError):
            found = await self._context.tasks.show(mailbox.removeprefix(TASK))
            return found if found.task.mailbox == mailbox else None
        return None

    async def _timeline(self, request: Request, place: PageScope, setting: TimelineContext) -> Response:
        timeline, newest = await self._around(request, place)
        is_past = timeline is not newest
        told = None if setting.why_not else await self._context.views.forecast(place.mailbox, "normal")
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
            scheduled=() if is_past else await scheduled_in(self._context.inbox, place.mailbox),
            key=fresh_id("", 20),
        )

    async def _has_more(self, place: PageScope, shown: Timeline, *, is_past: bool) -> bool:
        """Whether something is unseen that is not among what is shown."""
        in_place = partial(
            self._context.views.has_unseen,
            mailbox=place.mailbox,
            source=place.source,
            channel=place.channel,
            thread=place.thread,
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
        return await self._context.views.timeline(
            mailbox=place.mailbox,
            source=place.source,
            channel=place.channel,
            thread=place.thread,
            before=before,
            after=after,
            limit=PAGE,
        )


async def scheduled_in(inbox: Inbox, mailbox: str) -> Sequence[tuple[ScheduledMessage, Forecast]]:
    """Return what waits for its time in a mailbox, and what each message waits for."""
    return [(each, inbox.outlook_of(each)) for each in await inbox.scheduled(mailbox)] if mailbox else ()


def _why_not(mailbox: Mailbox, task: TaskProgress | None) -> str:
    """Return why nothing can be written to a mailbox; empty where one can."""
    if mailbox == REPLIES:
        return "These are answers to you. To answer one of them, choose Reply on it (r)."
    if mailbox.startswith(TASK) and (task is None or task.state is TaskState.DONE):
        return "This task is done and accepts no more messages."
    return ""


CHANNEL: Final = "page"
NO_CONTENT: Final = 204


class MessageActions:
    """What a person does."""

    def __init__(self, context: WebContext, pages: PageRenderer) -> None:
        self._context = context
        self._pages = pages

    async def send(self, request: Request) -> Response:
        """Accept a message for a mailbox, or an answer to a message, and say what will happen to it."""
        form = await form_of(request)
        text = form.get("text", "").replace("\r\n", "\n")
        key = once_key(form.get("key", ""), text)
        if form.get("ref"):
            return await self._reply(request, form["ref"], text, key)
        mailbox = form.get("mailbox", "")
        if not mailbox or mailbox == REPLIES:
            raise UserError("Nothing can be sent there.", "Choose a mailbox, or a message to answer.")
        caller, inbox = self._context.call_context("send").caller, self._context.inbox
        try:
            sent = await inbox.send(
                caller,
                await inbox.write_as_file(caller, mailbox, text) if form.get("as_file") else text,
                channel=CHANNEL,
                to=mailbox,
                priority=form.get("priority") or "normal",
                upstream_id=key,
            )
        except TooLong as exc:
            raise _offered(exc) from exc
        said = "Sent." if sent.is_new else "Sent before."
        said = f"{said} The text is in {sent.file} in the task's folder." if sent.file else said
        return self._done(request, mailbox_href(mailbox), said, _sentence(sent), sent.message.id)

    async def unsend(self, request: Request) -> Response:
        """Withdraw a message that waits for its time, and show what is left."""
        caller, inbox = self._context.call_context("unsend").caller, self._context.inbox
        message = (await inbox.unsend(caller, (await form_of(request)).get("ref", ""))).message
        if not is_part(request):
            return RedirectResponse(mailbox_href(message.mailbox), SEE_OTHER)
        return await self._pages.fragment("scheduled.html.j2", scheduled=await scheduled_in(inbox, message.mailbox))

    async def seen(self, request: Request) -> Response:
        """Note that the person was shown a timeline from one position up to another, or wants to be done with it."""
        form = await form_of(request)
        place = place_of(form)
        await self._context.views.mark_seen(
            mailbox=place.mailbox,
            source=place.source,
            channel=place.channel,
            thread=place.thread,
            since=number(form.get("since")),
            up_to=number(form.get("up_to")),
        )
        return Response(status_code=NO_CONTENT) if is_part(request) else RedirectResponse(place.href, SEE_OTHER)

    async def _reply(self, request: Request, ref: str, text: str, key: str) -> Response:
        caller = self._context.call_context("reply").caller
        row = await self._context.inbox.reply(caller, ref, text, edge=CHANNEL if key else "", request=key)
        sentence = "It goes where the message came from."
        return self._done(request, message_href(row.message), "Answered.", sentence)

    def _done(self, request: Request, href: str, said: str, sentence: str, message: str = "") -> Response:
        if not is_part(request):
            return RedirectResponse(href, SEE_OTHER)
        return self._pages.part(
            "sent.html.j2",
            headers={"HX-Trigger": "sent"},
            said=said,
            sentence=sentence,
            message=message,
            key=fresh_id("", 20),
        )


def _offered(error: TooLong) -> TooLong:
    """Return an error with a hint for the page, where a button below it sends the text as a file."""
    if not error.can_be_file:
        return error
    hint = "It can go as a file into the task's folder."
    return TooLong(error.message, hint, length=error.length, limit=error.limit, can_be_file=True)


def _sentence(sent: SendResult) -> str:
    return f"It {sent.forecast.sentence}."


def page_routes(context: WebContext) -> list[Route]:
    """Return the routes of the page, apart from its panels."""
    pages = PageRenderer(context)
    look, do = TimelinePages(context, pages), MessageActions(context, pages)
    shown: tuple[tuple[str, Handler], ...] = (
        ("/", look.home),
        ("/m/{mailbox:path}", look.mailbox),
        ("/c/{source}/{channel:path}", look.channel),
        ("/conversation", look.conversation),
        ("/message/{ref}", look.message),
        ("/part/items", look.items),
        ("/part/item/{ref}", look.item),
        ("/part/text/{ref}", look.text),
        ("/part/reply/{ref}/{reply}", look.reply),
        ("/part/sidebar", look.sidebar),
        ("/part/forecast", look.forecast),
        ("/part/sent/{ref}", look.sent),
        ("/part/scheduled", look.scheduled),
        ("/part/why-not", look.why_not),
        ("/part/task/{task}", look.task),
    )
    done: tuple[tuple[str, Handler], ...] = (
        ("/do/send", do.send),
        ("/do/unsend", do.unsend),
        ("/do/seen", do.seen),
    )
    return [
        *(Route(path, answered(pages, handler), methods=["GET"]) for path, handler in shown),
        *(Route(path, answered(pages, handler), methods=["POST"]) for path, handler in done),
        static_route(pages.files),
    ]


MAX_SHOWN: Final = 50


def waiting_routes(context: WebContext) -> list[Route]:
    """Return the routes of what waits for an answer."""
    pages = PageRenderer(context)
    waits = WaitingPages(context, pages)
    return [
        Route(HERE, answered(pages, waits.look), methods=["GET"]),
        Route("/do/settle", answered(pages, waits.settle), methods=["POST"]),
    ]


class WaitingPages:
    """What a person looks at and does about questions."""

    def __init__(self, context: WebContext, pages: PageRenderer) -> None:
        self._context = context
        self._pages = pages

    async def look(self, _request: Request) -> Response:
        """Answer with what waits, the oldest first."""
        after = self._context.ticker.newest
        overview = await self._context.views.overview()
        items = await self._context.views.open_items(MAX_SHOWN)
        setting = TimelineContext(
            title="Waiting",
            after=after,
            overview=overview,
            why_not="To answer a message, choose Reply on it (r)." if self._context.can("reply") else NO_SENDING,
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
            most=MAX_SHOWN,
            forecast=None,
            key=fresh_id("", 20),
        )

    async def settle(self, request: Request) -> Response:
        """Note that a message, or some of a conversation, need no answer."""
        form = await form_of(request)
        refs = form.get("ref", "").split(",")
        message = (await self._context.questions.settle(self._context.call_context("question_done").caller, refs))[-1]
        if form.get("is_brief"):
            return self._pages.part("done.html.j2", said="It needs no answer.", action="", back={})
        if not is_part(request):
            return RedirectResponse(HERE, SEE_OTHER)
        return await self._pages.fragment("item_part.html.j2", item=await self._context.views.item(message))
