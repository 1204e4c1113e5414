"""The pages of rules, actions and runs, and what you do there: answer, pause, resume, reload, start, end.

Each handler asks the use cases, lets `rules.py` or the pure functions below say it in the words of the page, and
renders. The actions are adapters over `Automation`, which refuses every caller but you. An answer that came too late is
a sentence on the page where it was asked, not an error. What a run printed is hostile: it is text of a model that read
text from outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from harken.automation import (
    DEFAULT_TOOLS,
    OWN_FOLDER,
    Action,
    ActionState,
    FileChange,
    Outcome,
    OutputPart,
    RuleVerdict,
    Run,
    RunState,
)
from harken.errors import HarkenError, NotFound, UserError
from harken.hosts.registry import hosts
from harken.inbox.automation import ActionDetails, RuleReplay, RunCard, RunRequest
from harken.inbox.results import ReplyRow
from harken.model import RUN, Trust, fresh_id
from harken.rules.prompt import DEFAULT_PROMPT
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.page import rules
from harken.surfaces.web.page.links import message_rules_href
from harken.surfaces.web.page.markdown import body_of, rendered, visible
from harken.surfaces.web.page.pulse import duration
from harken.surfaces.web.page.rendering import (
    OK,
    SEE_OTHER,
    ActionNote,
    Handler,
    PageRenderer,
    answered,
    form_of,
    is_part,
    number,
    once_key,
)
from harken.surfaces.web.page.rules import BY_HAND, MessageGlance, agent_title, answered_words, glance

MAX_RUNS: Final = 50
MAX_LATELY: Final = 12
MAX_SEARCHED: Final = 200
WAIT_SECONDS: Final = 20.0  # below the patience of the page's script


@dataclass(frozen=True, slots=True, kw_only=True)
class RunForm:
    """What a person has filled in for a run by hand."""

    rule: str = ""
    agent: str = ""
    workdir: str = ""


class AutomationPages:
    """What a person looks at."""

    def __init__(self, context: WebContext, pages: PageRenderer) -> None:
        self._context = context
        self._pages = pages

    async def rules(self, _request: Request) -> Response:
        """Answer with the rules, and with what waits for an answer."""
        return await self.rules_page()

    async def rules_page(self, note: ActionNote | None = None, status: int = OK) -> Response:
        """Return the page of the rules, with what came of something that was done."""
        after, now = self._context.ticker.newest, self._context.clock.now()
        overview = await self._context.automation.overview()
        if note and "\n".join(note.lines) == overview.problem:
            note = ActionNote(lines=["Not read: the file has faults. The rules stay as they were."], is_problem=True)
        waiting = await self._context.automation.actions([ActionState.WAITING], limit=overview.most_waiting)
        lately = [
            told
            for told in await self._context.automation.actions(limit=MAX_LATELY * 2)
            if told.action.state is not ActionState.WAITING
        ]
        return await self._pages.page(
            "panels/rules.html.j2",
            here="/rules",
            title="Rules",
            after=after,
            status=status,
            now=now,
            told=note,
            standing=overview,
            note=rules.counted(overview),
            lines=rules.rule_lines(overview),
            warnings=rules.file_warnings(overview),
            # The one whose time is over first comes first.
            waiting=[rules.action_card(told, now) for told in reversed(waiting)],
            lately=[rules.action_card(told, now) for told in lately[:MAX_LATELY]],
        )

    async def runs(self, _request: Request) -> Response:
        """Answer with the newest runs."""
        after = self._context.ticker.newest
        lines = [run_line(card) for card in await self._context.automation.runs(limit=MAX_RUNS)]
        return await self._pages.page(
            "panels/runs.html.j2",
            here="/runs",
            title="Runs",
            after=after,
            now=self._context.clock.now(),
            note=counted(lines),
            lines=lines,
            most=MAX_RUNS,
        )

    async def run(self, request: Request) -> Response:
        """Answer with a run, what it prints and what came of it."""
        return await self.run_page(request.path_params["run"], since=number(request.query_params.get("after")))

    async def run_page(self, ref: str, *, since: int = 0, note: ActionNote | None = None, status: int = OK) -> Response:
        """Return the page of a run, with what came of something that was done."""
        after = self._context.ticker.newest
        card, part = await self._context.automation.output(ref, since, 0.0)
        line = run_line(card)
        return await self._pages.page(
            "panels/run.html.j2",
            here="/runs",
            title=f"Run {line.id}",
            after=after,
            status=status,
            now=self._context.clock.now(),
            told=note,
            line=line,
            steps=course_steps(card, await self._course(card)),
            answer=rendered(line.answer),
            changes=changes_view(card),
            output=output_views(part),
            following=part.following,
            is_over=_is_over(card, part),
        )

    async def output(self, request: Request) -> Response:
        """Answer with what a run told after a line, as soon as there is something."""
        after = number(request.query_params.get("after"))
        card, part = await self._context.automation.output(request.path_params["run"], after, WAIT_SECONDS)
        headers = {"Harken-Next": str(part.following)}
        headers |= {"Harken-Over": "1"} if _is_over(card, part) else {}
        return await self._pages.fragment("panels/output.html.j2", headers=headers, output=output_views(part))

    async def message(self, request: Request) -> Response:
        """Answer with what rules made of a message, and would make of it now."""
        after, now = self._context.ticker.newest, self._context.clock.now()
        judged = await self._context.automation.explain(request.path_params["ref"])
        message = judged.message
        found = await self._context.automation.actions(message=message.id)
        return await self._pages.page(
            "panels/message_rules.html.j2",
            here="/rules",
            title="What rules made of it",
            after=after,
            now=now,
            message=message,
            body=body_of(message.text),
            shown=rules.glance(message),
            traces=rules.traces(judged.decided, found, now),
            verdicts=rules.traces(judged.verdicts, (), now),
            runs=[run_line(card) for card in await self._context.automation.runs(message=message.id)],
        )

    async def message_rules_part(self, request: Request) -> Response:
        """Answer with what rules made of a message, in a few lines."""
        ref, now = request.path_params["ref"], self._context.clock.now()
        judged = await self._context.automation.explain(ref)
        found = await self._context.automation.actions(message=ref)
        traces = rules.traces(judged.decided, found, now)
        decision = await self._context.call_context().access.decision(judged.message)
        is_denied = decision is Trust.UNKNOWN
        return self._pages.part(
            "message_rules_part.html.j2", message=judged.message, traces=traces, is_denied=is_denied
        )

    async def run_now(self, request: Request) -> Response:
        """Answer with what would run if a person sent an agent to a message."""
        return await self.run_now_page(
            request.path_params["ref"], RunForm(rule=request.query_params.get("rule", "")), None
        )

    async def run_now_page(self, ref: str, wanted: RunForm, note: ActionNote | None, status: int = OK) -> Response:
        """Return the question before a run by hand, with what was filled in and why that did not work."""
        item = await self._context.views.item(ref)
        lines = [line for line in rules.rule_lines(await self._context.automation.overview()) if line.is_run]
        chosen = next((line for line in lines if line.name == wanted.rule), None)
        if wanted.rule and chosen is None:
            raise NotFound("There is no such rule, or it does not run an agent.", "Choose another one.")
        return await self._pages.page(
            "panels/run_now.html.j2",
            here="/runs",
            title="Run an agent on this",
            status=status,
            told=note,
            message=item.message,
            shown=rules.glance(item.message),
            wanted=wanted,
            chosen=chosen,
            rules=lines,
            hosts={name: host.title for name, host in hosts().items()},
            any_agent=rules.ANY_AGENT,
            own_folder=OWN_FOLDER,
            tools=chosen.tools if chosen else DEFAULT_TOOLS,
            prompt=chosen.prompt if chosen else DEFAULT_PROMPT,
            key=fresh_id("", 20),
        )

    def done(self, said: str) -> Response:
        """Return the line that says what was done."""
        return self._pages.part("done.html.j2", said=said, action="", back={})

    async def asks(self, _request: Request) -> Response:
        """Answer with how much waits for the person's answer."""
        summary, waiting = await self._context.automation.summary(), await self._context.questions.waiting()
        return self._pages.part("asks.html.j2", summary=summary, waiting=waiting)

    async def _course(self, card: RunCard) -> RunCourse:
        """Return what is stored of the way of a run; a message may be gone, and what was decided with it."""
        run = card.run
        if card.message is None:
            told = await self._context.automation.actions(limit=MAX_SEARCHED)
            return RunCourse(action=_action(told, run.action))
        judged = await self._context.automation.explain(run.message)
        item = await self._context.views.item(run.message)
        return RunCourse(
            verdict=next((verdict for verdict in judged.decided if verdict.rule == run.rule), None),
            action=_action(await self._context.automation.actions(message=run.message, limit=MAX_SEARCHED), run.action),
            reply=reply_of(run, item.replies),
        )


def _action(found: Sequence[ActionDetails], name: str) -> Action | None:
    return next((told.action for told in found if told.action.id == name), None)


def _is_over(card: RunCard, part: OutputPart) -> bool:
    """Whether nothing more comes: the last lines may come after the end was seen."""
    return card.run.state is not RunState.RUNNING and not part.lines


YES: Final = "yes"
NO: Final = "no"
RULES: Final = "/rules"


MAX_SHOWN_OF_TRY: Final = 10
TRIED: Final = timedelta(days=30)


class RulePages:
    """A rule that is made from a message: filled in, tried on stored mail, and only then put in force."""

    def __init__(self, context: WebContext, pages: PageRenderer) -> None:
        self._context = context
        self._pages = pages

    async def look(self, request: Request) -> Response:
        """Answer with the form, filled in from a message."""
        message = (await self._context.views.item(request.path_params["ref"])).message
        return await self._page(message.id, rules.rule_form(message))

    async def submit(self, request: Request) -> Response:
        """Try the rule, or put it in force."""
        form = await form_of(request)
        ref, wanted = form.get("message", ""), rules.RuleForm.of(form)
        automation, caller = self._context.automation, self._context.call_context().caller
        try:
            if form.get("act") == "add":
                made = await automation.add_rule(caller, wanted.document)
                return RedirectResponse(f"/rules#rule-{quote(made.name)}", SEE_OTHER)
            tried = await automation.try_rule(wanted.document, TRIED)
        except HarkenError as exc:
            return await self._page(ref, wanted, note=ActionNote.of(exc), status=_status(request, exc))
        return await self._page(ref, wanted, tried=tried)

    async def remove(self, request: Request) -> Response:
        """Take a rule out of the file and out of force."""
        name = (await form_of(request)).get("rule", "")
        await self._context.automation.remove_rule(self._context.call_context().caller, name)
        return RedirectResponse(RULES, SEE_OTHER)

    async def _page(
        self,
        ref: str,
        wanted: rules.RuleForm,
        *,
        tried: RuleReplay | None = None,
        note: ActionNote | None = None,
        status: int = OK,
    ) -> Response:
        message = (await self._context.views.item(ref)).message
        fired = (
            [each for each in tried.judged if any(v.outcome is Outcome.FIRED for v in each.verdicts)] if tried else []
        )
        return await self._pages.page(
            "panels/rule_new.html.j2",
            here="/rules",
            title="A rule from a message",
            status=status,
            told=note,
            message=message,
            shown=rules.glance(message),
            wanted=wanted,
            hosts={name: host.title for name, host in hosts().items()},
            tried=tried,
            fired=[rules.glance(each.message) for each in reversed(fired[-MAX_SHOWN_OF_TRY:])],
            days=TRIED.days,
        )


class AutomationActions:
    """What a person does."""

    def __init__(self, context: WebContext, looks: AutomationPages) -> None:
        self._context = context
        self._looks = looks

    async def answer(self, request: Request) -> Response:
        """Accept or refuse what an action asks."""
        form = await form_of(request)
        said = form.get("answer", "")
        if said not in (YES, NO):
            raise UserError("Yes or no?", "Load the page again.")
        try:
            told = await self._context.automation.answer(
                self._context.call_context("confirm").caller, form.get("action", ""), is_yes=said == YES
            )
        except HarkenError as exc:
            if form.get("is_brief"):
                raise
            return await self._looks.rules_page(ActionNote.of(exc), _status(request, exc))
        if form.get("is_brief"):
            return self._looks.done("Accepted." if said == YES else "Refused.")
        return await self._rules(request, answered_words(told.action))

    async def pause(self, request: Request) -> Response:
        """Let no rule fire until that is ended."""
        await self._context.automation.pause(self._context.call_context().caller, is_on=True)
        return await self._rules(request, "Paused. Messages still arrive, but no rule fires.")

    async def resume(self, request: Request) -> Response:
        """Let rules fire again."""
        await self._context.automation.pause(self._context.call_context().caller, is_on=False)
        return await self._rules(request, "Resumed. Rules fire for what comes from now on.")

    async def reload(self, request: Request) -> Response:
        """Put the file of rules in force, or say everything that is wrong with it."""
        try:
            found = await self._context.automation.reload(self._context.call_context().caller)
        except HarkenError as exc:
            return await self._looks.rules_page(ActionNote.of(exc), _status(request, exc))
        count = len(found.cards)
        return await self._rules(request, f"Read again: {count} {'rule is' if count == 1 else 'rules are'} in force.")

    async def abort(self, request: Request) -> Response:
        """End a run."""
        form = await form_of(request)
        name = form.get("run", "")
        try:
            card = await self._context.automation.abort(self._context.call_context().caller, name)
        except HarkenError as exc:
            return await self._looks.run_page(name, note=ActionNote.of(exc), status=_status(request, exc))
        if is_part(request):
            return await self._looks.run_page(card.run.id, note=ActionNote(lines=["Aborted."]))
        return RedirectResponse(run_href(card.run.id), SEE_OTHER)

    async def run(self, request: Request) -> Response:
        """Send an agent to a message."""
        form = await form_of(request)
        ref = form.get("message", "")
        wanted = RunForm(
            rule=form.get("rule", ""), agent=form.get("agent", ""), workdir=form.get("workdir", "").strip()
        )
        try:
            told = await self._context.automation.run_now(
                self._context.call_context().caller,
                ref,
                RunRequest(rule=wanted.rule, agent=wanted.agent, workdir=wanted.workdir),
                key=once_key(form.get("key", ""), repr((ref, wanted))),
            )
        except HarkenError as exc:
            return await self._looks.run_now_page(ref, wanted, ActionNote.of(exc), exc.http_status)
        return RedirectResponse(message_rules_href(told.action.message), SEE_OTHER)

    async def _rules(self, request: Request, said: str) -> Response:
        """Answer what was done: a script gets the page with a sentence, a browser goes there."""
        if is_part(request):
            return await self._looks.rules_page(ActionNote(lines=[said]))
        return RedirectResponse(RULES, SEE_OTHER)


def _status(request: Request, error: HarkenError) -> int:
    # The page's script shows nothing of an answer that is an error.
    return OK if is_part(request) else error.http_status


def automation_routes(context: WebContext) -> list[Route]:
    """Return the routes of rules, actions and runs."""
    pages = PageRenderer(context)
    look = AutomationPages(context, pages)
    do = AutomationActions(context, look)
    made = RulePages(context, pages)
    shown: tuple[tuple[str, Handler], ...] = (
        ("/rules", look.rules),
        ("/runs", look.runs),
        ("/runs/{run}", look.run),
        ("/message/{ref}/rules", look.message),
        ("/message/{ref}/run", look.run_now),
        ("/message/{ref}/rule", made.look),
        ("/part/output/{run}", look.output),
        ("/part/message-rules/{ref}", look.message_rules_part),
        ("/part/asks", look.asks),
    )
    done: tuple[tuple[str, Handler], ...] = (
        ("/do/answer", do.answer),
        ("/do/pause", do.pause),
        ("/do/resume", do.resume),
        ("/do/reload", do.reload),
        ("/do/abort", do.abort),
        ("/do/run", do.run),
        ("/do/rule", made.submit),
        ("/do/rule-remove", made.remove),
    )
    return [
        *(Route(path, answered(pages, handler), methods=["GET"]) for path, handler in shown),
        *(Route(path, answered(pages, handler), methods=["POST"]) for path, handler in done),
    ]


_EXPLAINED: Final[Mapping[RunState, str]] = MappingProxyType(
    {
        RunState.RUNNING: "the agent is at work",
        RunState.DONE: "it came to its end",
        RunState.FAILED: "it ended with an error",
        RunState.ABORTED: "somebody ended it",
        RunState.TIMED_OUT: "its time was over",
        RunState.INTERRUPTED: "the daemon ended meanwhile; it is not started again by itself",
    }
)
_DOTS: Final[Mapping[RunState, str]] = MappingProxyType(
    {RunState.RUNNING: "busy", RunState.DONE: "idle"}  # the others have ended otherwise
)
_LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tool": "tool",
        "denied": "DENIED",
        "error": "error",
        "stderr": "stderr",
        "answer": "answer",
        "cut": "left out",
        "changed": "file",
        "undone": "PUT BACK",
    }
)
_SIGNS: Final[Mapping[str, str]] = MappingProxyType({"+": "added", "-": "removed", "@": "place", "\\": "place"})
MAX_DIFF_LINES: Final = 3_000  # of all files of a run; the command line shows all that are kept
MAX_LINES_OF_ONE: Final = 400
_LEFT_OUT: Final = frozenset({"begin", "end", "turn"})  # the envelope itself says it
_SENT: Final[Mapping[str, str]] = MappingProxyType(
    {"queued": "its answer is on its way", "sent": "its answer was sent", "parked": "its answer could not be sent"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run, and how it went."""

    id: str
    href: str
    state: str
    dot: str
    explanation: str
    is_running: bool
    is_done: bool
    is_ended_by_hand: bool
    rule: str
    message: MessageGlance | None
    agent: str
    folder: str
    tools: Sequence[str]
    leftover: Sequence[str]
    denied: Sequence[str]
    turns: int
    began: datetime
    ended: datetime | None
    took: str
    exit_code: int | None
    reason: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputView:
    """One line that a run told."""

    kind: str
    label: str
    tool: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One line of what is different in a file; `kind` chooses its colour."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeView:
    """What became of one file, as the page shows it."""

    path: str
    kind: str
    is_held: bool
    is_undone: bool
    note: str
    aside: str
    lines: Sequence[DiffLine]
    left_out: int  # lines that are not shown
    added: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesView:
    """What became of the folder of a run."""

    files: Sequence[ChangeView]
    more: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseStep:
    """One step of the way from a message to an answer; `state` chooses its sign."""

    state: str
    text: str
    at: datetime | None = None
    note: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCourse:
    """What is known of the way of a run, as far as it is still stored."""

    verdict: RuleVerdict | None = None
    action: Action | None = None
    reply: ReplyRow | None = None


def run_href(run: str) -> str:
    """Return the address of a run."""
    return f"/runs/{run}"


def run_line(card: RunCard) -> RunLine:
    """Return a run as the page shows it."""
    it = card.run
    return RunLine(
        id=it.id,
        href=run_href(it.id),
        state=it.state.value,
        dot=_DOTS.get(it.state, "ended"),
        explanation=_EXPLAINED[it.state],
        is_running=it.state is RunState.RUNNING,
        is_done=it.state is RunState.DONE,
        is_ended_by_hand=it.state is RunState.ABORTED,
        rule=it.rule or BY_HAND,
        message=glance(card.message),
        agent=agent_title(it.agent),
        folder=it.workdir or OWN_FOLDER,
        tools=it.tools,
        leftover=it.leftover,
        denied=[visible(tool) for tool in it.denied],
        turns=it.turns,
        began=it.started_at,
        ended=it.ended_at,
        took=duration((it.ended_at - it.started_at).total_seconds()) if it.ended_at else "",
        exit_code=it.exit_code,
        reason=visible(it.reason),
        answer=visible(it.answer),
    )


def counted(lines: Sequence[RunLine]) -> str:
    """Say how many runs there are, by how they went."""
    found = Counter(line.state for line in lines)
    return ", ".join(f"{found[state.value]} {state.value}" for state in RunState if found[state.value])


def output_views(part: OutputPart) -> Sequence[OutputView]:
    """Return lines of a run's output, those left out that say nothing new."""
    return [
        OutputView(
            kind=line.kind if line.kind in _LABELS else "text",
            label=_LABELS.get(line.kind, ""),
            tool=visible(line.tool),
            text=visible(line.text),
        )
        for line in part.lines
        if line.kind not in _LEFT_OUT
    ]


def changes_view(card: RunCard) -> ChangesView | None:
    """Return what became of the folder of a run; None when it was not looked at."""
    if card.changes is None:
        return None
    left = MAX_DIFF_LINES
    files = list[ChangeView]()
    for each in card.changes.files:
        view = _change_view(each, min(left, MAX_LINES_OF_ONE))
        left -= len(view.lines)
        files.append(view)
    return ChangesView(files=files, more=card.changes.more, note=card.changes.note)


def _change_view(each: FileChange, most: int) -> ChangeView:
    lines = each.diff.split("\n") if each.diff else []
    return ChangeView(
        path=visible(each.path),
        kind=each.kind.value,
        is_held=each.is_held,
        is_undone=each.is_undone,
        note=visible(each.note),
        aside=visible(each.aside),
        lines=[DiffLine(kind=_SIGNS.get(line[:1], "same"), text=visible(line) or " ") for line in lines[:most]],
        left_out=max(0, len(lines) - most),
        added=sum(line.startswith("+") for line in lines),
        removed=sum(line.startswith("-") for line in lines),
    )


def reply_of(run: Run, replies: Sequence[ReplyRow]) -> ReplyRow | None:
    """Return the reply that a run's answer became."""
    return next((reply for reply in replies if reply.author == f"{RUN}{run.id}"), None)


def course_steps(card: RunCard, course: RunCourse) -> Sequence[CourseStep]:
    """Return the way from the message to the answer, in order."""
    return [*_asked(card, course), *_answered(card.run, course)]


def _asked(card: RunCard, course: RunCourse) -> Sequence[CourseStep]:
    message, verdict, action = card.message, course.verdict, course.action
    steps: list[CourseStep] = []
    if message is None:
        steps.append(CourseStep(state="expired", text="its message is no longer stored"))
    else:
        steps.append(CourseStep(state="answered", text="message came", at=message.received_at, href=_href(card)))
    if verdict is not None:
        steps.append(
            CourseStep(state="answered", text=f"rule {verdict.rule} {verdict.outcome.value}", note=verdict.reason)
        )
    if action is not None:
        how = "asked you" if action.expires_at else "wanted to run" if action.rule else "was asked for by hand"
        steps.append(CourseStep(state="answered", text=f"action {action.id} {how}", at=action.created_at))
    if action is not None and action.expires_at and action.decided_at:
        said = "refused" if action.state is ActionState.DECLINED else "accepted"
        by = f" by {visible(action.decided_by)}" if action.decided_by else ""
        steps.append(CourseStep(state="answered", text=f"{said}{by}", at=action.decided_at))
    return steps


def _answered(run: Run, course: RunCourse) -> Sequence[CourseStep]:
    steps = [CourseStep(state="answered", text=f"run {run.id} began", at=run.started_at, note=agent_title(run.agent))]
    if run.state is RunState.RUNNING:
        return [*steps, CourseStep(state="queued", text="running")]
    is_done = run.state is RunState.DONE
    steps.append(
        CourseStep(
            state="answered" if is_done else "failed", text=run.state.value, at=run.ended_at, note=visible(run.reason)
        )
    )
    reply = course.reply
    if reply is None:
        has_reply = course.action is not None and course.action.order is not None and course.action.order.has_reply
        text = "no answer was sent back" if has_reply else "its answer stays here"
        return [*steps, CourseStep(state="failed" if has_reply else "answered", text=text)]
    is_lost = reply.state == "parked"
    steps.append(
        CourseStep(
            state="failed" if is_lost else "answered" if reply.state == "sent" else "queued",
            text=_SENT.get(reply.state, reply.state),
            at=reply.created_at,
            note=visible(reply.error),
        )
    )
    return steps


def _href(card: RunCard) -> str:
    shown = glance(card.message)
    return shown.href if shown else ""
