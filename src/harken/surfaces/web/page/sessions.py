"""Who is here and how each can be reached, in the words of the page, and connecting an agent to Harken.

What can reach a session is what its host told us; that it does is another matter: only deliveries that were proven
show it. Both are put side by side here, so that people see what is only hoped for. The template is `panels/sessions`.

A host is connected as `harken connect` does it: its plan is shown, and done only if it is still the same plan.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.errors import HarkenError
from harken.hosts.connect.apply import apply, file_outcomes, undo, verify
from harken.hosts.connect.plan import CheckFinding, CommandStep, ConnectPlan, FileEdit
from harken.hosts.connect.record import shared_blocks
from harken.hosts.connect.targets import ConnectTarget, connected_targets, job_of, targets
from harken.hosts.registry import connectable, host_name, host_title, hosts, short
from harken.inbox.results import Omission, SurfaceRecord, TaskProgress
from harken.inbox.subscriptions import EventSubscriber
from harken.model import TRIAL, WATCH, Consumer, Mailbox, SessionAddress
from harken.sessions.session import Presence, Session
from harken.sessions.turns import SessionHalt
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.page.links import mailbox_href
from harken.surfaces.web.page.rendering import OK, ActionNote, PageRenderer, answered, form_of

PULL: Final = "tool"
HINTS: Final = frozenset({"log ping", "resource"})  # they say that something waits, never what

_WAYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hook: prompt": "with each prompt",
        "hook: tool": "between tool calls",
        "hook: stop": "at the end of a turn",
        "wake: bell": "woken by its bell",
        "wake: app server": "woken through the app server",
        "wake: peer inbox": "woken through its peer inbox",
        "wake: input file": "woken through its input file",
        PULL: "when it asks",
        "inbox_pull": "when it asks",
        "check_inbox": "when it asks",
        "wait_for_inbound_message": "while it waits",
        "log ping": "hint in the log",
        "resource": "hint on a resource",
    }
)
_PULLED: Final = frozenset({"inbox_pull", "check_inbox", "wait_for_inbound_message"})
_PRESENCES: Final[Mapping[Presence, str]] = MappingProxyType(
    {
        Presence.IDLE: "between two turns",
        Presence.BUSY: "in a turn",
        Presence.WAITING: "gets a message at once",
        Presence.CONNECTED: "here; without hooks nobody knows whether it works",
    }
)


class ProofRecord(StrEnum):
    """How sure it is that a way works."""

    PROVEN = "proven"
    OPEN = "not proven"
    UNUSED = "not used yet"
    HINT = "only a hint"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWay:
    """A surface of a session; `at` is when it was proven last, or else when something was offered through it."""

    surface: str
    label: str
    proof: ProofRecord
    at: datetime | None = None
    evidence: str = ""
    offered: int = 0
    seen: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OmissionNote:
    """What an agent was not given of a mailbox when it began; `href` leads to the newest of it."""

    mailbox: str
    reasons: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCard:
    """A live session as the page shows it."""

    key: str
    title: str
    consumer: str
    client: str
    folder: str
    pid: int
    presence: str
    explanation: str
    opened_at: datetime
    last_active: datetime
    can_wake: bool
    hindrance: str
    ways: Sequence[SessionWay]
    task: TaskProgress | None = None
    omissions: Sequence[OmissionNote] = ()
    problem: str = ""  # why it reads nothing
    machine: str = ""
    subscriptions: Sequence[EventSubscriber] = ()
    halt: SessionHalt | None = None

    @property
    def hints(self) -> Sequence[SessionWay]:
        """What only says that something waits."""
        return [way for way in self.ways if way.proof is ProofRecord.HINT]

    @property
    def proven(self) -> SessionWay | None:
        """The way that was proven last."""
        sure = [way for way in self.ways if way.proof is ProofRecord.PROVEN and way.at is not None]
        return max(sure, key=lambda way: way.at or self.opened_at, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentAgent:
    """A consumer that was reached lately and has no session here now."""

    consumer: str
    title: str
    offered: int
    seen: int
    last_at: datetime
    last_seen_at: datetime | None


def cards(
    sessions: Sequence[Session],
    records: Sequence[SurfaceRecord],
    tasks: Sequence[TaskProgress],
    omissions: Mapping[SessionAddress, Mapping[Mailbox, Omission]],
    subscribers: Sequence[EventSubscriber] = (),
) -> Sequence[SessionCard]:
    """Return the live sessions, those of trials left out."""
    standing = {item.task.mailbox: item for item in tasks}
    return [
        replace(
            _card(
                session,
                records,
                next((standing[name] for name in session.mailboxes if name in standing), None),
                omissions.get(session.address, {}),
            ),
            subscriptions=[each for each in subscribers if each.session == session.key and not session.is_elsewhere],
        )
        for session in sessions
        if not any(name.startswith(TRIAL) for name in session.mailboxes)
    ]


def absent(sessions: Sequence[Session], records: Sequence[SurfaceRecord]) -> Sequence[AbsentAgent]:
    """Return the agents that were reached lately and are not here, the last reached first."""
    here: Collection[Consumer] = {session.consumer for session in sessions} | {WATCH}
    gone: dict[Consumer, list[SurfaceRecord]] = {}
    for record in records:
        if record.consumer not in here:
            gone.setdefault(record.consumer, []).append(record)
    found = [
        AbsentAgent(
            consumer=consumer,
            title=host_title(consumer),
            offered=sum(record.offered for record in mine),
            seen=sum(record.seen for record in mine),
            last_at=max(record.last_offered_at for record in mine),
            last_seen_at=max((r.last_seen_at for r in mine if r.last_seen_at is not None), default=None),
        )
        for consumer, mine in gone.items()
    ]
    return sorted(found, key=lambda each: each.last_at, reverse=True)


def summary(cards: Sequence[SessionCard]) -> str:
    """Say how many sessions are here, by what they do."""
    found = [(sum(1 for card in cards if card.presence == each.value), each.value) for each in Presence]
    return ", ".join(f"{count} {word}" for count, word in found if count)


def way_label(surface: str) -> str:
    """Say how a surface reaches an agent."""
    return _WAYS.get(surface, surface)


def _card(
    session: Session,
    records: Sequence[SurfaceRecord],
    task: TaskProgress | None,
    omissions: Mapping[Mailbox, Omission],
) -> SessionCard:
    mine = [record for record in records if record.consumer == session.consumer]
    return SessionCard(
        key=session.key,
        title=host_title(session.host) if session.host in hosts() else session.client or session.agent,
        consumer=session.consumer,
        client=session.client,
        folder=session.cwd,
        pid=session.pid,
        presence=session.presence.value,
        explanation=_PRESENCES[session.presence],
        opened_at=session.opened_at,
        last_active=session.last_active,
        can_wake=session.can_be_woken,
        hindrance=session.hindrance,
        problem="" if session.problem is None else f"{session.problem.message} {session.problem.hint}",
        ways=[_way(surface, mine) for surface in session.ways],
        task=task,
        omissions=[_omission(mailbox, each) for mailbox, each in omissions.items()],
        machine=session.machine,
        halt=session.halt,
    )


def _omission(mailbox: Mailbox, omission: Omission) -> OmissionNote:
    reasons = ((omission.surplus, "too many"), (omission.older, "older"))
    return OmissionNote(
        mailbox=mailbox,
        reasons=", ".join(f"{count} {reason}" for count, reason in reasons if count),
        href=f"{mailbox_href(mailbox)}?at={omission.up_to}",
    )


def _way(surface: str, records: Sequence[SurfaceRecord]) -> SessionWay:
    names = _PULLED if surface == PULL else {surface}
    mine = [record for record in records if record.surface in names]
    seen = [record for record in mine if record.last_seen_at is not None]
    last = max(seen, key=lambda record: record.last_seen_at or record.last_offered_at, default=None)
    if surface in HINTS:
        proof, at = ProofRecord.HINT, None
    elif last is not None:
        proof, at = ProofRecord.PROVEN, last.last_seen_at
    elif mine:
        proof, at = ProofRecord.OPEN, max(record.last_offered_at for record in mine)
    else:
        proof, at = ProofRecord.UNUSED, None
    return SessionWay(
        surface=surface,
        label=way_label(surface),
        proof=proof,
        at=at,
        evidence=last.evidence if last is not None else "",
        offered=sum(record.offered for record in mine),
        seen=sum(record.seen for record in mine),
    )


AGENTS: Final = "/agents"
_HERE: Final = "/sessions"
_CHANGED: Final = "What it would do has changed since you looked. This is what it would do now:"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A file that a plan changes, with the difference line by line; Harken's own are only named."""

    path: str
    deed: str
    why: str
    diff: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlan:
    """What connecting would do to a host, as the page shows it. `mark` is another when the plan is."""

    files: Sequence[PlannedFile] = ()
    commands: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """One host: what is installed, whether it is connected, what would be done, and what would be taken back."""

    name: str
    title: str
    version: str
    is_connected: bool
    plan: AgentPlan
    url: str = ""  # of the inbox on another machine that it is connected to
    problem: HarkenError | None = None
    wake: str = ""
    wakes: Mapping[str, str] | None = None
    back: Sequence[tuple[str, str]] = ()


def plan_view(plan: ConnectPlan) -> AgentPlan:
    """Return a plan as the page shows it."""
    edits = [step for step in plan.steps if isinstance(step, FileEdit)]
    commands = [step for step in plan.steps if isinstance(step, CommandStep)]
    told = repr([(each.path, each.before, each.after) for each in edits] + [each.argv for each in commands])
    return AgentPlan(
        files=[
            PlannedFile(
                path=short(each.path), deed=each.deed, why=each.why, diff=() if each.is_ours else list(each.diff())
            )
            for each in sorted(edits, key=lambda edit: edit.is_ours)
        ],
        commands=[(shlex.join(each.argv), each.why) for each in commands],
        notes=plan.notes,
        mark=hashlib.sha256(told.encode()).hexdigest() if plan.steps else "",
    )


class AgentPages:
    """Who is here, the hosts, the plan of one, and connecting and disconnecting it."""

    def __init__(self, context: WebContext, pages: PageRenderer) -> None:
        self._context = context
        self._pages = pages

    async def show_sessions(self, _request: Request) -> Response:
        """Show who is running where, and how each can be reached."""
        after = self._context.ticker.newest
        live = self._context.inbox.sessions.everywhere()
        records = await self._context.inbox.evidence()
        omissions = {session.address: await self._context.views.omissions(session.reader) for session in live}
        found = cards(
            live, records, await self._context.tasks.list(), omissions, self._context.subscriptions.subscribers()
        )
        return await self._pages.page(
            "panels/sessions.html.j2",
            here=_HERE,
            title="Sessions",
            after=after,
            now=self._context.clock.now(),
            note=summary(found),
            cards=found,
            absent=absent(live, records),
            hosts=connectable(),
        )

    async def show_all(self, _request: Request) -> Response:
        """Show the hosts: installed, connected."""
        found = await to_thread.run_sync(lambda: targets(self._home, connectable(), None))
        everywhere = await to_thread.run_sync(connected_targets, self._home)
        return await self._pages.page(
            "panels/agents.html.j2",
            here=_HERE,
            title="Agents",
            agents=[
                (each.connector.name, each.name, each.found.version if each.found else "", each.record is not None)
                for each in sorted(found, key=lambda target: (target.found is None, target.name))
            ],
            elsewhere=[
                (each.connector.name, each.name, str(each.place.project)) for each in everywhere if each.place.project
            ],
        )

    async def show(self, request: Request) -> Response:
        """Show what connecting a host would do, and what disconnecting it would."""
        return await self._one(host_name(request.path_params["host"]), request.query_params.get("wake"))

    async def connect(self, request: Request) -> Response:
        """Do the plan that was shown; another one is shown first."""
        sent = await form_of(request)
        host, wake = host_name(sent.get("host", "")), sent.get("wake")

        def do() -> Sequence[CheckFinding] | None:
            target = self._target(host)
            job = job_of(target, wake, is_alone=True)
            if plan_view(job.plan).mark != sent.get("mark", ""):
                return None
            if job.is_todo:
                apply(job.plan, target.place, job.options)
            return verify(target.connector, target.place) if target.found else ()

        findings = await to_thread.run_sync(do)
        if findings is None:
            return await self._one(host, wake, ActionNote(lines=[_CHANGED], is_problem=True))
        note = ActionNote(lines=[f"{host_title(host)} is connected. New sessions use it."])
        return await self._one(host, wake, note, findings)

    async def disconnect(self, request: Request) -> Response:
        """Take back what connecting wrote."""
        host = host_name((await form_of(request)).get("host", ""))

        def do() -> Sequence[str]:
            target = self._target(host, is_looking=False)
            return undo(target.connector, target.place).notes

        notes = await to_thread.run_sync(do)
        return await self._one(host, None, ActionNote(lines=[f"{host_title(host)} is disconnected.", *notes]))

    async def _one(
        self,
        host: str,
        wake: str | None,
        note: ActionNote | None = None,
        findings: Sequence[CheckFinding] = (),
        status: int = OK,
    ) -> Response:
        view = await to_thread.run_sync(lambda: self._view(self._target(host), wake))
        return await self._pages.page(
            "panels/agent.html.j2",
            here=_HERE,
            title=view.title,
            status=status,
            told=note,
            agent=view,
            findings=findings,
        )

    @property
    def _home(self) -> Path:
        return self._context.call_context().place().harken

    def _target(self, host: str, *, is_looking: bool = True) -> ConnectTarget:
        return targets(self._home, [host], None, is_looking=is_looking)[0]

    def _view(self, target: ConnectTarget, wake: str | None) -> AgentView:
        plan, problem, chosen = AgentPlan(), None, ""
        try:
            job = job_of(target, wake, is_alone=True)
            plan, chosen = plan_view(job.plan), job.options.wake
        except HarkenError as exc:
            problem = exc
        return AgentView(
            name=target.connector.name,
            title=target.name,
            version=target.found.version if target.found else "",
            is_connected=target.record is not None,
            plan=plan,
            url=target.remote.url if target.remote else "",
            problem=problem,
            wake=chosen,
            wakes=target.connector.wakes,
            back=_taken_back(target),
        )


def _taken_back(target: ConnectTarget) -> Sequence[tuple[str, str]]:
    """Return what disconnecting does to each file, and the commands that it runs."""
    if target.record is None:
        return ()
    shared = shared_blocks(target.place.harken, target.record.key)
    files = [(short(path), outcome.value) for path, outcome in file_outcomes(target.record, shared).items()]
    return [*files, *((shlex.join(deed.undo), "is run") for deed in reversed(target.record.deeds) if deed.undo)]


def agent_routes(context: WebContext) -> list[Route]:
    """Return the routes of sessions, and of connecting agents."""
    pages = PageRenderer(context)
    each = AgentPages(context, pages)
    return [
        Route(_HERE, answered(pages, each.show_sessions), methods=["GET"]),
        Route(AGENTS, answered(pages, each.show_all), methods=["GET"]),
        Route(f"{AGENTS}/{{host}}", answered(pages, each.show), methods=["GET"]),
        Route("/do/connect", answered(pages, each.connect), methods=["POST"]),
        Route("/do/disconnect", answered(pages, each.disconnect), methods=["POST"]),
    ]
