"""Making a task: its id from the daemon, then the task itself, then its worktree, then what its agent needs there.

The daemon is told before git writes anything, and told again when git fails: a command that is killed in between leaves
a task whose folder is missing, which can be seen and removed. Words and options are in `task.py`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

from harken.cli.authority import refuse_agent
from harken.cli.task_show import as_json
from harken.cli.verbs import Invocation
from harken.control.client import DaemonClient
from harken.errors import HarkenError
from harken.hosts.connect.plan import local_place
from harken.hosts.registry import host_name, short, title_of
from harken.workspaces.seeding import SeedReport, seed
from harken.workspaces.tasks import TaskRequest, find_ground, ground_notes
from harken.workspaces.worktree import Repository, WorktreeSpot, add_worktree


def make_task(asked: Invocation, request: TaskRequest) -> None:
    """Make a task and say how to begin."""
    agent = host_name(request.agent) if request.agent else ""
    with DaemonClient(asked.home) as daemon:
        name = request.id or daemon.ask("task_id", title=request.title)["id"]
        ground = find_ground(request, name)
        made = daemon.ask(
            "task_new",
            title=request.title,
            id=name,
            agent=agent,
            links=list(request.links),
            prompt=request.prompt,
            dir=str(ground.folder),
            repo=ground.repo,
            branch=ground.branch,
            has_worktree=ground.has_worktree,
        )
        if ground.spot and ground.repository:
            _check_out(daemon, made["id"], ground.repository, ground.spot)
    seeded = seed_task(asked, made["id"], ground.folder, agent) if agent else SeedReport()
    notes = [*ground_notes(ground), *seeded.notes]
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


def seed_task(asked: Invocation, task: str, folder: Path, host: str) -> SeedReport:
    """Connect a host in a task's folder, unless an agent asks."""
    return seed(local_place(asked.home.path), task, folder, host, partial(refuse_agent, asked, "connect hosts"))


def _check_out(daemon: DaemonClient, task: str, repository: Repository, spot: WorktreeSpot) -> None:
    is_made = False
    try:
        add_worktree(repository, spot)
        is_made = True
    finally:
        if not is_made:
            with suppress(HarkenError):  # what git said is the reason; a task that stays is shown without its folder
                daemon.ask("task_done", task=task)
                daemon.ask("task_rm", task=task)
