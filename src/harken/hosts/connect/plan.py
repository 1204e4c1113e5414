"""What `connect` would do to a host, as values: shown, asked about, done, and undone by `hosts/connect/apply.py`.

Values; only `local_place` reads where this process runs. A host module makes the plan from what it finds and writes
nothing itself. A plan for a host that is connected already and current has no steps.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Final, Protocol, Self

CONTEXT_LINES: Final = 2
DEFAULT_VARIABLE: Final = "HARKEN_TOKEN"  # where a host finds its token, unless you name another variable


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallTarget:
    """Where a host's settings are, and where Harken is."""

    user: Path  # the person's home folder
    environ: Mapping[str, str]  # the person's environment: some hosts keep their settings elsewhere
    project: Path | None  # set: connect this folder only, not the person's every session
    harken: Path  # Harken's own home
    python: str  # the interpreter that runs the edge
    edge: Path  # the folder with the edge's scripts
    has_shell: bool = True  # hosts run commands with `sh`; False on Windows
    is_for_tasks: bool = False  # the project is a main checkout: only what the host reads from there in its worktrees
    has_approvals: bool = False  # the person answers elsewhere too what the host asks before it uses a tool
    can_tell: bool = True  # False: the file that agents are told by is the repository's own, and stays as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteInbox:
    """An inbox on another machine, and where a host finds the token for it; the token itself is not in here."""

    url: str
    variable: str = DEFAULT_VARIABLE
    token_file: str = ""  # in place of the variable, for hosts that can read a file


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """What you chose. A way that costs you something is never a default."""

    wake: str = ""  # a way to be woken that is not the host's default, by the host's own name for it
    remote: RemoteInbox | None = None  # the host is connected by URL


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdit:
    """One file, as it is and as it should be. None: there is no such file."""

    path: Path
    before: bytes | None
    after: bytes | None
    why: str  # one short line for people
    is_ours: bool = False  # the file is Harken's alone: shown by name, not as a diff

    @property
    def deed(self) -> str:
        """What is done to the file, in a word."""
        if self.before is None:
            return "create"
        return "remove" if self.after is None else "change"

    def diff(self) -> Iterator[str]:
        """Yield the lines of a unified diff, without the names of the files."""
        before, after = _lines(self.before), _lines(self.after)
        for number, line in enumerate(unified_diff(before, after, n=CONTEXT_LINES, lineterm="")):
            if number > 1:
                yield line
        if before == after and self.before != self.after:
            yield "(only the line ends, or whether there is a file at all)"


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandStep:
    """A command of the host itself, for what is safer left to it."""

    argv: tuple[str, ...]
    undo: tuple[str, ...]
    why: str
    environ: Mapping[str, str]  # the whole environment it runs with
    touches: tuple[Path, ...]  # files and folders that it may write: looked at before and after


Step = FileEdit | CommandStep


def is_change(step: Step) -> bool:
    """Whether a step does anything."""
    return isinstance(step, CommandStep) or step.before != step.after


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectPlan:
    """What connecting means here. Steps that would change nothing are left out."""

    host: str
    steps: Sequence[Step]
    notes: Sequence[str] = ()  # what people should know: what this host cannot do, what they must do themselves
    blocks: Sequence[Path] = ()  # files with a marked block of ours, changed now or not: other hosts may use the same

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(filter(is_change, self.steps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledProgram:
    """An installed host."""

    program: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """One thing that was looked at: is it as it should be, and what to do when it is not."""

    what: str
    is_good: bool
    hint: str = ""

    @classmethod
    def of(cls, what: str, hint: str, *, is_good: bool) -> Self:
        """Return a finding that gives the hint only where it is needed."""
        return cls(what=what, is_good=is_good, hint="" if is_good else hint)


class RemoteEntry(Protocol):
    """How one host names an MCP server on another machine in its settings. Without state; writes nothing."""

    @property
    def authority(self) -> str:
        """The environment variable that tells the host of a certificate authority of your own."""
        ...

    @property
    def takes_file(self) -> bool:
        """Whether the host can read the token from a file."""
        ...

    @property
    def note(self) -> str:
        """What is special about the host without its hooks, in a sentence; empty when nothing is."""
        ...

    def steps(self, place: InstallTarget, inbox: RemoteInbox | None) -> Sequence[Step]:
        """Return what puts the entry there, or takes it out when there is no inbox."""
        ...


class Connector(Protocol):
    """How one host is connected. Implemented once per host, without state; `wakes` has a default: none."""

    @property
    def name(self) -> str:
        """The host's name."""
        ...

    @property
    def wakes(self) -> Mapping[str, str]:
        """The ways to be woken that a person may choose, each with one sentence on what it costs."""
        return {}

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program; None when there is none. Runs it for its version, within seconds."""
        ...

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now. Raises `UserError` when a settings file cannot be understood."""
        ...

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take out our entries by hand, where `connect`'s own record no longer fits the files."""
        ...

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Look, after writing, whether the host sees what was written; by its own commands where it has them."""
        ...


def local_place(harken: Path, project: Path | None = None) -> InstallTarget:
    """Return the place of this machine, of one project or of every folder; `harken` is the home."""
    return InstallTarget(
        user=Path.home(),
        environ=dict(os.environ),
        project=Path(os.path.normpath(Path.cwd() / project)) if project else None,
        harken=harken,
        python=sys.executable,
        edge=Path(__file__).parent.parent.parent / "edge",
        has_shell=sys.platform != "win32",
    )
