"""How a page is made of templates: the frame with its sidebar, or only a part of it.

Everything is escaped unless markdown.py says it is safe; a name that a template does not get is an error, not an
empty text. What a form sends is bounded and decoded here, and not trusted. Above are the routes; below the templates,
the static files and the views of the inbox.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar
from urllib.parse import parse_qsl, quote

from anyio import Lock, to_thread
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response

from harken.errors import HarkenError, NotFound, Unavailable, UserError
from harken.hosts.registry import connectable
from harken.inbox.questions import ago
from harken.inbox.views import MailOverview
from harken.model import Message, timestamp
from harken.sources.source import Speakers
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.guard import MAX_BODY
from harken.surfaces.web.page.links import mailbox_href, message_href, message_rules_href
from harken.surfaces.web.page.markdown import body_of, excerpt, rendered, visible
from harken.surfaces.web.page.messages import author_name, ledger_of, push_words, sender_of, speaker_of, speakers
from harken.surfaces.web.page.sidebar import SidebarSection, sections_of
from harken.surfaces.web.shell import StaticFile, static_files
from harken.verbs.needs import needs_of

OK = 200


class PageRenderer:
    """Renders pages and parts of them. Each set of routes may have its own: it only reads."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self.files: Mapping[str, StaticFile] = static_files()
        self._speakers: Mapping[str, Speakers] = {}
        self._templates = Environment(
            loader=PackageLoader("harken.surfaces.web.page", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.globals.update(
            static=lambda name: self.files[name].url,
            most_chars=context.inbox.max_said_chars,
            has_static=lambda name: name in self.files,
            rendered=rendered,
            body_of=body_of,
            excerpt=excerpt,
            ledger_of=ledger_of,
            sender_of=sender_of,
            speaker_of=lambda message: speaker_of(message, self._speakers),
            push_words=push_words,
            can=context.can,
            is_allowed_since=self._is_allowed_since,
            waited=self._waited,
            first_agent=lambda: connectable()[0],
            mailbox_href=mailbox_href,
            message_href=message_href,
            message_rules_href=message_rules_href,
        )
        self._templates.filters.update(
            when=when, path=lambda value: quote(str(value), safe=":@-._~"), author=author_name, visible=visible
        )

    def part(
        self, template: str, *, status: int = OK, headers: Mapping[str, str] | None = None, **context: object
    ) -> Response:
        """Return one template by itself, to be put into a page that is open."""
        return self._made(template, status, headers, context)

    async def page(
        self,
        template: str,
        *,
        here: str,
        title: str,
        status: int = OK,
        after: int | None = None,
        overview: MailOverview | None = None,
        **context: object,
    ) -> Response:
        """Return a whole page: a template that extends `base.html.j2`.

        `here` is the address of the sidebar's line to mark. `after` is the last event that the content contains: take
        `ticker.newest` before reading anything, and the stream repeats what came meanwhile.
        """
        since = self._context.ticker.newest if after is None else after
        summary, waiting = await self._context.automation.summary(), await self._context.questions.waiting()
        needs = len(await needs_of(self._context.call_context()))
        sections = self._reachable(sections_of(overview or await self._context.views.overview(), here, summary, needs))
        frame = {
            "here": here,
            "title": title,
            "after": since,
            "sections": sections,
            "summary": summary,
            "waiting": waiting,
        }
        return await to_thread.run_sync(self._made, template, status, None, {**frame, **context})

    async def fragment(
        self, template: str, *, status: int = OK, headers: Mapping[str, str] | None = None, **context: object
    ) -> Response:
        """Return a template like `part`, made in a thread: hostile texts take long to render."""
        return await to_thread.run_sync(self._made, template, status, headers, context)

    async def sidebar(self, here: str) -> Response:
        """Return the list of places."""
        overview, summary = await self._context.views.overview(), await self._context.automation.summary()
        needs = len(await needs_of(self._context.call_context()))
        sections = self._reachable(sections_of(overview, here, summary, needs))
        return self.part("sidebar.html.j2", sections=sections, here=here)

    async def problem(self, request: Request, error: HarkenError) -> Response:
        """Return what went wrong: a line for a part, a page for a page."""
        headers = {"Retry-After": str(int(error.retry_after))} if isinstance(error, Unavailable) else None
        if is_part(request) or isinstance(error, Unavailable):
            return self.part("problem.html.j2", status=error.http_status, headers=headers, error=error)
        title = "Not found" if isinstance(error, NotFound) else "That did not work"
        return await self.page("problem_page.html.j2", here="", title=title, status=error.http_status, error=error)

    def _reachable(self, sections: Sequence[SidebarSection]) -> Sequence[SidebarSection]:
        """Return the places that the reader may look at; what to do first is for a terminal, so only for the person."""
        can = self._context.can
        shown = [replace(each, lines=[line for line in each.lines if can(line.href)]) for each in sections]
        return [
            each if can(each.href) else replace(each, href="", empty="", command="")
            for each in shown
            if each.lines or can(each.href)
        ]

    def _is_allowed_since(self, message: Message) -> bool:
        return self._context.call_context().access.is_allowed_since(message)

    def _waited(self, message: Message) -> str:
        """Return for how long a message has waited; empty for less than a minute."""
        now = self._context.clock.now()
        return ago(message.received_at, now) if now - message.received_at >= timedelta(minutes=1) else ""

    def _made(
        self, template: str, status: int, headers: Mapping[str, str] | None, context: Mapping[str, object]
    ) -> Response:
        self._speakers = speakers(self._context.call_context().sources())
        return HTMLResponse(self._templates.get_template(template).render(context), status, headers=headers)


def is_part(request: Request) -> bool:
    """Whether a script of the page asks, for something to put into it."""
    return request.headers.get("hx-request") == "true"


def when(moment: datetime, style: str = "time") -> Markup:
    """Return a time as an element that the page's script puts into the person's time zone; without it UTC is shown."""
    in_utc = moment.astimezone(UTC)
    shown = in_utc.strftime(
        {"time": "%H:%M UTC", "short": "%H:%M UTC", "day": "%A, %d %B %Y", "full": "%Y-%m-%d %H:%M:%S UTC"}[style]
    )
    return Markup('<time datetime="{}" data-style="{}">{}</time>').format(timestamp(moment), style, shown)


CLIENT_GONE: Final = 499  # nobody reads it


Handler = Callable[[Request], Awaitable[Response]]


def answered(pages: PageRenderer, handler: Handler) -> Handler:
    """Return a handler that answers errors, too."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except HarkenError as exc:
            return await pages.problem(request, exc)
        except ClientDisconnect:
            return Response(status_code=CLIENT_GONE)

    return answer


SEE_OTHER: Final = 303


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionNote:
    """What came of something that a person did; several lines for several faults."""

    lines: Sequence[str]
    hint: str = ""
    is_problem: bool = False

    @classmethod
    def of(cls, error: HarkenError) -> ActionNote:
        """Return what an error says."""
        return cls(lines=error.message.split("\n"), hint=error.hint, is_problem=True)


MAX_FIELDS: Final = 64
REMEMBERED_FORMS: Final = 64
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


Made = TypeVar("Made")


class RememberedForms(Generic[Made]):
    """What came of the last forms, by the key that each carries: one that is sent twice is done once."""

    def __init__(self) -> None:
        self._doing = Lock()
        self._made: OrderedDict[str, Made] = OrderedDict()

    async def once(self, key: str, make: Callable[[], Awaitable[Made]]) -> Made:
        """Return what came of a form; without a key it is done each time."""
        async with self._doing:
            found = self._made.get(key)
            made = found if found is not None else await make()
            if key:
                self._made[key] = made
            while len(self._made) > REMEMBERED_FORMS:
                self._made.popitem(last=False)
            return made
