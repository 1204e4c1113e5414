"""The list of conversations, and what you do with them: be done, put off, put back, keep unread, allow a sender.

A row says who spoke last, a person or a machine, how often, what is unread, and in words what keeps a message from
being pushed. What is done can be undone: the answer to it carries where each conversation was. The use cases are those
of the command line (`inbox/conversations.py`, `inbox/access.py`); this only reads forms and renders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from harken.errors import UserError
from harken.inbox.conversations import ConversationState, ConversationSummary, Triage, TriageResult
from harken.model import LOCAL, Attention, Message, MessageId, Trust, timestamp
from harken.sources.source import Speakers
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.page.links import conversation_href
from harken.surfaces.web.page.messages import SenderView, push_words, sender_of, speaker_of, speakers
from harken.surfaces.web.page.rendering import (
    SEE_OTHER,
    Handler,
    PageRenderer,
    answered,
    form_of,
    is_part,
    number,
)
from harken.surfaces.web.page.sidebar import LISTED as HERE
from harken.surfaces.web.page.sidebar import VIEWS

ROWS: Final = 50
FIRST_ROWS: Final = 20  # what a screen shows: the rest of the first rows is asked for once these are painted
_EMPTY: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "open": ("Nothing left to do", "What comes next appears here by itself."),
        "unread": ("Everything is read", "What is new appears here by itself."),
        "for-you": ("Nothing is for you", "Answers of agents, questions and what people write to you appear here."),
        "snoozed": ("Nothing is put off", "Press s on a conversation, and it comes back when you want it."),
        "done": ("Nothing is done yet", "Press e on a conversation: it stays here until somebody writes in it."),
    }
)
_MAX_BACK: Final = 40_000
_VERBS: Final[Mapping[str, str]] = MappingProxyType(
    {"done": "done", "snooze": "snooze", "reopen": "reopen", "unread": "unread", "read": "unread"}
)
_DECISIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "known": "may reach your agents from now on",
        "unknown": "is only counted from now on, and you are not asked about them again",
        "owner": "speaks for you again",
        "none": "is as before: nothing is decided about them",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRow:
    """A conversation as the list shows it. `speaker` is `person`, `machine`, `agent` or `you`."""

    id: str
    href: str
    sender: SenderView
    speaker: str
    count: int
    is_unread: bool
    is_asked: bool
    is_high: bool
    is_due: bool
    until: datetime | None
    message: Message
    push: str
    is_unknown: bool
    can_allow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationList:
    """A part of a list: its rows, where it goes on, and what is said where there are none.

    `is_begun`: what follows is asked for at once.
    """

    view: str
    views: Mapping[str, str]
    counts: Mapping[str, int]
    rows: Sequence[ConversationRow]
    older: int
    is_begun: bool
    is_first: bool
    next_due: datetime | None
    is_new_here: bool
    empty_title: str
    empty_hint: str


def _row(
    each: ConversationSummary, sources: Mapping[str, Speakers], now: datetime, *, is_allowed_since: bool
) -> ConversationRow:
    message = each.newest
    is_unknown = message.trust is Trust.UNKNOWN and not is_allowed_since
    is_held = message.trust is Trust.UNKNOWN or message.attention is Attention.COUNT
    return ConversationRow(
        id=message.id,
        href=conversation_href(each.key.source, each.key.thread),
        sender=sender_of(message),
        speaker=speaker_of(message, sources),
        count=each.count,
        is_unread=bool(each.unread or each.is_marked),
        is_asked=each.is_asked,
        is_high=message.priority.value == "high",
        is_due=each.until is not None and each.until <= now,
        until=each.until,
        message=message,
        push=push_words(message, is_allowed_since=is_allowed_since) if is_held else "",
        is_unknown=is_unknown,
        can_allow=is_unknown and message.source != LOCAL,
    )


class ConversationPages:
    """What you look at and do."""

    def __init__(self, context: WebContext, pages: PageRenderer) -> None:
        self._context = context
        self._pages = pages

    async def look(self, request: Request) -> Response:
        """Answer with the list."""
        after = self._context.ticker.newest
        view = request.query_params.get("view", "open")
        if view not in VIEWS:
            raise UserError("There is no such list.", "Go back to: /conversations")
        listed = await self._listed(request, view, FIRST_ROWS)
        return await self._pages.page(
            "conversations.html.j2",
            here=HERE,
            title=VIEWS[view] if view != "open" else "Inbox",
            after=after,
            listing=listed,
        )

    async def rows(self, request: Request) -> Response:
        """Answer with the rows of the list as they are now, or with those that follow."""
        view, is_fill = request.query_params.get("view", "open"), "fill" in request.query_params
        listed = await self._listed(request, view, ROWS - FIRST_ROWS if is_fill else ROWS)
        return await self._pages.fragment("conversation_rows.html.j2", listing=listed)

    async def triage(self, request: Request) -> Response:
        """Put conversations somewhere, and say how that is undone."""
        form = await form_of(request)
        refs, what = [each for each in form.get("refs", "").split(",") if each], form.get("what", "")
        context = self._context.call_context(_VERBS.get(what, "done"))
        use, caller = context.conversations, context.caller
        if what in ("unread", "read"):
            await use.mark(caller, refs, is_unread=what == "unread")
            return self._said(request, f"{_counted(refs)} {'unread' if what == 'unread' else 'read'}.", "")
        if what == "done":
            done = await use.done(caller, refs)
            return self._said(request, _told(done, ConversationState.DONE, "done."), _back(done))
        if what == "snooze":
            done = await use.snooze(caller, refs, until=_moment(form.get("until", "")))
            until = next((each.now.until for each in done if each.now.until), None)
            said = _told(done, ConversationState.SNOOZED, "put off until")
            return self._said(request, said, _back(done), until=until)
        if what == "reopen":
            done = await use.reopen(caller, refs)
            return self._said(request, f"{_counted(done)} in the list again.", _back(done))
        raise UserError("That cannot be done with a conversation.", "Load the page again.")

    async def undo(self, request: Request) -> Response:
        """Put conversations back to where they were."""
        back = (await form_of(request)).get("back", "")[:_MAX_BACK]
        context = self._context.call_context("reopen")
        await context.conversations.restore(context.caller, [_order(line) for line in back.split(",") if line])
        return self._said(request, "Undone.", "")

    async def allow(self, request: Request) -> Response:
        """Let the sender of a message reach agents, or not; to undo it is to decide as before, if anything was."""
        form = await form_of(request)
        message = (await self._context.views.item(form.get("ref", ""))).message
        context = self._context.call_context("allow")
        access, caller = context.access, context.caller
        before, decision = await access.decision(message), form.get("decision", "known")
        if decision not in _DECISIONS:
            raise UserError("That cannot be decided about a sender.", "Load the page again.")
        sender, source = message.sender.id, message.source
        match decision:
            case "unknown":
                await access.deny(caller, sender, source=source)
            case "none":
                await access.take_back(caller, sender, source=source)
            case _:
                await access.allow(caller, sender, source=source, as_owner=decision == "owner")
        back = {"ref": message.id, "decision": before.value if before else "none"}
        said = f"{sender} of {source} {_DECISIONS[decision]}."
        return self._pages.part("done.html.j2", said=said, action="/do/allow", back=back)

    async def mute(self, request: Request) -> Response:
        """Keep the sender of a message from being pushed, or no longer."""
        form = await form_of(request)
        message = (await self._context.views.item(form.get("ref", ""))).message
        context = self._context.call_context("mute")
        access, caller = context.access, context.caller
        if form.get("undo"):
            await access.unmute(caller, "sender", message.sender.id)
            return self._pages.part("done.html.j2", said="Not muted any more.", action="", back={})
        if access.is_muted("sender", message.sender.id):
            said = f"{message.sender.id} is muted already: harken status shows for how long."
            return self._pages.part("done.html.j2", said=said, action="", back={})
        await access.mute(caller, "sender", message.sender.id)
        said = f"{message.sender.id} is muted: what they say is stored, and not pushed."
        back = {"ref": message.id, "undo": "1"}
        return self._pages.part("done.html.j2", said=said, action="/do/mute", back=back)

    async def _listed(self, request: Request, view: str, limit: int) -> ConversationList:
        context, now = self._context.call_context(), self._context.clock.now()
        before = number(request.query_params.get("before"))
        found = await context.conversations.list(view, before=before, limit=limit)
        counts = await context.conversations.counts()
        title, hint = _EMPTY[view if view in _EMPTY else "open"]
        of = speakers(context.sources())
        return ConversationList(
            view=view,
            views=VIEWS,
            counts={state.value: count for state, count in counts.by_state.items()},
            rows=[_row(each, of, now, is_allowed_since=context.access.is_allowed_since(each.newest)) for each in found],
            older=found[-1].position if len(found) >= limit else 0,
            is_begun=limit == FIRST_ROWS,
            is_first=not before,
            next_due=counts.next_due,
            is_new_here=not any(counts.by_state.values()),
            empty_title=title,
            empty_hint=hint,
        )

    def _said(self, request: Request, said: str, back: str, *, until: datetime | None = None) -> Response:
        if not is_part(request):
            return RedirectResponse(HERE, SEE_OTHER)
        return self._pages.part("toast.html.j2", said=said, back=back, until=until)


def _counted(which: Sequence[object]) -> str:
    return "1 conversation is" if len(which) == 1 else f"{len(which)} conversations are"


def _told(done: Sequence[TriageResult], state: ConversationState, what: str) -> str:
    """Return what was done, and how many have something newer, so that they stay."""
    there = [each for each in done if each.now.state is state]
    newer = len(done) - len(there)
    stays = f"{newer} {'has' if newer == 1 else 'have'} something newer and {'stays' if newer == 1 else 'stay'}."
    return " ".join([*([stays] if newer else []), *([f"{_counted(there)} {what}"] if there else [])])


def _back(done: Sequence[TriageResult]) -> str:
    """Return what undoes something: each conversation that it changed, with where it was."""
    return ",".join(_was(each) for each in done if _place(each.was) != _place(each.now))


def _place(each: ConversationSummary) -> tuple[ConversationState, datetime | None, bool]:
    return each.state, each.until, bool(each.unread or each.is_marked)


def _was(each: TriageResult) -> str:
    was = each.was
    until = timestamp(was.until) if was.until else "-"
    return f"{each.message} {was.state.value} {until} {'unread' if was.unread or was.is_marked else 'read'}"


def _order(line: str) -> Triage:
    """Return what puts a conversation back, from a line of `_was`."""
    message, state, until, read = [*line.split(" "), "", "", ""][:4]
    if state not in set(ConversationState):
        raise UserError("That cannot be undone.", "Load the page again.")
    return Triage(
        message=MessageId(message),
        state=ConversationState(state),
        until=_moment(until) if state == ConversationState.SNOOZED.value else None,
        is_unread=None if state == ConversationState.SNOOZED.value else read == "unread",
    )


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as exc:
        raise UserError("That is not a time.", "Choose one of the list, or a date and a time.") from exc
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def conversation_routes(context: WebContext) -> list[Route]:
    """Return the routes of the list."""
    pages = PageRenderer(context)
    each = ConversationPages(context, pages)
    shown: tuple[tuple[str, Handler], ...] = ((HERE, each.look), ("/part/conversations", each.rows))
    done: tuple[tuple[str, Handler], ...] = (
        ("/do/triage", each.triage),
        ("/do/undo", each.undo),
        ("/do/allow", each.allow),
        ("/do/mute", each.mute),
    )
    return [
        *(Route(path, answered(pages, handler), methods=["GET"]) for path, handler in shown),
        *(Route(path, answered(pages, handler), methods=["POST"]) for path, handler in done),
    ]
