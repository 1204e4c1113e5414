"""A task on disk: where it can be made, the command of its agent, and what would be lost with its worktree at the end.

git does the work (`worktree.py`). It knows no daemon: which tasks there are is the caller's business. Nothing that
exists is overwritten, and nothing with changes is removed. When mail waits, the command of the agent has a first
prompt, so that the host's prompt hook brings it; what is in the mail stands in no command, where everybody on the
machine could read it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harken.errors import HarkenError, NotFound, Unavailable, UserError
from harken.git import starts_at_checkout
from harken.hosts.host import without_marks
from harken.hosts.registry import host_marks, interactive, short
from harken.workspaces.seeding import seeded_names
from harken.workspaces.worktree import (
    Repository,
    WorktreeLosses,
    WorktreeSpot,
    current_branch,
    drop_branch,
    find_repository,
    has_submodules,
    is_worktree,
    losses,
    plan_spot,
    remove_worktree,
)

TaskRecord = dict[str, Any]
"""A task as the verbs give it: JSON, documented in the reference."""
OPENING: Final = "Begin with the messages that wait for this task."
TMUX_SESSION: Final = "harken"
TMUX_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """What the person asked for."""

    title: str
    folder: Path
    id: str = ""
    agent: str = ""
    links: tuple[str, ...] = ()
    prompt: str = ""
    branch: str = ""
    start: str = ""
    is_here: bool = False
    is_trusted: bool = False  # the repository: git may start what its settings name
    is_hosted: bool = False  # the daemon runs its agent, without a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGround:
    """Where the task will be: a worktree to be made, or a folder as it is."""

    folder: Path
    repository: Repository | None = None
    branch: str = ""
    spot: WorktreeSpot | None = None

    @property
    def repo(self) -> str:
        """The repository that it belongs to; nothing when to none."""
        return str(self.repository.main) if self.repository else ""

    @property
    def has_worktree(self) -> bool:
        """Whether the folder is a worktree of its own."""
        return self.spot is not None


def find_ground(request: TaskRequest, name: str) -> TaskGround:
    """Return where a task can be; raises when something is in the way. Writes nothing."""
    folder = request.folder.resolve()
    repository = find_repository(folder)
    if repository and not request.is_here and not request.is_trusted and (found := starts_at_checkout(folder)):
        raise UserError(
            f"The settings of this repository could make git run programs: {found}.",
            "If they are yours, say --trust-repository. The folder as it is: --here",
        )
    if repository and not request.is_here:
        spot = plan_spot(repository, name, request.branch, request.start, folder=folder)
        return TaskGround(folder=spot.path, repository=repository, branch=spot.branch, spot=spot)
    if request.branch or request.start:
        reason = "With --here" if request.is_here else f"{folder} is not in a git repository, so"
        raise UserError(f"{reason} no branch is created.", "Leave out --branch and --from.")
    if not request.is_here and folder in (Path.home().resolve(), Path(folder.anchor)):
        raise UserError(
            f"Every session below {folder} would belong to this task.",
            "Name a folder with --dir, or use this one anyway: --here",
        )
    return TaskGround(folder=folder, repository=repository, branch=current_branch(folder) if repository else "")


def ground_notes(ground: TaskGround) -> list[str]:
    """Return what a person has to know of a folder that was made."""
    if ground.spot is None or not has_submodules(ground.folder):
        return []
    return [f"Its submodules are not checked out: git -C {os.fspath(ground.folder)} submodule update --init"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeOutlook:
    """What would be lost with a worktree, and what else speaks against removing it."""

    folder: Path
    losses: WorktreeLosses = field(default_factory=WorktreeLosses)
    obstacle: str = ""  # one sentence

    @property
    def reason(self) -> str:
        """Why it has to stay; nothing when it may go."""
        if self.obstacle:
            return self.obstacle
        return f"It has changes: {self.losses.sentence}." if self.losses.is_work else ""

    @property
    def by_hand(self) -> str:
        """How a person removes it all the same."""
        return f"Look at it; to remove it all the same: git worktree remove --force {short(self.folder)}"


def worktree_outlook(harken: Path, task: TaskRecord, others: Sequence[TaskRecord]) -> WorktreeOutlook:
    """Look what would be lost with the worktree of a task, and what else speaks against removing it."""
    folder = Path(task["dir"])
    if not folder.is_dir():
        return WorktreeOutlook(folder=folder)
    try:
        obstacle = _obstacle(folder, task, others)
        if obstacle:
            return WorktreeOutlook(folder=folder, obstacle=obstacle)
        return WorktreeOutlook(folder=folder, losses=losses(folder, apart_from=seeded_names(harken, task["id"])))
    except HarkenError as exc:  # a repository that is broken must not keep a task from being done
        return WorktreeOutlook(folder=folder, obstacle=f"{exc.message} {exc.hint}".strip())


def _obstacle(folder: Path, task: TaskRecord, others: Sequence[TaskRecord]) -> str:
    inside = [each["id"] for each in others if Path(each["dir"]).is_relative_to(folder)]
    if inside:
        return f"Another task is in it: {inside[0]}."
    if any(not each["is_hosted"] for each in task["sessions"]):
        return "A session runs in it."  # one that the daemon hosts ends with the task
    if _is_in(folder):
        return "You are in it."
    if found := starts_at_checkout(folder):
        return f"The settings of its repository could make git run programs: {found}."
    return "" if is_worktree(folder) else "git does not know it as a worktree."


def _is_in(folder: Path) -> bool:
    try:
        return Path.cwd().is_relative_to(folder)
    except OSError:
        return False  # where this runs is gone itself


def remove_task_worktree(task: TaskRecord) -> list[str]:
    """Remove a worktree, and its branch where another has all its commits; return what to say."""
    folder, repository, branch = Path(task["dir"]), Path(task["repo"]), task["branch"]
    was_there = folder.exists()
    try:
        remove_worktree(repository, folder)
        reason = drop_branch(repository, branch) if branch else ""
    except HarkenError as exc:
        return [f"{exc.message} {exc.hint}".strip()]
    told = [f"The worktree is removed: {short(folder)}."] if was_there else []
    return [*told, f"The branch {branch} stays: {reason}."] if reason else told


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """What starts an agent."""

    host: str
    folder: Path
    argv: tuple[str, ...]
    is_installed: bool

    @property
    def line(self) -> str:
        """The command for a shell."""
        return f"cd {quoted(str(self.folder))} && {' '.join(map(quoted, self.argv))}"


def quoted(word: str) -> str:
    """Return a word for a shell that does nothing to a terminal: what cannot be printed is written as its bytes."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_shown, word)) + "'"


def _shown(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))


def is_installed(host: str) -> bool:
    """Whether a host's program is here."""
    return bool(_found(interactive(host).program)[1])


def _found(program: str) -> tuple[str, str | None]:
    """Return how a program is called, and where it is; None when it is not installed."""
    found = shutil.which(program)
    beside = shutil.which(program, path=str(Path.home() / ".local" / "bin"))
    return (program if found else beside or program), found or beside


def command_of(task: TaskRecord, host: str, extra: Sequence[str]) -> AgentCommand:
    """Return what starts a host in a task's folder, with a first prompt when mail waits and no session is there."""
    fact = interactive(host)
    program, found = _found(fact.program)
    prompt = OPENING if task["pending"] and task["state"] != "running" else ""
    return AgentCommand(
        host=host,
        folder=Path(task["dir"]),
        argv=fact.command(program, prompt, extra),
        is_installed=bool(found),
    )


def run_in_tmux(name: str, command: AgentCommand) -> str:
    """Run the agent in a new window of tmux, and return where that is."""
    program = shutil.which("tmux")
    if program is None:
        raise NotFound("tmux is not installed.", "Install it, or leave out --tmux.")
    has_session = not _tmux(program, "has-session", "-t", f"={TMUX_SESSION}").returncode
    words = tmux_words(os.environ, name, command, has_session=has_session)
    done = _tmux(program, *words)
    if done.returncode:
        raise UserError("tmux did not open a window.", done.stderr.decode("utf-8", "replace").strip())
    return done.stdout.decode("utf-8", "replace").strip()


def tmux_words(environ: Mapping[str, str], name: str, command: AgentCommand, *, has_session: bool) -> tuple[str, ...]:
    """Return what tmux is told: a window where the person is, else in a session of ours."""
    # Of a single word tmux makes a line for a shell; of several, the arguments of a program.
    argv = command.argv if len(command.argv) > 1 else (shlex.quote(command.argv[0]),)
    window = ("-n", _literal(name), "-c", _literal(str(command.folder)), "-P", "-F", "#{session_name}:#{window_name}")
    if environ.get("TMUX"):
        return ("new-window", *window, "--", *argv)
    if has_session:
        return ("new-window", "-d", "-t", f"={TMUX_SESSION}:", *window, "--", *argv)
    return ("new-session", "-d", "-s", TMUX_SESSION, *window, "--", *argv)


def _literal(text: str) -> str:
    """Return a text in which tmux finds nothing to fill in."""
    return text.replace("#", "##")


def _tmux(program: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [program, *words],
            # A server that begins here gives it to every window that a person opens later.
            env=without_marks(os.environ, host_marks()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TMUX_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable("tmux does not answer.", "Look at it by hand: tmux list-sessions") from exc
