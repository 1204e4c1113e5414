"""The sources in the page: how they are doing, and what you do with them: add, try, sign in, remove, pair a sender.

A source that does not listen says why, and what was left out or may be missing is counted: silence must not look like
peace. The form of a kind is made of the options that it declares, so that a kind of another package has one too. What
is typed as a secret is handed on and shown nowhere. The use cases are those of `harken source`, and so are refusals.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.errors import HarkenError, NotFound, UserError
from harken.model import Attention, Trust, fresh_id
from harken.sources.check import CheckReport
from harken.sources.registry import kinds
from harken.sources.settings import SourceOption
from harken.sources.setup import AddedSource, RemovedSource, SourceSetup
from harken.sources.source import SourceReport, SourceState
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.page.links import channel_href
from harken.surfaces.web.page.rendering import (
    OK,
    ActionNote,
    Handler,
    PageRenderer,
    RememberedForms,
    answered,
    form_of,
    once_key,
)

MAX_CHANNELS: Final = 20

_EXPLAINED: Final[Mapping[SourceState, str]] = MappingProxyType(
    {
        SourceState.CONNECTING: "being connected for the first time",
        SourceState.LISTENING: "what it announces arrives",
        SourceState.SILENT: "connected, but it cannot push: nothing will arrive",
        SourceState.RETRYING: "not connected now, and tried again",
        SourceState.NEEDS_PERSON: "nothing will arrive before somebody acts",
        SourceState.STOPPED: "not listened to",
        SourceState.ELSEWHERE: "another machine reads it",
    }
)
# Which of the signs for sessions fits: there are no more signs than people can tell apart.
_DOTS: Final[Mapping[SourceState, str]] = MappingProxyType(
    {
        SourceState.CONNECTING: "queued",
        SourceState.LISTENING: "idle",
        SourceState.SILENT: "ended",
        SourceState.RETRYING: "busy",
        SourceState.NEEDS_PERSON: "ended",
        SourceState.STOPPED: "done",
        SourceState.ELSEWHERE: "idle",
    }
)
_TRUSTED: Final[Mapping[Trust, str]] = MappingProxyType(
    {
        Trust.OWNER: "its word counts as yours",
        Trust.KNOWN: "its messages are requests",
        Trust.UNKNOWN: "its messages are data",
    }
)
_PUSHED: Final[Mapping[Attention, str]] = MappingProxyType(
    {
        Attention.WAKE: "wake idle agents",
        Attention.BOUNDARY: "come between tool calls",
        Attention.PROMPT: "go with prompts",
        Attention.COUNT: "are only counted",
    }
)


@dataclass(frozen=True, slots=True)
class ChannelCount:
    """How many messages of a channel there were, and where they are; no place for those that were left out."""

    channel: str
    count: int
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCard:
    """A source as the page shows it. `counts` are since the daemon started, the busiest channels first."""

    name: str
    kind: str
    address: str
    server: str
    state: str
    dot: str
    explanation: str
    reason: str
    pace: str
    since: datetime | None
    next_try: datetime | None
    last_message_at: datetime | None
    last_poll: datetime | None
    next_poll: datetime | None
    throttled_until: datetime | None
    reconnects: int
    gaps: int
    too_long: int
    known: int
    counts: Sequence[ChannelCount]
    more: int  # channels that are not shown
    dropped: Sequence[ChannelCount]
    policy: str

    @property
    def dropped_total(self) -> int:
        """How many messages the allow-list left out."""
        return sum(each.count for each in self.dropped)


def cards(reports: Sequence[SourceReport]) -> Sequence[SourceCard]:
    """Return the sources in the order of the configuration."""
    return [_card(report) for report in reports]


def summary(cards: Sequence[SourceCard]) -> str:
    """Say how many sources there are, by how they are doing."""
    found = Counter(card.state for card in cards)
    return ", ".join(f"{found[state.words]} {state.words}" for state in SourceState if found[state.words])


def _card(report: SourceReport) -> SourceCard:
    health = report.health
    counts = [ChannelCount(channel, n, channel_href(report.name, channel)) for channel, n in _busiest(health.counts)]
    return SourceCard(
        name=report.name,
        kind=report.kind,
        address=report.address,
        server=health.server,
        state=health.state.words,
        dot=_DOTS[health.state],
        explanation=_EXPLAINED[health.state],
        reason=health.reason,
        pace=health.pace if health.state is SourceState.LISTENING else "",
        since=health.since,
        next_try=health.next_try,
        last_message_at=health.last_message_at,
        last_poll=health.last_poll,
        next_poll=health.next_poll,
        throttled_until=health.throttled_until,
        reconnects=health.reconnects,
        gaps=health.gaps,
        too_long=health.too_long,
        known=health.known,
        counts=counts,
        more=max(0, len(health.counts) - MAX_CHANNELS),
        dropped=[ChannelCount(channel, n) for channel, n in _busiest(health.dropped)],
        policy=f"{_TRUSTED[report.trust]} and {_PUSHED[report.attention]}",
    )


def _busiest(counts: Mapping[str, int]) -> Sequence[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_CHANNELS]


HERE: Final = "/sources"
TEST_SECONDS: Final = 5.0
REMEMBERED_REMOVALS: Final = 16
MAX_SHORT: Final = 8  # a kind with more options shows first what it needs
ARGUMENTS: Final = "args"
_SHARED: Final = (
    SourceOption(flag="--trust", key="trust", help="How far its senders are trusted.", choices=("known", "unknown")),
    SourceOption(
        flag="--attention",
        key="attention",
        help="How intrusive its messages may be.",
        choices=("wake", "boundary", "prompt", "count"),
    ),
)
_ARGS: Final = SourceOption(flag="--args", key=ARGUMENTS, help="The arguments of the program.", is_many=True)
_OPTION: Final = re.compile(r"Missing option '(--[a-z-]+)'")
_KEPT_HELP: Final = "It is kept in a file that only you can read. Or say where it is kept: env:NAME, file:PATH."


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field of a form, made of an option. What is secret has no value: it is not shown again."""

    name: str
    label: str
    help: str
    look: str  # text, secret, number, check, choice, lines
    choices: Sequence[str] = ()
    placeholder: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceForm:
    """The form of a kind: what it needs, and what may be said besides."""

    first: Sequence[FormField]
    more: Sequence[FormField]


def source_form(setup: SourceSetup, sent: Mapping[str, str]) -> SourceForm:
    """Return the form of a kind, with what was filled in before."""
    own = (*setup.options, *((_ARGS,) if setup.takes_arguments else ()))
    is_short = len(own) <= MAX_SHORT
    first = [each for each in own if is_short or each.is_secret or each.key in setup.needed]
    if not any(each.key in setup.needed for each in own) and not is_short:
        first = list(dict.fromkeys((*own[: MAX_SHORT // 2], *first)))
    return SourceForm(
        first=[_field(each, sent) for each in first],
        more=[_field(each, sent) for each in (*own, *_SHARED) if each not in first],
    )


def values_of(setup: SourceSetup, sent: Mapping[str, str]) -> tuple[dict[str, object], dict[str, str]]:
    """Return what a form says by the keys of its kind, and apart from it what is secret; raises `UserError`."""
    values: dict[str, object] = {}
    secrets: dict[str, str] = {}
    for option in (*setup.options, *((_ARGS,) if setup.takes_arguments else ()), *_SHARED):
        text = sent.get(_name(option), "").replace("\r\n", "\n").strip()
        if text and option.is_secret:
            secrets[option.key] = text
        elif text:
            values[option.key] = _value(option, text)
    return values, secrets


def _value(option: SourceOption, text: str) -> object:
    if option.is_many:
        return tuple(line.strip() for line in text.split("\n") if line.strip())
    if option.value is bool:
        return True
    if option.choices and text not in option.choices:
        raise UserError(f"{_label(option)}: {text[:40]!r} is not possible.", f"Use {', '.join(option.choices)}.")
    try:
        return option.value(text)
    except ValueError:
        raise UserError(f"{_label(option)}: {text[:40]!r} is not a number.", "Use digits.") from None


def _field(option: SourceOption, sent: Mapping[str, str]) -> FormField:
    if option.is_secret:
        look = "secret"
    elif option.value is bool:
        look = "check"
    elif option.choices:
        look = "choice"
    elif option.is_many:
        look = "lines"
    else:
        look = "text" if option.value is str else "number"
    return FormField(
        name=_name(option),
        label=_label(option),
        help=_KEPT_HELP if option.is_secret else option.help,
        look=look,
        choices=option.choices,
        placeholder="" if option.is_secret or option.metavar.isalpha() else option.metavar,
        value="" if option.is_secret else sent.get(_name(option), ""),
    )


def _name(option: SourceOption) -> str:
    return f"set-{option.key}"


def _label(option: SourceOption) -> str:
    return _words(option.flag)


def _words(flag: str) -> str:
    return flag.strip("-").replace("-", " ").capitalize()


def _said_of(error: HarkenError) -> ActionNote:
    """Return what an error says; an option of the command line is a field here."""
    note = ActionNote.of(error)
    said = [_OPTION.sub(lambda found: f"{_words(found[1])} is missing", line) for line in note.lines]
    return ActionNote(lines=said, hint=note.hint, is_problem=True)


def tried_words(report: CheckReport) -> Sequence[str]:
    """Say how trying a source went."""
    came = sum(report.counts.values())
    heard = f"{came} {'message' if came == 1 else 'messages'} came meanwhile." if came else "Nothing came meanwhile."
    lines = [f"Tried: {report.state.words}.", report.reason, report.server]
    lines.append(report.found if report.found is not None else heard if report.state is SourceState.LISTENING else "")
    return [line for line in lines if line]


class SourcePages:
    """The sources, one of them, and the forms that change them."""

    def __init__(self, context: WebContext, pages: PageRenderer) -> None:
        self._context = context
        self._pages = pages
        self._forms = RememberedForms[AddedSource]()
        self._removed: OrderedDict[str, RemovedSource] = OrderedDict()

    async def show_all(self, _request: Request) -> Response:
        """Show how each source is doing, and what came through it."""
        return await self._list()

    async def _list(self, note: ActionNote | None = None, undo: str = "") -> Response:
        after = self._context.ticker.newest
        found = cards(self._context.call_context().sources())
        return await self._pages.page(
            "panels/sources.html.j2",
            here=HERE,
            title="Sources",
            after=after,
            now=self._context.clock.now(),
            note=summary(found),
            cards=found,
            kinds=list(kinds()),
            told=note,
            undo=undo,
        )

    async def ask(self, request: Request) -> Response:
        """Answer with the kinds, or with the form of one."""
        kind = request.path_params.get("kind", "")
        if kind:
            return await self._form(kind, {})
        return await self._pages.page(
            "panels/source_kinds.html.j2", here=HERE, title="Add a source", kinds=list(kinds()), faults=kinds().faults
        )

    async def add(self, request: Request) -> Response:
        """Add a source, and say what was written and what is left to do."""
        sent = await form_of(request)
        kind, name = sent.get("kind", ""), sent.get("name", "").strip()
        setup = await to_thread.run_sync(self._context.source_admin.setup_of, kind)

        async def make() -> AddedSource:
            values, secrets = values_of(setup, sent)
            return await to_thread.run_sync(self._context.source_admin.add, kind, name, values, secrets)

        try:
            added = await self._forms.once(once_key(sent.get("key", ""), repr(sorted(sent.items()))), make)
        except HarkenError as exc:
            return await self._form(kind, sent, _said_of(exc), exc.http_status)
        return await self._pages.page("panels/source_added.html.j2", here=HERE, title=added.name, added=added)

    async def _form(
        self, kind: str, sent: Mapping[str, str], note: ActionNote | None = None, status: int = OK
    ) -> Response:
        setup = await to_thread.run_sync(self._context.source_admin.setup_of, kind)
        return await self._pages.page(
            "panels/source_new.html.j2",
            here=HERE,
            title=f"Add: {kinds().by_name[kind].title}",
            status=status,
            told=note,
            kind=kinds().by_name[kind],
            usual=setup.default_name,
            name=sent.get("name", ""),
            form=source_form(setup, sent),
            key=fresh_id("", 20),
        )

    async def show(self, request: Request) -> Response:
        """Show one source: what is written of it, and what can be done with it."""
        return await self._one(request.path_params["name"])

    async def _one(self, name: str, note: ActionNote | None = None, shell_line: str = "") -> Response:
        admin = self._context.source_admin
        written = await to_thread.run_sync(admin.shown, name)
        reports = [each for each in self._context.call_context().sources() if each.name == name]
        return await self._pages.page(
            "panels/source.html.j2",
            here=HERE,
            title=name,
            name=name,
            told=note,
            written=written,
            cards=cards(reports),
            seconds=TEST_SECONDS,
            shell_line=shell_line,
            can_sign_in=await to_thread.run_sync(admin.can_sign_in, name),
            signing=self._context.source_sign_ins.progress(name),
        )

    async def test(self, request: Request) -> Response:
        """Try a source, and say how that went."""
        name = (await form_of(request)).get("name", "")
        report = await to_thread.run_sync(self._context.source_admin.check, name, TEST_SECONDS)
        is_problem = report.state is not SourceState.LISTENING
        note = ActionNote(lines=tried_words(report), is_problem=is_problem)
        return await self._one(name, note, report.shell_line or "")

    async def remove(self, request: Request) -> Response:
        """Take a source out; for a while it can be put back."""
        name = (await form_of(request)).get("name", "")
        removed = await to_thread.run_sync(self._context.source_admin.remove, name)
        undo = fresh_id("", 20)
        self._removed[undo] = removed
        while len(self._removed) > REMEMBERED_REMOVALS:
            self._removed.popitem(last=False)
        said = f"{name} is taken out of config.toml, and listened to no longer. Its messages stay."
        return await self._list(ActionNote(lines=[said]), undo)

    async def put_back(self, request: Request) -> Response:
        """Put back what was taken out."""
        undo = (await form_of(request)).get("undo", "")
        removed = self._removed.get(undo)
        if removed is None:
            raise NotFound("It can no longer be put back.", "Add it again.")
        await to_thread.run_sync(self._context.source_admin.put_back, removed)
        self._removed.pop(undo, None)  # only now: what cannot be put back yet is not given up, with its secrets
        return await self._list(ActionNote(lines=[f"{removed.name} is there again."]))

    async def sign(self, request: Request) -> Response:
        """Begin to sign a person in, give that up, or sign them out."""
        sent = await form_of(request)
        name, book = sent.get("name", ""), self._context.source_sign_ins
        if not await to_thread.run_sync(self._context.source_admin.can_sign_in, name):
            raise UserError(f"{name[:80]} has no sign-in.", "Its secrets are named in config.toml.")
        if sent.get("act") == "out":
            was_in = await book.sign_out(name)
            return await self._one(name, ActionNote(lines=["Signed out." if was_in else "Nobody was signed in."]))
        act = book.give_up if sent.get("act") == "stop" else book.begin
        act(name)
        return await self._one(name)

    async def pair(self, request: Request) -> Response:
        """Make a code that admits the one sender who sends it, or say what that would do."""
        code, until = "", None
        if request.method == "POST":
            context = self._context.call_context()
            code, until = context.access.pair(context.caller)
        return await self._pages.page("panels/pair.html.j2", here=HERE, title="Pair a sender", code=code, until=until)


def source_routes(context: WebContext) -> list[Route]:
    """Return the routes of sources."""
    pages = PageRenderer(context)
    each = SourcePages(context, pages)
    shown: tuple[tuple[str, Handler], ...] = (
        (HERE, each.show_all),
        ("/sources/new", each.ask),
        ("/sources/new/{kind}", each.ask),
        ("/source/{name}", each.show),
        ("/pair", each.pair),
    )
    done: tuple[tuple[str, Handler], ...] = (
        ("/do/source", each.add),
        ("/do/source-test", each.test),
        ("/do/source-remove", each.remove),
        ("/do/source-back", each.put_back),
        ("/do/source-sign-in", each.sign),
        ("/do/pair", each.pair),
    )
    return [
        *(Route(path, answered(pages, handler), methods=["GET"]) for path, handler in shown),
        *(Route(path, answered(pages, handler), methods=["POST"]) for path, handler in done),
    ]
