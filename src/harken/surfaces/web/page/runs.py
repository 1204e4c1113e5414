"""Runs in the words of the page: how each went, what it printed, and the way from a message to its answer. Pure.

What a run printed is hostile: it is text of a model that read text from outside. The templates are `panels/runs` and
`panels/run`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from harken.automation import OWN_FOLDER, Action, ActionState, FileChange, OutputPart, RuleVerdict, Run, RunState
from harken.inbox.automation import RunCard
from harken.inbox.results import ReplyRow
from harken.model import RUN
from harken.surfaces.web.page.markdown import visible
from harken.surfaces.web.page.pulse import duration
from harken.surfaces.web.page.rules import BY_HAND, MessageGlance, agent_title, glance

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
