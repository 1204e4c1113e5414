"""Tasks in the page: cards, one task with its peers side by side, a hosted agent at work, and the form that makes one.

The views are pure and take the inbox's `TaskProgress`. The form calls the verb that makes
the task, its worktree and what its agent needs there. A form that is sent twice makes one task: it carries a key, by
which the answer to the first is found again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.errors import HarkenError, NotFound, UserError
from harken.hosts.registry import host_title, hosts
from harken.inbox.results import HostedProgress, HostedState, TaskProgress
from harken.inbox.views import TimelineItem
from harken.model import Mailbox, Priority, TaskId, TaskState, fresh_id
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.page.links import mailbox_href, task_href
from harken.surfaces.web.page.markdown import visible
from harken.surfaces.web.page.rendering import (
    OK,
    ActionNote,
    PageRenderer,
    RememberedForms,
    answered,
    form_of,
    once_key,
)
from harken.surfaces.web.page.sidebar import NEEDS
from harken.verbs.tasks import MadeTask, TaskMake, make_task

MAX_COLUMNS: Final = 6
SHOWN_MESSAGES: Final = 20
_ABSENT: Final = "gone"
_EXPLAINED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "queued": "No agent has run in it yet; its mail waits.",
        "ended": "No agent runs in it now; its mail waits for the next one.",
        "done": "It takes no more mail.",
        "idle": "Its agent is between two turns.",
        "busy": "Its agent is in a turn.",
        "waiting": "Its agent waits for messages and gets them at once.",
        "connected": "Its agent is here; whether it works is not known.",
        "running": "Its agent is here.",
    }
)
_PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {"said": "agent", "thought": "thinks", "tool": "tool", "told": "was told", "problem": "problem"}
)
_SIGNS: Final[Mapping[str, str]] = MappingProxyType({"+": "added", "-": "removed", "@": "place"})
MAX_DIFF_LINES: Final = 400  # of one file
_HOSTED: Final[Mapping[HostedState, str]] = MappingProxyType(
    {
        HostedState.STARTING: "It is being started.",
        HostedState.IDLE: "It is between two turns, and any message starts one.",
        HostedState.BUSY: "It is in a turn.",
        HostedState.STOPPED: "It does not run.",
    }
)
_DOTS: Final[Mapping[HostedState, str]] = MappingProxyType(
    {
        HostedState.STARTING: "connected",
        HostedState.IDLE: "idle",
        HostedState.BUSY: "busy",
        HostedState.STOPPED: "ended",
    }
)
_ORDER: Final = (TaskState.RUNNING, TaskState.QUEUED, TaskState.ENDED, TaskState.DONE)


@dataclass(frozen=True, slots=True)
class PeerLink:
    """A linked task."""

    title: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """A task. `dot` is what its session does, or where the task is while none is here."""

    id: str
    title: str
    href: str
    mailbox: Mailbox
    mailbox_href: str
    folder: str
    branch: str
    agent: str
    state: str
    dot: str
    explanation: str
    pending: int
    created_at: datetime
    started_at: datetime | None
    done_at: datetime | None
    peers: Sequence[PeerLink]
    hosted: str = ""  # where its agent is, if the daemon runs that


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedLine:
    """One thing that a hosted agent said or did, as the page shows it; all of it is hostile text."""

    kind: str
    label: str
    title: str
    status: str
    text: str
    changes: Sequence[tuple[str, Sequence[tuple[str, str]]]]  # a path, and the lines of its difference with their kinds
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskColumn:
    """A task beside its peers: its newest messages, and what would happen to the next one, also to an urgent one."""

    line: TaskLine
    items: Sequence[TimelineItem]
    since: int  # where what is shown begins; 0: with the first
    newest: int
    outlook: str
    urgent_outlook: str
    key: str  # what is sent again with it is stored once

    @property
    def can_send(self) -> bool:
        """Whether it takes mail."""
        return self.line.state != TaskState.DONE


def task_lines(standings: Sequence[TaskProgress], every: Sequence[TaskProgress]) -> Sequence[TaskLine]:
    """Return some tasks, running ones first; titles of peers are looked up in `every`."""
    titles = {each.task.id: each.task.title for each in every}
    return [task_line(each, titles) for each in sorted(standings, key=lambda each: _ORDER.index(each.state))]


def task_line(standing: TaskProgress, titles: Mapping[TaskId, str]) -> TaskLine:
    """Return a task as the page shows it."""
    task = standing.task
    dot = standing.state.value
    if standing.state is TaskState.RUNNING and standing.presence != _ABSENT:
        dot = standing.presence
    return TaskLine(
        id=task.id,
        title=task.title,
        href=task_href(task.id),
        mailbox=task.mailbox,
        mailbox_href=mailbox_href(task.mailbox),
        folder=visible(task.dir),
        branch=visible(task.branch),
        agent=task.agent,
        state=standing.state.value,
        dot=dot,
        explanation=_EXPLAINED.get(dot, ""),
        pending=standing.pending,
        created_at=task.created_at,
        started_at=task.started_at,
        done_at=task.done_at,
        peers=[PeerLink(titles.get(peer, peer), task_href(peer)) for peer in task.peers],
        hosted=standing.hosted.state.value if standing.hosted else "",
    )


def hosted_lines(hosted: HostedProgress) -> Sequence[HostedLine]:
    """Return what a hosted agent said and did, the oldest first."""
    return [
        HostedLine(
            kind=part.kind,
            label=_PARTS.get(part.kind, part.kind),
            title=part.title,
            status=part.status,
            text=part.text,
            changes=[(path, _diff_lines(diff)) for path, diff in part.changes],
            is_cut=part.is_cut,
        )
        for part in hosted.parts
    ]


def _diff_lines(diff: str) -> Sequence[tuple[str, str]]:
    return [(_SIGNS.get(line[:1], "same"), line) for line in diff.split("\n")[:MAX_DIFF_LINES]]


def side_by_side(
    own: TaskProgress, every: Sequence[TaskProgress]
) -> tuple[Sequence[TaskProgress], Sequence[TaskProgress]]:
    """Return a task and its peers as far as there is room, running ones first; and the peers that are left."""
    peers = [each for each in every if each.task.id in own.task.peers]
    together = [own, *sorted(peers, key=lambda each: _ORDER.index(each.state))]
    return together[:MAX_COLUMNS], together[MAX_COLUMNS:]


def counts_of(lines: Sequence[TaskLine]) -> str:
    """Say how many tasks there are, by where they are."""
    names = {"running": "running", "queued": "not started", "ended": "without a session", "done": "done"}
    found = [(sum(1 for line in lines if line.state == state), word) for state, word in names.items()]
    return ", ".join(f"{count} {word}" for count, word in found if count)


HERE: Final = "/tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskForm:
    """What a person filled in."""

    title: str = ""
    folder: str = ""
    agent: str = ""
    prompt: str = ""
    branch: str = ""
    start: str = ""
    is_here: bool = False
    is_trusted: bool = False
    is_hosted: bool = False

    @classmethod
    def of(cls, form: Mapping[str, str]) -> TaskForm:
        """Return what a form sent."""
        return cls(
            title=form.get("title", "").strip(),
            folder=form.get("folder", "").strip(),
            agent=form.get("agent", ""),
            prompt=form.get("prompt", "").replace("\r\n", "\n"),
            branch=form.get("branch", "").strip(),
            start=form.get("start", "").strip(),
            is_here=bool(form.get("is_here")),
            is_trusted=bool(form.get("is_trusted")),
            is_hosted=bool(form.get("is_hosted")),
        )

    @property
    def arguments(self) -> TaskMake:
        """What the verb is asked."""
        return TaskMake(
            title=self.title,
            folder=self.folder,
            agent=self.agent,
            prompt=self.prompt,
            branch=self.branch,
            start=self.start,
            is_here=self.is_here,
            is_trusted=self.is_trusted,
        )


class TaskPages:
    """The tasks, one with its peers, and the form for a task and what comes of it."""

    def __init__(self, context: WebContext, pages: PageRenderer) -> None:
        self._context = context
        self._pages = pages
        self._forms = RememberedForms[MadeTask]()

    async def show_all(self, request: Request) -> Response:
        """Show the tasks, the done ones on demand."""
        after = self._context.ticker.newest
        is_all = request.query_params.get("all") == "1"
        every = await self._context.tasks.list(with_done=True)
        chosen = [each for each in every if is_all or each.state is not TaskState.DONE]
        lines = task_lines(chosen, every)
        return await self._pages.page(
            "panels/tasks.html.j2",
            here="/tasks",
            title="Tasks",
            after=after,
            now=self._context.clock.now(),
            note=counts_of(lines),
            lines=lines,
            is_all=is_all,
            done=sum(1 for each in every if each.state is TaskState.DONE),
        )

    async def show(self, request: Request) -> Response:
        """Show a task and its peers side by side."""
        after = self._context.ticker.newest
        own = await self._context.tasks.show(request.path_params["task"])
        every = await self._context.tasks.list(with_done=True)
        shown, left = side_by_side(own, every)
        titles = {each.task.id: each.task.title for each in every}
        columns = [await self._column(each, task_line(each, titles)) for each in shown]
        return await self._pages.page(
            "panels/task.html.j2",
            here=mailbox_href(own.task.mailbox),
            title=own.task.title,
            after=after,
            now=self._context.clock.now(),
            own=columns[0].line,
            columns=columns,
            left=[task_line(each, titles) for each in left],
        )

    async def show_agent(self, request: Request) -> Response:
        """Show what the agent of a hosted task says and does, while it does."""
        return await self._agent(request.path_params["task"])

    async def stop(self, request: Request) -> Response:
        """Stop the turn of a hosted agent."""
        name = (await form_of(request)).get("task", "")
        _, is_stopped = await self._context.tasks.stop(self._context.call_context().caller, name)
        said = "It is told to stop." if is_stopped else "No turn runs."
        return await self._agent(name, ActionNote(lines=[said]))

    async def start(self, request: Request) -> Response:
        """Start the agent of a hosted task again."""
        name = (await form_of(request)).get("task", "")
        await self._context.tasks.host(self._context.call_context().caller, name)
        return await self._agent(name)

    async def _agent(self, name: str, note: ActionNote | None = None) -> Response:
        after = self._context.ticker.newest
        own = await self._context.tasks.show(name)
        if (hosted := own.hosted) is None:
            raise NotFound(f"Task {own.task.id!r} is not hosted.", f"harken task start {own.task.id} --hosted")
        context = self._context.call_context()
        keys = {session.key for session in own.sessions}
        asked = [each for each in await context.approvals.list(context.caller) if each.request.session in keys]
        return await self._pages.page(
            "panels/hosted.html.j2",
            here=mailbox_href(own.task.mailbox),
            title=own.task.title,
            after=after,
            told=note,
            column=await self._column(own, task_line(own, {})),
            agent=host_title(hosted.agent),
            hosted=hosted,
            dot=_DOTS[hosted.state],
            explanation=_HOSTED[hosted.state],
            lines=hosted_lines(hosted),
            asked=[(host_title(each.request.host), each.request.tool) for each in asked],
            needs_href=NEEDS,
        )

    async def _column(self, standing: TaskProgress, line: TaskLine) -> TaskColumn:
        mailbox = standing.task.mailbox
        timeline = await self._context.views.timeline(mailbox=mailbox, limit=SHOWN_MESSAGES)
        normal = await self._context.views.forecast(mailbox, Priority.NORMAL.value)
        high = await self._context.views.forecast(mailbox, Priority.HIGH.value)
        return TaskColumn(
            line=line,
            items=timeline.items,
            since=timeline.older,
            newest=timeline.newest,
            outlook=normal.sentence,
            urgent_outlook=high.sentence,
            key=fresh_id("", 20),
        )

    async def ask(self, request: Request) -> Response:
        """Answer with an empty form, or one with a folder in it."""
        return await self._form(TaskForm(folder=request.query_params.get("folder", "")))

    async def make(self, request: Request) -> Response:
        """Make the task, and say where it is and how its agent is started."""
        fields = await form_of(request)
        form = TaskForm.of(fields)
        key = once_key(fields.get("key", ""), repr(form))
        try:
            made = await self._forms.once(key, lambda: self._made(form))
        except HarkenError as exc:
            return await self._form(form, _note_of(exc), exc.http_status)
        task = made.task.task
        return await self._pages.page(
            "panels/task_made.html.j2",
            here=HERE,
            title=task.title,
            task=task,
            href=task_href(task.id),
            agent=host_title(task.agent) if task.agent else "",
            files=made.seeded.names(made.folder),
            notes=made.notes,
            hosted=made.task.hosted,
        )

    async def _made(self, form: TaskForm) -> MadeTask:
        context = self._context.call_context()
        if form.is_hosted and not form.agent:
            raise UserError("Which agent is to be hosted?", "Choose one.")
        made = await make_task(context, form.arguments)
        if not form.is_hosted:
            return made
        try:
            return replace(made, task=await self._context.tasks.host(context.caller, made.task.task.id))
        except HarkenError as exc:  # the task is made, and can be started otherwise
            return replace(made, notes=[*made.notes, f"{exc.message} {exc.hint}".strip()])

    async def _form(self, form: TaskForm, note: ActionNote | None = None, status: int = OK) -> Response:
        known = [each.task.repo or each.task.dir for each in await self._context.tasks.list(with_done=True)]
        return await self._pages.page(
            "panels/new_task.html.j2",
            here=HERE,
            title="New task",
            status=status,
            told=note,
            form=form,
            folders=sorted(set(known)),
            hosts={name: host.title for name, host in hosts().items()},
            key=fresh_id("", 20),
        )


# What an option of the command line is in the form.
_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "--branch": "Branch",
        "--dir": "Folder",
        "--from": "Begins at",
        "--here": "Use the folder as it is",
        "--id": "Title",
        "--prompt": "What to do",
        "--trust-repository": "Let git run programs",
    }
)
_FLAG: Final = re.compile(r"(--[a-z-]+)(?: …)?")


def _note_of(error: HarkenError) -> ActionNote:
    """Return what an error says, with the fields of the form for the options of the command line."""
    note = ActionNote.of(error)
    said, hint = ([_FLAG.sub(_field, text) for text in texts] for texts in (note.lines, [note.hint]))
    return ActionNote(lines=said, hint=hint[0], is_problem=True)


def _field(flag: re.Match[str]) -> str:
    return f"“{_FIELDS[flag[1]]}”" if flag[1] in _FIELDS else flag[0]


def task_routes(context: WebContext) -> list[Route]:
    """Return the routes of tasks."""
    pages = PageRenderer(context)
    tasks = TaskPages(context, pages)
    return [
        Route("/tasks", answered(pages, tasks.show_all), methods=["GET"]),
        Route("/t/{task}", answered(pages, tasks.show), methods=["GET"]),
        Route("/t/{task}/agent", answered(pages, tasks.show_agent), methods=["GET"]),
        Route("/do/task-stop", answered(pages, tasks.stop), methods=["POST"]),
        Route("/do/task-host", answered(pages, tasks.start), methods=["POST"]),
        Route("/tasks/new", answered(pages, tasks.ask), methods=["GET"]),
        Route("/do/task", answered(pages, tasks.make), methods=["POST"]),
    ]
