"""Hosted agents: the daemon runs the agent of a task without a terminal, and takes its conversation up after a restart.

Which tasks are hosted is a small file each, in the home: the agent, and the id of its conversation. An agent runs below
a reaper in the task's folder, with the person's environment, and ends with the daemon. What is said to it and heard
from it is `surfaces/hosted.py`'s. One that ends is not started again by itself: the task says why, and the next start
of the daemon, or `harken task start`, tries again.

`EditorLink` serves `harken acp`, which stands between an editor and an agent that the editor has started: to the daemon
that is an agent too, with as many conversations as the editor opens (`acp/proxy.py`).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import ByteStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from harken.acp.agent import AcpAgent, connected
from harken.acp.protocol import (
    Fields,
    McpServer,
    PermissionOption,
    PermissionRequest,
    ProxyMethod,
    SessionUpdate,
    fields,
    greeting_of,
    text,
)
from harken.clock import Clock
from harken.config.home import Home, write_private
from harken.config.secrets import env_values
from harken.daemon.session_wiring import SessionWiring, read_record
from harken.errors import HarkenError, NotFound, Unavailable
from harken.hosts.connect.command import SERVER, mcp_command
from harken.hosts.connect.plan import local_place
from harken.hosts.hook import Hello, consumer_of, hook_key
from harken.hosts.host import without_marks
from harken.hosts.registry import acp_command, host_marks, host_named
from harken.inbox.inbox import Inbox
from harken.inbox.results import HostedProgress, HostedState
from harken.inbox.tasks import Tasks
from harken.memory import json_bytes
from harken.model import Task, TaskId
from harken.processes import Origin, identity_of
from harken.runs.process import ChildProcess, descendants, started
from harken.runs.sandbox import SandboxCommand
from harken.sessions.registry import MailScopeOf
from harken.sessions.session import Session
from harken.store.contract import Changes
from harken.surfaces.hosted import HostedSession
from harken.surfaces.wire import LineReader

FOLDER: Final = "hosted"
MAX_CONVERSATIONS: Final = 100  # of one agent in an editor
START_SECONDS: Final = 90.0  # how long a caller waits for an agent to be there
END_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 5.0
TASK_VARIABLE: Final = "HARKEN_TASK"
ENDED: Final = "Its agent has ended"
_FILE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}\.json")

_log = logging.getLogger("harken.hosting")


class HostedTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a hosted task."""

    task: str
    agent: str
    conversation: str = ""  # the agent's own id; empty before the first one


@dataclass(slots=True, kw_only=True)
class _HostedAgent:
    """An agent, from its start to its end; after that, why it has ended."""

    kept: HostedTask
    ready: anyio.Event = field(default_factory=anyio.Event)  # it can be told something, or never will
    over: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    hosted: HostedSession | None = None
    session: Session | None = None
    problem: str = ""

    @property
    def state(self) -> HostedState:
        """Where it is."""
        if self.over.is_set():
            return HostedState.STOPPED
        if self.hosted is None or self.session is None:
            return HostedState.STARTING
        return HostedState.BUSY if self.hosted.is_in_turn or self.session.is_busy else HostedState.IDLE


class HostedAgents:
    """The hosted agents of one daemon. Implements `TaskHosting`."""

    def __init__(
        self,
        home: Home,
        inbox: Inbox,
        tasks: Tasks,
        clock: Clock,
        *,
        wiring: SessionWiring,
        changes: Changes,
        reading_of: MailScopeOf,
    ) -> None:
        self._home = home
        self._folder = home.path / FOLDER
        self._inbox = inbox
        self._tasks = tasks
        self._clock = clock
        self._wiring = wiring
        self._changes = changes
        self._reading_of = reading_of
        self._agents: dict[TaskId, _HostedAgent] = {}
        self._running: TaskGroup | None = None

    async def run(self) -> None:
        """Run the agents of the tasks that are hosted, until the daemon ends."""
        try:
            async with anyio.create_task_group() as self._running:
                for kept in await anyio.to_thread.run_sync(self._read):
                    self._begin(kept)
                await anyio.sleep_forever()
        finally:
            self._running = None

    # -- as `TaskHosting` --------------------------------------------------------------------------------------

    async def start(self, task: Task, agent: str) -> HostedProgress:
        """Run an agent in a task's folder from now on; return how that stands when it is there, or has failed."""
        acp_command(agent, os.environ)
        if self._running is None:
            raise Unavailable("Agents are not hosted yet.", "Try again in a moment.")
        former = self._agents.get(task.id)
        known = former.kept if former is not None else HostedTask(task=task.id, agent=agent)
        kept = known if known.agent == agent else HostedTask(task=task.id, agent=agent)
        self._keep(kept)
        begun = self._begin(kept)
        with anyio.move_on_after(START_SECONDS):
            await begun.ready.wait()
        return self._progress(begun)

    async def stop(self, task: TaskId) -> bool:
        """Stop the turn that an agent is in; return whether there was one."""
        found = self._agents.get(task)
        return found is not None and found.hosted is not None and await found.hosted.stop()

    async def end(self, task: TaskId) -> bool:
        """End the agent of a task, and host it no more."""
        found = self._agents.pop(task, None)
        (self._folder / f"{task}.json").unlink(missing_ok=True)
        if found is None:
            return False
        found.scope.cancel()
        with anyio.move_on_after(END_SECONDS):
            await found.over.wait()
        self._inbox.sessions.note_change()
        return True

    def progress(self, task: TaskId) -> HostedProgress | None:
        """Return how the agent of a task stands; None for a task that is not hosted."""
        found = self._agents.get(task)
        return None if found is None else self._progress(found)

    # -- one agent ---------------------------------------------------------------------------------------------

    def _progress(self, found: _HostedAgent) -> HostedProgress:
        record = found.hosted.record if found.hosted else None
        return HostedProgress(
            agent=found.kept.agent,
            state=found.state,
            problem=found.problem,
            parts=tuple(record.parts) if record else (),
            plan=tuple(record.plan) if record else (),
            left_out=record.left_out if record else 0,
        )

    def _begin(self, kept: HostedTask) -> _HostedAgent:
        begun = self._agents[TaskId(kept.task)] = _HostedAgent(kept=kept)
        if self._running is not None:
            self._running.start_soon(self._host, begun)
        return begun

    async def _host(self, own: _HostedAgent) -> None:
        try:
            with own.scope:
                task = (await self._tasks.show(own.kept.task)).task
                own.problem = await self._serve(own, task)
        except* (HarkenError, OSError) as exc:
            own.problem = _reason(exc)
            _log.warning("the agent of task %s: %s", own.kept.task, own.problem)
        finally:
            own.ready.set()
            own.over.set()
            with anyio.CancelScope(shield=True):
                await self._leave(own)

    async def _serve(self, own: _HostedAgent, task: Task) -> str:
        """Run an agent until it ends; return why it did."""
        command = await anyio.to_thread.run_sync(self._command, own.kept.agent, task)
        async with started(command, Path(task.dir)) as child, anyio.create_task_group() as tasks:
            tasks.start_soon(child.see_through)
            hosted = self.conversing(tasks)
            try:
                async with connected(child.incoming, child.outgoing, hosted) as agent:
                    await self._open(own, task, agent, hosted, child)
                    tasks.start_soon(hosted.run, self._changes.listen)
                    own.ready.set()
                    self._inbox.sessions.note_change()
                    async with _closing(agent, own):
                        await agent.connection.over.wait()
            except HarkenError as exc:
                # What it printed before it ended says more than that it has ended.
                said = child.stderr.splitlines()[-1:]
                raise Unavailable(exc.message, *said or [exc.hint]) from exc
            finally:
                hosted.over()
                tasks.cancel_scope.cancel()
        last = child.stderr.splitlines()[-1:]
        return f"{ENDED}: {last[0][:400]}" if last else f"{ENDED}."

    async def _open(
        self, own: _HostedAgent, task: Task, agent: AcpAgent, hosted: HostedSession, child: ChildProcess
    ) -> None:
        """Take up the conversation of a task, or begin one."""
        greeting = await agent.greet()
        servers = [_server(self._home.path)]
        conversation = own.kept.conversation
        own.hosted = hosted
        try:
            if conversation and greeting.can_load:
                await agent.load(conversation, task.dir, servers)
            elif conversation and greeting.can_resume:
                await agent.resume(conversation, task.dir, servers)
            else:
                conversation = ""
        except Unavailable as exc:
            _log.info("the conversation of task %s is not taken up: %s", task.id, exc.message)
            conversation = ""
        if not conversation:
            conversation = await agent.open(task.dir, servers)
        own.kept = msgspec.structs.replace(own.kept, conversation=conversation)
        self._keep(own.kept)
        own.session = await self.meet(own.kept.agent, conversation, task.dir, child.pid)
        hosted.begin(agent, conversation, own.session)

    async def meet(self, agent: str, conversation: str, folder: str, pid: int) -> Session:
        """Return the session of a conversation: its edge or its hooks may have come first."""
        host, now = host_named(agent), self._clock.now()
        own = consumer_of(host, agent)
        reading = self._reading_of(folder, own)
        candidate = Session(
            key=hook_key(host, conversation, pid),
            agent=own,
            consumer=reading.consumer,
            host=host.name,
            client=agent,
            cwd=folder,
            pid=pid,
            mailboxes=reading.mailboxes,
            problem=reading.problem,
            surfaces=(),
            opened_at=now,
            last_active=now,
            process_identity=identity_of(pid),
            native=conversation,
            has_many=host.has_many,
            shares_connection=host.shares_connection,
            result_bytes=host.result_bytes,
        )
        below = [each.pid for each in await anyio.to_thread.run_sync(descendants, pid)]
        session, former = self._inbox.sessions.meet(candidate, below)
        if former is not None:
            await self._inbox.proofs.rename(former, session.key)
        session.be_hosted()
        self._inbox.sessions.note_change(session.key)
        return session

    async def _leave(self, own: _HostedAgent) -> None:
        if own.session is not None:
            await self.part(own.session)
        self._inbox.sessions.note_change()

    async def part(self, session: Session) -> None:
        """An agent is gone: what it was given without proof is offered again."""
        self._inbox.sessions.end(session.key)
        with suppress(HarkenError):
            await self._inbox.proofs.release(session.key)
        self._inbox.sessions.note_change()

    # -- in an editor ------------------------------------------------------------------------------------------

    async def serve_editor(self, stream: ByteStream, lines: LineReader, hello: Hello, origin: Origin) -> None:
        """Serve one `harken acp` until it is gone."""
        incoming = BufferedByteReceiveStream(stream)
        incoming.feed_data(lines.rest())
        async with anyio.create_task_group() as tasks:
            link = EditorLink(self, hello.host, origin, tasks)
            async with connected(incoming, stream, link, link.told) as link.agent:
                try:
                    await link.agent.connection.over.wait()
                finally:
                    with anyio.CancelScope(shield=True):
                        await link.close()
                    tasks.cancel_scope.cancel()

    def conversing(self, tasks: TaskGroup) -> HostedSession:
        """Return what speaks for one conversation of an agent."""
        return HostedSession(
            self._inbox,
            self._wiring.composer,
            self._wiring.approvals,
            self._clock,
            read_record=read_record,
            tasks=tasks,
        )

    async def follow(self, hosted: HostedSession, scope: anyio.CancelScope) -> None:
        """Let a conversation have what arrives for it, until the scope is cancelled."""
        with scope:
            await hosted.run(self._changes.listen)

    # -- what is kept ------------------------------------------------------------------------------------------

    def _read(self) -> Sequence[HostedTask]:
        found: list[HostedTask] = []
        for path in sorted(self._folder.glob("*.json")) if self._folder.is_dir() else ():
            if not _FILE.fullmatch(path.name) or not path.is_file() or path.is_symlink():
                continue
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=HostedTask))
            except (OSError, msgspec.DecodeError, UnicodeDecodeError):
                _log.warning("what %s says of a hosted task cannot be read", path.name)
        return found

    def _keep(self, kept: HostedTask) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_private(self._folder / f"{kept.task}.json", json_bytes(kept).decode() + "\n")

    def _command(self, agent: str, task: Task) -> SandboxCommand:
        environ = self._environment(agent)
        if not Path(task.dir).is_dir():
            raise NotFound(f"The folder of the task is missing: {task.dir}", f"harken task rm {task.id}")
        return SandboxCommand(argv=acp_command(agent, environ), env=environ)

    def _environment(self, agent: str) -> dict[str, str]:
        """Return what an agent runs with: the daemon's own, and of the file for secrets what its host is known by."""
        sandbox = host_named(agent).sandbox
        wanted = frozenset(sandbox().variables if sandbox else ())
        with suppress(HarkenError):
            kept = {name: value for name, value in env_values(self._home).items() if name in wanted}
            return {**kept, **_plain(os.environ)}
        return _plain(os.environ)


@dataclass(slots=True)
class _OpenConversation:
    """A conversation that an editor has open."""

    hosted: HostedSession
    session: Session
    scope: anyio.CancelScope


class EditorLink:
    """What one `harken acp` tells of the agent that an editor has started. It is the `AgentListener` of that.

    What it says is a process's word, as that of hooks is: its agent has to run below it.
    """

    def __init__(self, hosting: HostedAgents, name: str, origin: Origin, tasks: TaskGroup) -> None:
        self._hosting = hosting
        self._name = name
        self._origin = origin
        self._tasks = tasks
        self._pid = 0
        self._open: dict[str, _OpenConversation] = {}
        self.agent: AcpAgent | None = None

    async def told(self, method: str, params: Fields) -> None:
        """Take what the proxy says beside what the agent says."""
        conversation = text(params, "sessionId")
        known = self._open.get(conversation)
        try:
            if method == ProxyMethod.AGENT:
                await self._greet(params)
            elif method == ProxyMethod.SESSION and conversation:
                await self._begin(conversation, params)
            elif known is not None:
                await self._follow(method, params, conversation, known)
        except HarkenError as exc:  # the store is away: what is not noted is not proven
            _log.warning("what an editor's agent does is not noted: %s", exc.message)

    async def updated(self, update: SessionUpdate) -> None:
        """Take a report of the agent."""
        if known := self._open.get(update.session):
            await known.hosted.updated(update)

    async def permission(self, request: PermissionRequest) -> PermissionOption | None:
        """Ask you beside the editor: the first answer counts."""
        known = self._open.get(request.session)
        return await known.hosted.permission(request) if known else None

    async def close(self) -> None:
        """The proxy is gone, and its agent with it."""
        for conversation, known in list(self._open.items()):
            await self._end(conversation, known)

    async def _greet(self, params: Fields) -> None:
        pid = params.get("pid")
        below = await anyio.to_thread.run_sync(descendants, self._origin.pid)
        # Where the system does not tell who is at the other end, its word is all there is.
        if isinstance(pid, int) and (not self._origin.pid or any(each.pid == pid for each in below)):
            self._pid = pid
        if self.agent is not None:
            self.agent.greeting = greeting_of(fields(params, "greeting"))

    async def _begin(self, conversation: str, params: Fields) -> None:
        """Know a conversation from now on; one that is opened again begins anew."""
        agent, known = self.agent, self._open.get(conversation)
        if agent is None or self._pid <= 1 or (known is None and len(self._open) >= MAX_CONVERSATIONS):
            return
        if known is not None:
            await self._end(conversation, known)
        session = await self._hosting.meet(self._name, conversation, text(params, "cwd"), self._pid)
        hosted, scope = self._hosting.conversing(self._tasks), anyio.CancelScope()
        self._open[conversation] = _OpenConversation(hosted, session, scope)
        hosted.begin(agent, conversation, session)
        if params.get("isInTurn"):
            await hosted.begin_in_editor("")
        self._tasks.start_soon(self._hosting.follow, hosted, scope)

    async def _end(self, conversation: str, known: _OpenConversation) -> None:
        del self._open[conversation]
        known.scope.cancel()
        known.hosted.over()
        await self._hosting.part(known.session)

    async def _follow(self, method: str, params: Fields, conversation: str, known: _OpenConversation) -> None:
        question = params.get("question")
        if method == ProxyMethod.CLOSED:
            await self._end(conversation, known)
        elif method == ProxyMethod.ANSWERED and isinstance(question, int):
            known.hosted.answered_in_editor(question, text(params, "answer"))
        elif method == ProxyMethod.TURN and params.get("isOver"):
            await known.hosted.end_in_editor(text(params, "stopReason"))
        elif method == ProxyMethod.TURN:
            await known.hosted.begin_in_editor(text(params, "prompt"))


def _plain(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which nothing says that an agent has started the daemon."""
    return {name: value for name, value in without_marks(environ, host_marks()).items() if name != TASK_VARIABLE}


def _server(home: Path) -> McpServer:
    command, *arguments = mcp_command(local_place(home))
    return McpServer(name=SERVER, command=command, args=tuple(arguments))


def _reason(exc: BaseExceptionGroup[HarkenError | OSError]) -> str:
    found: BaseException = exc
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return f"{found.message} {found.hint}".strip() if isinstance(found, HarkenError) else str(found)


@asynccontextmanager
async def _closing(agent: AcpAgent, own: _HostedAgent) -> AsyncIterator[None]:
    """End a conversation at its agent when it is left, where the agent can: it writes what it keeps."""
    try:
        yield
    finally:
        if agent.greeting.can_close and not agent.connection.over.is_set():
            with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(HarkenError):
                await agent.close(own.kept.conversation)
