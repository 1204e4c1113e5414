"""A task on disk: where it can be made, and what would be lost with its worktree when it ends.

git does the work (`worktree.py`). It knows no daemon: which tasks there are is the caller's business. Nothing that
exists is overwritten, and nothing with changes is removed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harken.errors import HarkenError, UserError
from harken.git.repository import starts_at_checkout
from harken.hosts.registry import short
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
    if task["sessions"]:
        return "A session runs in it."
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
