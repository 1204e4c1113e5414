"""The list of what needs you: each entry with its age, its main action, and a way to put it away.

What is in it is decided by `verbs/needs.py`, for the command line too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.inbox.questions import ago, asked_parts, asked_questions
from harken.model import MAX_QUESTIONS, ApprovalChoice, ApprovalId, Message
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.page.links import conversation_href, message_href
from harken.surfaces.web.page.rendering import Handler, PageRenderer, answered, form_of
from harken.surfaces.web.page.rules import action_card
from harken.surfaces.web.page.sidebar import NEEDS as HERE
from harken.verbs.needs import NeedKind, needs_of

ICONS: Final[Mapping[NeedKind, str]] = MappingProxyType(
    {
        NeedKind.APPROVAL: "sessions",
        NeedKind.CONFIRM: "rules",
        NeedKind.QUESTION: "person",
        NeedKind.REPLY: "failed",
        NeedKind.SIGN_IN: "known",
        NeedKind.SOURCE: "sources",
        NeedKind.SENDER: "unknown",
        NeedKind.AGENT: "known",
        NeedKind.RULE: "rules",
    }
)


SURFACE: Final = "page"
SAID: Final[Mapping[ApprovalChoice, str]] = MappingProxyType(
    {
        ApprovalChoice.ONCE: "Allowed, this once.",
        ApprovalChoice.ALWAYS: "Allowed, from now on.",
        ApprovalChoice.NO: "Refused.",
        ApprovalChoice.ANSWER: "Answered.",
    }
)


def thread_href(message: Message) -> str:
    """Return where the messages around one are read."""
    if message.mailbox.startswith("task:"):
        return message_href(message)
    return conversation_href(message.source, message.thread or message.id)


def _age(since: datetime, now: datetime) -> str:
    """Return for how long something needs you."""
    return f"for {ago(since, now)}" if now - since >= timedelta(minutes=1) else "just now"


class NeedPages:
    """What you look at and do."""

    def __init__(self, context: WebContext, pages: PageRenderer) -> None:
        self._context = context
        self._pages = pages

    async def look(self, _request: Request) -> Response:
        """Answer with what needs you, the oldest first."""
        after, now = self._context.ticker.newest, self._context.clock.now()
        context = self._context.call_context()
        needs = await needs_of(context)
        await context.approvals.show([each.approval for each in needs if each.approval], SURFACE)
        cards = {each.key: action_card(each.action, now) for each in needs if each.action}
        ages = {each.key: _age(each.since, now) if each.since else "" for each in needs}
        return await self._pages.page(
            "panels/needs.html.j2",
            here=HERE,
            title="Needs you",
            after=after,
            needs=needs,
            ages=ages,
            icons=ICONS,
            cards=cards,
            thread_href=thread_href,
            asked_parts=asked_parts,
            asked_questions=asked_questions,
        )

    async def approve(self, request: Request) -> Response:
        """Answer what a host asks: exactly what was on the page."""
        form, context = await form_of(request), self._context.call_context("approve")
        answered = await context.approvals.answer(
            context.caller,
            ApprovalId(form.get("approval", "")),
            form.get("choice", ""),
            digest=form.get("digest", ""),
            reason=form.get("reason", "") or _answers(form),
            through=SURFACE,
        )
        said = SAID[answered.choice or ApprovalChoice.NO]
        return self._pages.part("done.html.j2", said=said, action="", back={})

    async def put_away(self, request: Request) -> Response:
        """Put an entry away, or show it again."""
        form = await form_of(request)
        context, is_undone = self._context.call_context("put_away"), bool(form.get("undo"))
        key = form.get("key", "")
        await context.access.put_away(context.caller, [key], is_undone=is_undone)
        said = "It is in the list again." if is_undone else "Put away. It comes back when it happens again."
        back = {} if is_undone else {"key": key, "undo": "1"}
        return self._pages.part("done.html.j2", said=said, action="/do/put-away", back=back)

    async def retry(self, request: Request) -> Response:
        """Try a reply that could not be sent once more."""
        context = self._context.call_context("outbox_retry")
        reply = (await form_of(request)).get("reply", "")
        await context.replies.retry(context.caller, [reply], is_unsent=False)
        return self._pages.part("done.html.j2", said="It is tried once more, now.", action="", back={})

    async def try_again(self, _request: Request) -> Response:
        """Let rules try every agent again."""
        context = self._context.call_context("rules_reload")
        await context.automation.reload(context.caller)
        said = "The rules are loaded, and what waits is started."
        return self._pages.part("done.html.j2", said=said, action="", back={})


def _answers(form: Mapping[str, str]) -> str:
    """Return the answers to an agent's questions, a line each: own words, else what was chosen."""
    lines = []
    for number in range(MAX_QUESTIONS if form.get("choice") == ApprovalChoice.ANSWER else 0):
        name = f"answer-{number}"
        chosen = [value for field, value in form.items() if field == name or field.startswith(f"{name}-")]
        if f"words-{number}" in form:
            lines.append(form[f"words-{number}"].strip() or ", ".join(chosen))
    return "\n".join(lines)


def need_routes(context: WebContext) -> list[Route]:
    """Return the routes of what needs you."""
    pages = PageRenderer(context)
    each = NeedPages(context, pages)
    done: tuple[tuple[str, Handler], ...] = (
        ("/do/approve", each.approve),
        ("/do/put-away", each.put_away),
        ("/do/retry", each.retry),
        ("/do/rules-again", each.try_again),
    )
    return [
        Route(HERE, answered(pages, each.look), methods=["GET"]),
        *(Route(path, answered(pages, handler), methods=["POST"]) for path, handler in done),
    ]
