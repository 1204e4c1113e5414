"""Plays sessions of a host for the truth tests: a terminal with prompts, a run without one, a daemon that is restarted.

An `ObservedHost` is one connected host with an observer beside it. The model does what the last prompt in a request
says, so that several sessions can be played at once. Every wait has a bound, and ends as soon as what it waits for is
there.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import psutil

from harken.hosts.registry import host_named, interactive
from harken.testing.daemon import DaemonProcess, Json
from harken.trial.exchange import ModelAnswer, ModelRequest, side
from harken.trial.model import MockModel
from harken.trial.screen import TerminalProgram
from tests.hosts.observer import ARRIVAL_SECONDS, LOOK_SECONDS, Observer, SentMessage
from tests.hosts.stage import PROGRAMS, Headless, Stage
from tests.hosts.wire import is_whole, new_prompt, words
from tests.loss.rig import until

READY_SECONDS: Final = 60.0
STEP_SECONDS: Final = 60.0
QUIT_SECONDS: Final = 20.0
IDLE_SECONDS: Final = 40.0
LAST_WORD: Final = "done"
PULL: Final = ModelAnswer.call("inbox_pull", {"limit": 20})
MAX_PULLS: Final = 40
_SESSION: Final = re.compile(r"session ID (\d+)")
_YIELD_MILLISECONDS: Final = 250
_POLL_MILLISECONDS: Final = 120_000
_REMAINING: Final = re.compile(r'unread_remaining\\*"\s*:\s*(\d+)')
KNOWN_SENDER: Final = "ann"
MACHINE: Final = "buildbox"  # what a satellite is called
QUIET_CHANNEL: Final = "news"  # its messages go with a prompt and push no further
CONFIG: Final = f"""\
[toasts]
enabled = false

[[attention_rules]]
attention = "prompt"
channel = "{QUIET_CHANNEL}"
"""


Step: TypeAlias = ModelAnswer | Callable[[ModelRequest], ModelAnswer]
"""What the model says next, or how it is found from what it was asked."""


def _plain_shell(command: str) -> Sequence[Step]:
    return [ModelAnswer.shell(command)]


def _polled_shell(command: str) -> Sequence[Step]:
    """Codex returns from a command that takes long, and its model then waits for the rest with another tool."""

    def poll(asked: ModelRequest) -> ModelAnswer:
        running = _SESSION.search(asked.turns[-1].text)
        assert running, f"the command does not run on: {asked.turns[-1]}"
        return ModelAnswer.call("write_stdin", {"session_id": int(running[1]), "yield_time_ms": _POLL_MILLISECONDS})

    return [ModelAnswer.call("exec_command", {"cmd": command, "yield_time_ms": _YIELD_MILLISECONDS}), poll]


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What differs from host to host when a session is played."""

    leave: str  # what a person types to end it
    can_be_woken: bool = True  # as `harken connect` connects it unless told otherwise
    is_kept: bool = False  # its conversations live on for a minute after their terminal was closed
    long_shell: Callable[[str], Sequence[Step]] = _plain_shell  # how its model runs a command that takes long


HABITS: Final[Mapping[str, Habits]] = {
    "claude-code": Habits(leave="/exit"),
    "copilot-cli": Habits(leave="/exit", can_be_woken=False),
    "codex": Habits(leave="/quit", is_kept=True, long_shell=_polled_shell),
    "gemini-cli": Habits(leave="/quit", can_be_woken=False),
    "opencode": Habits(leave="/exit"),
    "qwen-code": Habits(leave="/quit"),
}


class PromptScript:
    """What the model does: the steps of the last prompt in a request, one after the other, and then a last word."""

    def __init__(self) -> None:
        self._steps: dict[str, Sequence[Step]] = {}
        self._readers: set[str] = set()

    def give(self, prompt: str, steps: Sequence[Step], *, reads_all: bool = False) -> None:
        """Let a prompt have steps; with `reads_all` the model then calls `inbox_pull` until nothing waits."""
        self._steps[prompt] = tuple(steps)
        if reads_all:
            self._readers.add(prompt)

    def __call__(self, asked: ModelRequest) -> ModelAnswer:
        """Return what the model says to a request."""
        if asked.is_side:
            return side(asked)
        prompt = next((word for word in reversed(words(asked)) if word in self._steps), "")
        steps = self._steps.get(prompt, ())
        # The conversation is sent whole each time, so how far it got can be read from it.
        begun = max((at for at, turn in enumerate(asked.turns) if prompt and prompt in turn.text), default=0)
        results = [turn.text for turn in asked.turns[begun:] if turn.role == "tool"]
        if len(results) < len(steps):
            step = steps[len(results)]
            return step if isinstance(step, ModelAnswer) else step(asked)
        pulled = results[len(steps) :]
        if prompt not in self._readers or not _goes_on_reading(pulled):
            return ModelAnswer.text(LAST_WORD)
        # Gemini CLI takes a call that is repeated to the letter for a loop, and ends the turn.
        return ModelAnswer.call("inbox_pull", {"limit": 20 + len(pulled)})


def _goes_on_reading(results: Sequence[str]) -> bool:
    """Whether a model that reads all that waits has not come to the end, after some results of `inbox_pull`."""
    if not results:
        return True
    left = _REMAINING.search(results[-1])
    return len(results) < MAX_PULLS and left is not None and int(left[1]) > 0


@dataclass(slots=True)
class HostSession:
    """A session in a terminal."""

    host: ObservedHost
    screen: TerminalProgram

    def prompt(self, *steps: Step) -> str:
        """Type a prompt that the model follows with some steps; return it."""
        prompt = new_prompt()
        self.host.script.give(prompt, steps)
        self.host.observer.note(f"{prompt} is typed")
        self.screen.submit(prompt)
        return prompt

    def leave(self) -> None:
        """End the session as a person does, and return when its process is gone."""
        self.screen.submit(HABITS[self.host.name].leave)
        until(
            lambda: not self.screen.is_running,
            "the host ends when it is told to",
            QUIT_SECONDS,
            pause_seconds=LOOK_SECONDS,
        )
        self.host.observer.note("the session was left")

    def kill(self) -> None:
        """End the host and everything it started at once, so that no hook of it can run."""
        kill_tree(self.screen.pid, self.host.daemon_pid)
        until(lambda: not self.screen.is_running, "the host is gone", QUIT_SECONDS)
        self.host.observer.note("the host was killed")


@dataclass(slots=True)
class ObservedHost:
    """One connected host, its model and an observer."""

    stage: Stage
    observer: Observer
    terminals: ExitStack
    script: PromptScript = field(default_factory=PromptScript)
    _kept: set[str] = field(default_factory=set[str])  # what was left by earlier situations, and the host still has

    @property
    def name(self) -> str:
        """The host's name."""
        return self.stage.host.name

    @property
    def label(self) -> str:
        """What people are told of it: its name, and its machine on a satellite."""
        is_elsewhere = self.stage.store_home != self.stage.harken_home
        return f"{self.name} on {MACHINE}" if is_elsewhere else self.name

    @property
    def habits(self) -> Habits:
        """What is special about the host."""
        return HABITS[self.name]

    @property
    def daemon_pid(self) -> int:
        """The process of the daemon that runs now, or ran last."""
        return int(DaemonProcess(self.stage.harken_home).facts["pid"])

    def sessions(self) -> Sequence[Json]:
        """Return the sessions of this situation that Harken knows; none while no daemon answers."""
        try:
            found = DaemonProcess(self.stage.harken_home).call("status")["sessions"]
        except OSError:
            return []
        return [each for each in found if each["host"] == self.name and each["session"] not in self._kept]

    @contextmanager
    def session(self) -> Iterator[HostSession]:
        """A session in a terminal that waits for its first prompt, and is left at the end.

        The terminal itself is closed with the home: closing it ends also what a host leaves behind on purpose.
        """
        screen = self.terminals.enter_context(self.stage.screen())
        try:
            screen.wait_for(self.stage.recipe.ready, READY_SECONDS)
            screen.wait_quiet()
            self.observer.note("a session was started")
            session = HostSession(self, screen)
            yield session
            if screen.is_running:
                session.leave()
        finally:
            if screen.is_running:
                kill_tree(screen.pid, self.daemon_pid)

    @contextmanager
    def headless(self, *steps: Step, reads_all: bool = False) -> Iterator[tuple[str, Headless]]:
        """A run without a terminal, with the prompt that the model follows."""
        prompt = new_prompt()
        self.script.give(prompt, steps, reads_all=reads_all)
        self.observer.note(f"a run is started with {prompt}")
        with self.stage.headless(prompt) as running:
            yield prompt, running
        self.observer.note("the run is over")

    def run(self, *steps: Step, reads_all: bool = False) -> str:
        """Run the host without a terminal to its end; return the prompt."""
        with self.headless(*steps, reads_all=reads_all) as (prompt, running):
            done = running.finish()
        assert done.returncode == 0, f"it ended with {done.returncode}: {done.stdout}{done.stderr}"
        return prompt

    def request(self, prompt: str, *, after: int = 0, seconds: float = ARRIVAL_SECONDS) -> ModelRequest:
        """Return the first request, from a number on, of a turn that a prompt began."""
        return self.stage.model.wait_for(lambda asked: follows(asked, prompt), seconds, after=after)

    def requests(self, prompt: str) -> Sequence[ModelRequest]:
        """Return the requests so far of a turn that a prompt began."""
        return [asked for asked in self.stage.model.requests if follows(asked, prompt)]

    def until_idle(self, count: int = 1) -> None:
        """Return when so many sessions are idle, with a way to wake them if the host has one, and none is busy."""
        until(
            lambda: self._idle(self.sessions()) >= count,
            f"{count} sessions are idle, now {self.sessions()}",
            IDLE_SECONDS,
            pause_seconds=LOOK_SECONDS,
        )

    def _idle(self, sessions: Sequence[Json]) -> int:
        """Return how many sessions are idle and can be woken if the host can; none while one is busy."""
        is_ready = [
            each["presence"] == "idle" and (each["can_wake"] or not self.habits.can_be_woken) for each in sessions
        ]
        return 0 if any(each["presence"] == "busy" for each in sessions) else sum(is_ready)

    def kill_daemon(self) -> None:
        """End the daemon with SIGKILL: whoever needs it starts another."""
        daemon = psutil.Process(self.daemon_pid)
        daemon.kill()
        until(lambda: is_gone(daemon), "the daemon is gone", STEP_SECONDS)
        self.observer.note("the daemon was killed")

    def begin(self) -> Observer:
        """Begin another situation: its messages are judged apart from earlier ones."""
        self.observer = Observer(self.stage)
        if self.habits.is_kept:
            self._kept |= {str(each["session"]) for each in self.sessions()}
        return self.observer

    def conclude(self, *others: ObservedHost) -> None:
        """Let a last session read whatever was not seen, and fail if anything was wrong with any message.

        `others` were played at the same time, and are judged together.
        """
        __tracebackhide__ = True
        for host in (self, *others):
            host.finish()
        if wrong := "\n\n".join(filter(None, (host.observer.report() for host in (self, *others)))):
            raise AssertionError(wrong)

    def finish(self) -> None:
        """Let a last session read whatever was not seen, and look at every message."""
        observer = self.observer
        observer.settle()
        if any(observer.seen_at(message) is None for message in observer.messages):
            observer.note("a last session reads what is left")
            self.run(reads_all=True)
            observer.unknowable.clear()
            observer.settle()
        observer.check()

    def nothing_for(self, seconds: float, message: SentMessage) -> bool:
        """Return whether a message stays away from the model for a time."""
        try:
            self.stage.model.wait_for(lambda asked: is_whole(asked, message.text), seconds)
        except TimeoutError:
            return True
        return False


def follows(asked: ModelRequest, prompt: str) -> bool:
    """Whether a request is one of the turn that a prompt began."""
    return not asked.is_side and asked.count(prompt) > 0


def let_pass(host: ObservedHost, seconds: float) -> None:
    """Let a time pass in which nothing is expected."""
    with contextlib.suppress(TimeoutError):
        host.stage.model.wait_for(lambda _asked: False, max(0.0, seconds))


def kill_tree(pid: int, spared: int) -> None:
    """End a process and all that it started, except the daemon."""
    root = psutil.Process(pid)
    tree = [each for each in (root, *root.children(recursive=True)) if each.pid != spared]
    # First those that could start others.
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(tree[1:], QUIT_SECONDS)


def is_gone(process: psutil.Process) -> bool:
    """Whether a process has ended, also when nobody has asked for its exit code."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def frozen(pids: Sequence[int]) -> Iterator[None]:
    """Processes that do nothing while the block lasts, as on a machine that is too slow."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def observed(stage: Stage, join: Callable[[Stage], None] = lambda _: None) -> Iterator[ObservedHost]:
    """Harken beside a host that was prepared, and the two connected; everything is ended with the block.

    `join` may make it a satellite of another Harken first.
    """
    stage.harken_home.mkdir(mode=0o700)
    config = stage.harken_home / "config.toml"
    config.write_text(CONFIG, encoding="utf-8")
    config.chmod(0o600)
    # opencode fetches a package for plugins at every start until it has it, and there is no network here.
    (stage.user / ".npmrc").write_text("offline=true\n", encoding="utf-8")
    try:
        with ExitStack() as terminals:
            join(stage)
            stage.harken("up")
            stage.harken("connect", stage.host.name, "--yes")
            stage.harken("allow", KNOWN_SENDER)
            host = ObservedHost(stage, Observer(stage), terminals)
            stage.model.follow(host.script)
            yield host
    finally:
        stage.end_everything()


@contextmanager
def installed(name: str, join: Callable[[Stage], None] = lambda _: None) -> Iterator[ObservedHost]:
    """A host in a home of its own, connected to a Harken of its own, or to a satellite that `join` makes."""
    is_there = (PROGRAMS / interactive(name).program).exists()
    assert is_there, f"{name} is not installed: run `make test-hosts` once, it installs every host"
    # A short name: sockets are made below it, and their paths are limited.
    with tempfile.TemporaryDirectory(prefix="harken-", ignore_cleanup_errors=True) as folder, MockModel() as model:
        stage = Stage(host=host_named(name), folder=Path(folder).resolve(), model=model)
        stage.prepare()
        with observed(stage, join) as host:
            yield host
