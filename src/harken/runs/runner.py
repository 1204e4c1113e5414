"""Carries out queued actions: starts each as a run when its agent and its folder are free, and sees it to its end.

One run per host and one per folder at a time. A run that was going on when the daemon ended is `interrupted`, what is
left of its processes is ended, and it is not started again by itself. An agent to which nobody is signed in is held:
what rules want of it waits until its sign-in has changed, the rules are loaded again, or a run of it went well. Once an
hour one is tried, because not every sign-in is in a file. Above is the daemon, below the store; how a host is started
and what its output means is its sandbox's business.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from harken.automation import (
    ACTIONS,
    Action,
    ActionState,
    FolderChanges,
    HeldAgent,
    Mode,
    Order,
    OutputPart,
    Run,
    RunEnd,
    RunId,
    RunState,
)
from harken.clock import Clock, Signal
from harken.errors import Conflict, HarkenError, NotFound, Unavailable, UserError
from harken.model import fresh_id
from harken.runs.folders import RunFolders, judged, told_changes
from harken.runs.mark import LETTERS, PREFIX
from harken.runs.output import RunOutput, RunOutputs, RunRecord
from harken.runs.process import descendants, end_group, started
from harken.runs.sandbox import (
    ChosenHost,
    HostChooser,
    OutputEvent,
    RunFile,
    RunFileKind,
    Sandbox,
    SandboxCommand,
    SandboxRequest,
)
from harken.runs.tools import parse_tool
from harken.store.contract import Store

_log = logging.getLogger("harken.runs")

LOOK_EVERY_SECONDS: Final = 5.0
MAX_QUEUED: Final = 64
MAX_RUNS_KEPT: Final = 5_000
ABORTED_WITHIN_SECONDS: Final = 20.0
MAX_ANSWERED_AGAIN: Final = 50
TRIED_AGAIN_AFTER: Final = timedelta(hours=1)  # an agent to which nobody was signed in
LEFT_TO_OTHERS: Final = timedelta(minutes=1)  # so long an action waits for a machine that can run it


class AgentRegistry(Protocol):
    """Knows which processes are agents, so that nothing that a run starts passes for the person."""

    def run_began(self, run: RunId, pid: int) -> None:
        """A run has this process now."""
        ...

    def run_ended(self, run: RunId) -> None:
        """It has none any more."""
        ...

    def left_over(self, run: RunId) -> int:
        """Return the process of a run of an earlier daemon, if it is still there; 0 when it is not, or who knows."""
        ...


Answer = Callable[[Run], Awaitable[None]]
"""Sends the answer of a run back to where its message came from. Asked again it is sent once. Raises `HarkenError`."""

Contain = Callable[[str, Awaitable[None]], Coroutine[None, None, None]]
"""Awaits some work; a fault in it is logged under a name and goes no further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlaces:
    """Where runs live."""

    outputs: Path
    private: Path  # private folders of runs that are going on
    work: Path  # folders of rules that name none
    folders: RunFolders  # what became of them
    kept_out: tuple[Path, ...]  # Harken's own: no run may have any of it in its folder; the first is its home
    workdir: str = ""  # for rules that name none, if the person chose one
    machine: str = ""  # what this machine is called
    is_shared: bool = False  # daemons of other machines start runs too


_Stamps = tuple[int, ...]  # when the files of a sign-in were changed last; 0 for one that is not there


@dataclass(slots=True)
class _SignInHold:
    """Why rules do not start an agent, the files whose change ends that, and when it was last tried."""

    agent: HeldAgent
    sign_ins: Sequence[Path]
    stamps: _Stamps
    tried_at: datetime


class _LiveRun:
    """A run that is going on."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.scope = anyio.CancelScope()
        self.aborted_by = ""
        self.over = anyio.Event()


class RunExecutor:
    """The runs of one daemon."""

    def __init__(
        self,
        store: Store,
        choosing: HostChooser,
        places: RunPlaces,
        clock: Clock,
        *,
        environ: Mapping[str, str],
        registry: AgentRegistry,
        answer: Answer,
        contain: Contain,
    ) -> None:
        self._store = store
        self._choosing = choosing
        self._places = places
        self._clock = clock
        self._environ = environ
        self._registry = registry
        self._answer = answer
        self._contain = contain
        self._live: dict[RunId, _LiveRun] = {}
        self._held: dict[str, _SignInHold] = {}
        self.outputs = RunOutputs(places.outputs)
        self.folders = places.folders

    async def run(self) -> None:
        """Start what is queued, for ever."""
        await self._recover()
        changed = Signal()
        async with anyio.create_task_group() as runs:
            with self._store.changes.listen(changed.ring, only=[ACTIONS]):
                while True:
                    try:
                        await self._store.actions.expire()
                        await self._start_queued(runs)
                    except Unavailable as exc:
                        # What waits goes on waiting; and those that run must not end because a disk is full.
                        _log.warning("nothing can be started: %s", exc.message)
                    await changed.wait(LOOK_EVERY_SECONDS)

    async def output(self, run: RunId, after: int, seconds: float) -> OutputPart:
        """Return what a run told after a line, as soon as there is something, it is over, or the time is."""
        return await self.outputs.wait(run, after, seconds)

    async def changes(self, run: RunId) -> FolderChanges | None:
        """Return what became of the folder of a run; None when it was not looked at."""
        return await anyio.to_thread.run_sync(self.folders.read, run)

    async def abort(self, run: Run, by: str) -> Run:
        """End a run that is going on. Raises `Conflict` for one that is over."""
        live = self._live.get(run.id)
        if live is None:
            if run.state is RunState.RUNNING and run.machine:
                raise Conflict(f"The run {run.id} is on {run.machine}.", "End it there.")
            raise Conflict(f"The run {run.id} is over: {run.state.value}.", f"See it with: harken run show {run.id}")
        live.aborted_by = by
        live.scope.cancel()
        with anyio.move_on_after(ABORTED_WITHIN_SECONDS):
            await live.over.wait()
        return await self._store.runs.get(run.id)

    def held(self) -> Sequence[HeldAgent]:
        """Return the agents that rules do not start any more."""
        return [hold.agent for hold in self._held.values()]

    def release(self) -> None:
        """Let rules try every agent again."""
        self._held.clear()

    # -- starting ----------------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Let the runs of an earlier daemon be interrupted, and end what is left of them."""
        for run in await self._store.runs.own_running():
            if run.id in self._live:
                continue
            leader = self._registry.left_over(run.id)
            await anyio.to_thread.run_sync(end_group, leader, run.id, descendants(leader))
            end = RunEnd(state=RunState.INTERRUPTED, reason="the daemon ended while it ran")
            end = await self._compared(run, RunOutput(self.outputs.path(run.id)), end)
            await self._store.runs.end(run.id, end)
        await anyio.to_thread.run_sync(self._clear_cells)
        for run in await self._store.runs.list(limit=MAX_ANSWERED_AGAIN):
            # The daemon may have ended between the end of a run and its answer.
            await self._send_back(run)
        known = [run.id for run in await self._store.runs.list(limit=MAX_RUNS_KEPT)]
        self.outputs.sweep(known)
        await anyio.to_thread.run_sync(self.folders.sweep, known)

    def _clear_cells(self) -> None:
        """Remove what runs that are over have left: sign-ins may be linked there."""
        for left in self._places.private.glob("*"):
            if left.name not in self._live:
                shutil.rmtree(left, ignore_errors=True)

    async def _start_queued(self, runs: TaskGroup) -> None:
        """Start what can be started now, the oldest first. One that cannot be must not hold up the others."""
        await anyio.to_thread.run_sync(self._release_signed_in)
        is_paused = (await self._store.rules.state()).is_paused
        for action in reversed(await self._store.actions.list([ActionState.QUEUED], limit=MAX_QUEUED)):
            if is_paused and action.rule:
                continue  # what the person asks for by hand is no rule's doing
            if self._is_of_another(action):
                continue
            considered = anyio.Event()
            await self._contain(f"action {action.id}", self._consider(runs, action, considered))
            if not considered.is_set():
                await self._refuse(action, "Harken itself failed; its log says how")

    async def _consider(self, runs: TaskGroup, action: Action, considered: anyio.Event) -> None:
        """Start an action's run if its agent and folder are free; refuse what cannot be run at all."""
        try:
            await self._start_if_free(runs, action)
        except Unavailable as exc:
            _log.warning("action %s goes on waiting: %s", action.id, exc.message)
        except HarkenError as exc:
            await self._refuse(action, exc.message)
        except (OSError, ValueError) as exc:
            await self._refuse(action, str(exc))
        considered.set()

    async def _start_if_free(self, runs: TaskGroup, action: Action) -> None:
        order = action.order
        if order is None:
            raise UserError("there is nothing to run")
        if order.machine and order.machine != self._places.machine:
            raise UserError(f"it is for the machine {order.machine}, and this is {self._places.machine}")
        chosen = self._choosing.choose(order.agent, order.tools)
        if chosen.sandbox is None:
            raise UserError(chosen.refusal)
        if action.mode is Mode.AUTO and self._is_held(chosen.sandbox.host):
            return  # what the person says yes to is tried
        folder = self._folder(action, order)
        if all(
            live.run.agent != chosen.sandbox.host and not _overlap(live.run, folder) for live in self._live.values()
        ):
            await self._start(runs, action, order, chosen, folder)

    def _is_of_another(self, action: Action) -> bool:
        """Whether another machine is to run an action: it waits for the daemon there."""
        wanted = action.order.machine if action.order is not None else ""
        return self._places.is_shared and wanted not in ("", self._places.machine)

    async def _refuse(self, action: Action, reason: str) -> None:
        is_named = action.order is not None and action.order.machine == self._places.machine
        waited = self._clock.now() - (action.decided_at or action.created_at)
        if self._places.is_shared and not is_named and waited < LEFT_TO_OTHERS:
            return  # another machine may have the agent and the folder
        with suppress(Conflict, NotFound):
            await self._store.actions.refuse(action.id, reason)

    async def _start(self, runs: TaskGroup, action: Action, order: Order, chosen: ChosenHost, folder: Path) -> None:
        sandbox = chosen.sandbox
        if sandbox is None:
            return
        run_id = RunId(fresh_id(PREFIX, LETTERS))
        private = self._places.private / run_id
        tools = tuple(parse_tool(text) for text in order.tools)
        work = SandboxRequest(
            prompt=order.prompt,
            workdir=folder,
            tools=tools,
            servers=self._choosing.servers(tools),
            max_turns=order.max_turns,
            private=private,
            program=chosen.program,
            environ=self._environ,
        )
        private.mkdir(mode=0o700, parents=True)
        try:
            command = await anyio.to_thread.run_sync(sandbox.command, work)
        except (HarkenError, OSError, ValueError):
            shutil.rmtree(private, ignore_errors=True)
            raise
        run = Run(
            id=run_id,
            action=action.id,
            rule=action.rule,
            message=action.message,
            agent=sandbox.host,
            workdir=str(folder),
            tools=order.tools,
            state=RunState.RUNNING,
            started_at=self._clock.now(),
            leftover=command.leftover,
        )
        try:
            await self._store.runs.start(run)
        except Conflict:
            # Another daemon was faster, or the person declined it meanwhile.
            shutil.rmtree(private, ignore_errors=True)
            return
        if hold := self._held.get(run.agent):
            hold.tried_at = run.started_at
        live = self._live[run.id] = _LiveRun(run)
        runs.start_soon(self._contain, f"run {run.id}", self._see_through(live, order, sandbox, command, private))

    def _folder(self, action: Action, order: Order) -> Path:
        """Return the folder of a run, without links. Raises `UserError` for one that a run must not have."""
        named = order.workdir or self._places.workdir
        if named:
            folder = Path(os.path.realpath(self._expanded(named)))
            if not folder.is_dir():
                raise UserError(f"the folder {named} is not there")
        else:
            folder = Path(os.path.realpath(self._places.work / _folder_name(action.rule)))
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Where the person linked them from elsewhere, what counts is where they really are.
        own = [Path(os.path.realpath(path)) for path in self._places.kept_out]
        if any(path.is_relative_to(folder) for path in own) or (named and folder.is_relative_to(own[0])):
            raise UserError(f"the folder {folder} contains Harken's own files")
        if Path(os.path.realpath(self._environ.get("HOME") or own[0])).is_relative_to(folder):
            raise UserError(f"the folder {folder} contains your home, with your sign-ins")
        return folder

    def _expanded(self, named: str) -> str:
        """Return a folder with the person's own in place of `~`."""
        own = self._environ.get("HOME", "")
        return own + named[1:] if own and (named == "~" or named.startswith("~/")) else named

    # -- one run -----------------------------------------------------------------------------------------------

    async def _see_through(
        self, live: _LiveRun, order: Order, sandbox: Sandbox, command: SandboxCommand, private: Path
    ) -> None:
        """Run one to its end, and store how it went."""
        run = live.run
        record = RunRecord(sandbox.transcript(), order.max_turns, is_counted=not command.is_turn_limited)
        end = RunEnd(state=RunState.FAILED, reason="Harken itself failed; its log says how")
        output = self.outputs.begin(run.id)
        try:
            output.add(self._clock.now(), "begin", f"{run.agent} in {run.workdir} with {', '.join(run.tools)}")
            with live.scope, anyio.move_on_after(order.timeout.total_seconds()) as time_left:
                await self._execute(live, command, private, record, output)
            if record.exit_code is None:
                self._keep(output, record.last_words())
            end = record.end(
                aborted_by=live.aborted_by if live.scope.cancelled_caught else "",
                is_late=time_left.cancelled_caught,
                timeout=order.timeout,
            )
            self._note_sign_in(run, command, end, is_signed_out=record.is_signed_out)
        except HarkenError as exc:
            end = RunEnd(state=RunState.FAILED, reason=exc.message)
        except anyio.get_cancelled_exc_class():
            # The daemon stops: whoever starts next says that it was interrupted, unless this is still stored.
            end = RunEnd(state=RunState.INTERRUPTED, reason="the daemon was stopped while it ran")
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._finish(live, output, end, private)

    async def _execute(
        self, live: _LiveRun, command: SandboxCommand, private: Path, record: RunRecord, output: RunOutput
    ) -> None:
        await anyio.to_thread.run_sync(make_run_folder, command.files, private)
        await anyio.to_thread.run_sync(self.folders.before, live.run)
        async with started(command, Path(live.run.workdir), live.run.id) as child:
            self._registry.run_began(live.run.id, child.pid)
            await self._store.runs.began(live.run.id, child.pid)

            def take(line: bytes) -> None:
                self._keep(output, record.take(line))
                if record.is_over_budget:
                    live.scope.cancel()

            record.exit_code = await child.converse(command.stdin, take, has_errors=command.has_told_errors)
            self._keep(output, record.finish(child.stderr))
            if record.exit_code and child.stderr:
                output.add(self._clock.now(), "stderr", child.stderr)

    def _note_sign_in(self, run: Run, command: SandboxCommand, end: RunEnd, *, is_signed_out: bool) -> None:
        """Hold an agent to which nobody is signed in; one that has done its work is held no more."""
        if end.state is RunState.DONE:
            self._held.pop(run.agent, None)
        elif end.state is RunState.FAILED and is_signed_out and run.agent not in self._held:
            _log.warning("nobody is signed in to %s: what rules want of it waits", run.agent)
            now = self._clock.now()
            found = HeldAgent(agent=run.agent, run=run.id, reason=end.reason, since=now)
            sign_ins = command.sign_ins
            self._held[run.agent] = _SignInHold(found, sign_ins, _stamps(sign_ins), now)

    def _is_held(self, agent: str) -> bool:
        """Whether rules do not start an agent now."""
        hold = self._held.get(agent)
        return hold is not None and self._clock.now() - hold.tried_at < TRIED_AGAIN_AFTER

    def _release_signed_in(self) -> None:
        """Let agents be tried again once the files of their sign-ins have changed."""
        for agent, hold in list(self._held.items()):
            if _stamps(hold.sign_ins) != hold.stamps:
                self._held.pop(agent, None)

    def _keep(self, output: RunOutput, told: Sequence[OutputEvent]) -> None:
        for each in told:
            output.add(self._clock.now(), each.kind, each.text, each.tool)

    async def _finish(self, live: _LiveRun, output: RunOutput, end: RunEnd, private: Path) -> None:
        run = live.run
        self._registry.run_ended(run.id)
        await anyio.to_thread.run_sync(lambda: shutil.rmtree(private, ignore_errors=True))
        end = await self._compared(run, output, end)
        try:
            ended = await self._store.runs.end(run.id, end)
            await self._send_back(ended)
        except HarkenError as exc:
            # The store is away: at the next start the run is said to be interrupted.
            _log.warning("the end of run %s could not be stored: %s", run.id, exc)
        finally:
            self._live.pop(run.id, None)
            self.outputs.finish(run.id)
            live.over.set()

    async def _compared(self, run: Run, output: RunOutput, end: RunEnd) -> RunEnd:
        """Return how a run ended, once its folder is looked at, what is held is put back, and both are told."""
        changes = await anyio.to_thread.run_sync(self.folders.after, run)
        for kind, text in told_changes(changes):
            output.add(self._clock.now(), kind, text)
        end = judged(end, changes, run.tools)
        output.close(self._clock.now(), end.state.value + (f": {end.reason}" if end.reason else ""))
        return end

    async def _send_back(self, run: Run) -> None:
        """Answer on the channel, where the rule wants that and the run has something to say."""
        if run.state is not RunState.DONE or not run.answer.strip():
            return
        try:
            order = (await self._store.actions.get(run.action)).order
            if order is not None and order.has_reply:
                await self._answer(run)
        except HarkenError as exc:
            _log.warning("the answer of run %s could not be sent: %s", run.id, exc.message)


def _overlap(run: Run, folder: Path) -> bool:
    """Whether a run works in a folder, in one above it or in one below it."""
    other = Path(run.workdir)
    return folder.is_relative_to(other) or other.is_relative_to(folder)


def _stamps(sign_ins: Sequence[Path]) -> _Stamps:
    """Return when the files of a sign-in were changed."""
    return tuple(map(_stamp, sign_ins))


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _folder_name(rule: str) -> str:
    """Return the name of a rule's own folder: one that every disk takes, and no other rule has."""
    if not rule:
        return "by-hand"
    plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in rule).strip("-")[:40]
    return f"{plain}-{hashlib.sha256(rule.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}".lstrip("-")


PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700


def make_run_folder(files: Sequence[RunFile], private: Path) -> None:
    """Make everything in the private folder. Raises `UserError` where that cannot be."""
    for each in files:
        path = private / each.path
        if not path.is_relative_to(private) or ".." in Path(each.path).parts:
            raise UserError(f"{each.path} is outside the private folder of the run.")
        try:
            path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            _put(each, path)
        except OSError as exc:
            raise UserError(f"The private folder of the run could not be made: {exc.strerror}.") from exc


def _put(each: RunFile, path: Path) -> None:
    if each.kind is RunFileKind.FILE:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "w", encoding="utf-8") as to:
            to.write(each.content)
    elif not each.target.is_file():
        return  # nobody has signed in that way
    elif each.kind is RunFileKind.LINK:
        path.symlink_to(each.target)
    else:
        shutil.copyfile(each.target, path)
        path.chmod(PRIVATE_FILE)
