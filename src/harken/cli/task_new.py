"""Making a task: its id from the daemon, then the task itself, then its worktree, then what its agent needs there.

The daemon is told before git writes anything, and told again when git fails: a command that is killed in between leaves
a task whose folder is missing, which can be seen and removed. Words and options are in `task.py`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harken.cli.authority import refuse_agent
from harken.cli.task_show import as_json
from harken.cli.verbs import Invocation
from harken.control.client import Daemon, Result
from harken.errors import HarkenError, UserError
from harken.hosts.names import short, title_of
from harken.hosts.place import local_place
from harken.hosts.registry import host_name
from harken.hosts.repository import starts_at_checkout
from harken.workspaces.seeding import Seeded, seed
from harken.workspaces.worktree import Repository, Spot, add_worktree, current_branch, find_repository, has_submodules
from harken.workspaces.worktree import plan_spot as plan_worktree


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
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
class Ground:
    """Where the task will be: a worktree to be made, or a folder as it is."""

    folder: Path
    repository: Repository | None = None
    branch: str = ""
    spot: Spot | None = None

    @property
    def facts(self) -> Result:
        """What the daemon is told of it."""
        repo = str(self.repository.main) if self.repository else ""
        return {"dir": str(self.folder), "repo": repo, "branch": self.branch, "has_worktree": self.spot is not None}


def make_task(asked: Invocation, wanted: Wanted) -> None:
    """Make a task and say how to begin."""
    agent = host_name(wanted.agent) if wanted.agent else ""
    with Daemon(asked.home) as daemon:
        name = wanted.id or daemon.ask("task_id", title=wanted.title)["id"]
        ground = find_ground(wanted, name)
        made = daemon.ask(
            "task_new",
            title=wanted.title,
            id=name,
            agent=agent,
            links=list(wanted.links),
            prompt=wanted.prompt,
            **ground.facts,
        )
        if ground.spot and ground.repository:
            _check_out(daemon, made["id"], ground.repository, ground.spot)
    seeded = seed_task(asked, made["id"], ground.folder, agent) if agent else Seeded()
    notes = [*_notes(ground), *seeded.notes]
    if asked.as_json:
        asked.print_json({**as_json(made), "seeded": list(seeded.files), "notes": [*notes, *seeded.about]})
        return
    screen = asked.screen
    where = f"{made['branch']} in {short(ground.folder)}" if made["branch"] else short(ground.folder)
    screen.line(screen.fit(f"{made['id']}  {where}"))
    if seeded.files:
        names = ", ".join(seeded.names(ground.folder))
        screen.text(f"{title_of(agent)} is connected there: {names}. git leaves these files alone.")
    for note in notes:
        screen.text(note)
    screen.text(f"Start it: harken task start {made['id']}")


def seed_task(asked: Invocation, task: str, folder: Path, host: str) -> Seeded:
    """Connect a host in a task's folder, unless an agent asks."""
    return seed(local_place(asked.home.path), task, folder, host, partial(refuse_agent, asked, "connect hosts"))


def find_ground(wanted: Wanted, name: str) -> Ground:
    """Return where a task can be; raises when something is in the way. Writes nothing."""
    folder = wanted.folder.resolve()
    repository = find_repository(folder)
    if repository and not wanted.is_here and not wanted.is_trusted and (found := starts_at_checkout(folder)):
        raise UserError(
            f"The settings of this repository could make git run programs: {found}.",
            "If they are yours, say --trust-repository. The folder as it is: --here",
        )
    if repository and not wanted.is_here:
        spot = plan_worktree(repository, name, wanted.branch, wanted.start, folder=folder)
        return Ground(folder=spot.path, repository=repository, branch=spot.branch, spot=spot)
    if wanted.branch or wanted.start:
        reason = "With --here" if wanted.is_here else f"{folder} is not in a git repository, so"
        raise UserError(f"{reason} no branch is made.", "Leave out --branch and --from.")
    if not wanted.is_here and folder in (Path.home().resolve(), Path(folder.anchor)):
        raise UserError(
            f"Every session below {folder} would belong to this task.", "Name a folder with --dir, or insist: --here"
        )
    return Ground(folder=folder, repository=repository, branch=current_branch(folder) if repository else "")


def _check_out(daemon: Daemon, task: str, repository: Repository, spot: Spot) -> None:
    is_made = False
    try:
        add_worktree(repository, spot)
        is_made = True
    finally:
        if not is_made:
            with suppress(HarkenError):  # what git said is the reason; a task that stays is shown without its folder
                daemon.ask("task_done", task=task)
                daemon.ask("task_rm", task=task)


def _notes(ground: Ground) -> list[str]:
    if ground.spot is None or not has_submodules(ground.folder):
        return []
    return [f"Its submodules are not checked out: git -C {os.fspath(ground.folder)} submodule update --init"]
