"""A sandbox whose host is a small program of ours, so that what a run does can be steered from its prompt.

The program is real: a process of its own, that prints JSON lines, starts children and ignores signals when told to.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypedDict, Unpack

import anyio
import anyio.to_thread

from harken.automation import Action, Mode, Order, Outcome, RuleVerdict, Run, RunId, RunState
from harken.clock import Clock, SystemClock
from harken.daemon.supervisor import contain
from harken.errors import Forbidden, Unavailable
from harken.git import file_starts_nothing
from harken.hosts.run_environment import held_paths
from harken.model import Attention, MessageId, Sender
from harken.runs.folders import RunFolders
from harken.runs.runner import RunExecutor, RunPlaces
from harken.runs.sandbox import (
    HostChooser,
    OutputEvent,
    OutputKind,
    RunFile,
    RunFileKind,
    SandboxCommand,
    SandboxRequest,
)
from harken.runs.tools import Tool
from harken.store.contract import Store
from harken.store.contract.automation import Settlement
from harken.store.sqlite import open_store
from tests.builders import a_new_message

WAIT_SECONDS = 60.0

PROGRAM = """\
import json, os, signal, subprocess, sys, time
def tell(kind, text="", tool="", target=""):
    told = {"kind": kind, "text": text, "tool": tool, "target": target}
    print(json.dumps(told).replace("%HALF", "\\\\ud83d"), flush=True)
for word in sys.stdin.read().split():
    name, _, value = word.partition("=")
    if name == "say": tell("text", value)
    elif name == "answer": tell("answer", value)
    elif name == "deny": tell("denied", "no", *value.split("@"))
    elif name == "turns": [tell("turn") for _ in range(int(value))]
    elif name == "lines": [tell("text", "x" * 1000) for _ in range(int(value))]
    elif name == "garbage": sys.stdout.buffer.write(b"\\xff\\x00" * 2_000_000 + b"\\n"); sys.stdout.flush()
    elif name == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open(value + "~", "w").write(str(child.pid))
        os.rename(value + "~", value)
    elif name == "escape":
        script = f"echo $$ > {value}~; mv {value}~ {value}; exec sleep 600"
        subprocess.run(["sh", "-c", 'setsid sh -c "$1" >/dev/null 2>&1 &', "sh", script])
    elif name == "linger": subprocess.Popen(["sleep", "60"], start_new_session=True)
    elif name == "stubborn": signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif name == "env": open(value, "w").write(json.dumps(dict(os.environ)))
    elif name == "script": exec(open(value).read())
    elif name == "cwd": tell("text", os.getcwd())
    elif name == "file": tell("text", open(os.path.join(os.environ["PRIVATE"], value)).read())
    elif name == "until":
        while not os.path.exists(value): time.sleep(0.01)
    elif name == "hang": time.sleep(600)
    elif name == "stderr": sys.stderr.write(value); sys.stderr.flush()
    elif name == "exit": sys.exit(int(value))
"""


class Lines:
    """Reads what the program prints."""

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return what a line tells; nothing when it is none of ours."""
        try:
            found = json.loads(line)
            return [OutputEvent(OutputKind(found["kind"]), found["text"], found["tool"], found.get("target", ""))]
        except (ValueError, KeyError, TypeError):
            return []

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return the reason of a failure."""
        return [OutputEvent(OutputKind.ERROR, stderr)] if exit_code and stderr else []


class Disk:
    """A disk that may be full; a host that has to write something then cannot be started now."""

    def __init__(self) -> None:
        self.is_full = True
        self._tried = threading.Event()

    async def tried(self) -> None:
        """Wait until somebody met it full."""
        assert await anyio.to_thread.run_sync(self._tried.wait, WAIT_SECONDS)

    def write(self) -> None:
        """Write something, if there is room."""
        if self.is_full:
            self._tried.set()
            raise Unavailable("The disk is full.")


@dataclass(frozen=True)
class StandIn:
    """A host that can be fenced to anything but the shell, unless it has one."""

    host: str = "stand-in"
    program: str = "python3"
    variables: tuple[str, ...] = ()
    is_turn_limited: bool = False
    has_told_errors: bool = False
    disk: Disk | None = None
    has_shell: bool = False

    def refusal(self, tools: Sequence[Tool]) -> str:
        """Return why not."""
        if self.has_shell:
            return ""
        return "it cannot be fenced to a shell" if any(tool.text == "shell" for tool in tools) else ""

    def command(self, work: SandboxRequest) -> SandboxCommand:
        """Return how to start it."""
        if self.disk is not None:
            self.disk.write()
        if "faulty" in work.prompt:
            raise KeyError(work.prompt)
        if "unready" in work.prompt:
            raise Forbidden("nobody has signed in")
        return SandboxCommand(
            argv=(sys.executable, "-I", "-c", PROGRAM),
            env={"PATH": work.environ["PATH"], "PRIVATE": str(work.private)},
            stdin=work.prompt.encode(),
            files=(RunFile("sub/note", RunFileKind.FILE, "furnished"),),
            leftover=("todo_write",),
            is_turn_limited=self.is_turn_limited,
            has_told_errors=self.has_told_errors,
        )

    def transcript(self) -> Lines:
        """Return a reader."""
        return Lines()


@dataclass
class Noted:
    """What a runner tells others: which processes are agents now, and what was answered."""

    agents: dict[RunId, int] = field(default_factory=dict[RunId, int])
    answers: list[RunId] = field(default_factory=list[RunId])

    def run_began(self, run: RunId, pid: int) -> None:
        """Note a process."""
        self.agents[run] = pid

    def run_ended(self, run: RunId) -> None:
        """Forget it."""
        self.agents.pop(run, None)

    def left_over(self, run: RunId) -> int:
        """Return the process that it has noted: nobody, after a restart."""
        return self.agents.get(run, 0)

    async def answer(self, run: Run) -> None:
        """Note an answer."""
        self.answers.append(run.id)


class Wishes(TypedDict, total=False):
    """What a test may want besides a prompt; see `Wish`."""

    workdir: Path
    tools: tuple[str, ...]
    agent: str
    seconds: float
    max_turns: int
    has_reply: bool


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a test wants of a run."""

    prompt: str = "answer=x"
    workdir: Path | None = None
    tools: tuple[str, ...] = ("read_file",)
    agent: str = ""
    seconds: float = 60.0
    max_turns: int = 5
    has_reply: bool = False


@dataclass
class Rig:
    """A runner over a real store."""

    store: Store
    runner: RunExecutor
    noted: Noted

    async def ask(self, prompt: str, **wishes: Unpack[Wishes]) -> Action:
        """Queue an action about a new message."""
        return await self.wish(Wish(prompt=prompt, **wishes))

    async def wish(self, wish: Wish) -> Action:
        """Queue an action about a new message, as it is wished."""
        order = Order(
            agent=wish.agent,
            workdir=str(wish.workdir) if wish.workdir else "",
            tools=wish.tools,
            prompt=wish.prompt,
            timeout=timedelta(seconds=wish.seconds),
            max_turns=wish.max_turns,
            has_reply=wish.has_reply,
        )
        return await self.store.actions.add(await self._message(), order, "you")

    async def by_rule(self, prompt: str) -> Action:
        """Queue an action that a rule asked for."""
        message = await self._message()
        order = Order(
            agent="",
            workdir="",
            tools=("read_file",),
            prompt=prompt,
            timeout=timedelta(seconds=60),
            max_turns=5,
        )
        standing = await self.store.rules.state()
        verdict = RuleVerdict(message=message, rule="red", mode=Mode.AUTO, outcome=Outcome.FIRED, order=order)
        settlement = Settlement(
            revision=standing.revision, judged=standing.head, verdicts=[verdict], keep_since=SystemClock().now()
        )
        return (await self.store.rules.settle(settlement))[0]

    async def ended(self, action: Action) -> Run:
        """Return the run of an action, once it is over."""
        await self.until(action, lambda _, run: run is not None and run.state is not RunState.RUNNING)
        return await self._run_of(action)

    async def running(self, action: Action) -> Run:
        """Return the run of an action, once it has a process."""
        await self.until(action, lambda _, run: run is not None and run.pid > 0)
        return await self._run_of(action)

    async def until(self, action: Action, is_so: Callable[[Action, Run | None], bool]) -> Action:
        """Return an action, once something is true of it and of its run."""
        grown = anyio.Event()
        with anyio.fail_after(WAIT_SECONDS), self.store.changes.listen(lambda _: grown.set()):
            while True:
                grown = anyio.Event()
                found = await self.store.actions.get(action.id)
                if is_so(found, await self.store.runs.get(found.run) if found.run else None):
                    return found
                await grown.wait()

    async def _run_of(self, action: Action) -> Run:
        return await self.store.runs.get((await self.store.actions.get(action.id)).run or "")

    async def _message(self) -> MessageId:
        new = a_new_message("the build is red", source="ci", sender=Sender("bot"), attention=Attention.PROMPT)
        return (await self.store.messages.append([new]))[0].message.id


def _no_server(_name: str) -> None:
    """Return nothing: there are no servers here."""


def places(folder: Path) -> RunPlaces:
    """Return where runs live in a test."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return RunPlaces(
        outputs=home / "runs",
        private=home / "cells",
        work=home / "work",
        folders=RunFolders(home / "runs", file_starts_nothing, held_paths()),
        kept_out=(home, home / "triggers.json"),
    )


@asynccontextmanager
async def running(
    folder: Path, *sandboxes: StandIn, home: Path | None = None, clock: Clock | None = None
) -> AsyncIterator[Rig]:
    """Run a runner, for a person with a home."""
    environ = {"PATH": str(Path(sys.executable).parent) + ":/usr/bin:/bin", "HOME": str(home or "/nowhere")}
    async with open_store(folder / "harken.db", SystemClock()) as store, anyio.create_task_group() as tasks:
        noted = Noted()
        runner = RunExecutor(
            store,
            HostChooser(lambda: sandboxes or (StandIn(),), _no_server, environ),
            places(folder),
            clock or SystemClock(),
            environ=environ,
            registry=noted,
            answer=noted.answer,
            contain=contain,
        )
        tasks.start_soon(runner.run)
        yield Rig(store, runner, noted)
        tasks.cancel_scope.cancel()
