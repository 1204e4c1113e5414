"""Making, starting and ending a task: what a person is told and asked. Words and options are in `task.py`.

The daemon is told before git writes anything, and told again when git fails: a command that is killed in between leaves
a task with a missing folder, which can be seen and removed. The agent is the person's own program in their own
environment; what is in the mail stands in no command, where everybody on the machine could read it. A worktree goes
only when nothing is lost with it, and what git ignores there is the person's to judge.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from harken.cli.authority import refuse_agent
from harken.cli.edge import become
from harken.cli.invocation import Invocation
from harken.cli.output import note_to_person
from harken.cli.task_show import as_json, has_folder, missing_hint, refuse_elsewhere
from harken.config.satellite import refuse_on_satellite
from harken.control.client import DaemonClient, Result
from harken.display import counted, one_line
from harken.errors import Conflict, HarkenError, NotFound, UserError
from harken.hosts.connect.plan import local_place
from harken.hosts.connect.record import records
from harken.hosts.host import names_of_marks
from harken.hosts.registry import host_marks, host_name, host_names, hosts, interactive, short, title_of
from harken.workspaces.seeding import SeedReport, seed, unseed
from harken.workspaces.tasks import (
    AgentCommand,
    TaskRequest,
    WorktreeOutlook,
    command_of,
    find_ground,
    ground_notes,
    is_installed,
    remove_task_worktree,
    run_in_tmux,
    worktree_outlook,
)
from harken.workspaces.worktree import Repository, SpotTaken, WorktreeSpot, add_worktree


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWay:
    """How a task is to be started."""

    is_printed: bool = False
    is_tmux: bool = False
    is_hosted: bool = False


def make_task(asked: Invocation, request: TaskRequest) -> None:
    """Make a task and say how to begin."""
    refuse_on_satellite(asked.home, "making a task with a folder")
    agent = host_name(request.agent) if request.agent else ""
    if request.is_hosted and not agent:
        raise UserError("Which agent is to be hosted?", f"Say --agent with one of: {', '.join(_hostable())}.")
    with asked.daemon() as daemon:
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
    if request.is_hosted:
        made = asked.ask("task_host", task=made["id"], agent=agent)
    if asked.gave_json({**as_json(made), "seeded": list(seeded.files), "notes": [*notes, *seeded.about]}):
        return
    screen = asked.screen
    where = f"{made['branch']} in {short(ground.folder)}" if made["branch"] else short(ground.folder)
    screen.line(screen.fit(f"{made['id']}  {where}"))
    if seeded.files:
        names = ", ".join(seeded.names(ground.folder))
        state = "is connected there" if is_installed(agent) else "is not installed here; its folder is ready for it"
        screen.text(f"{title_of(agent)} {state}: {names}. git leaves these files alone.")
    for note in notes:
        screen.text(note)
    if made["hosted"]:
        _say_hosted(asked, made)
    else:
        screen.text(f"Start it: harken task start {made['id']}")


def _hostable() -> list[str]:
    return [name for name, host in hosts().items() if host.acp]


def _say_hosted(asked: Invocation, task: Result) -> None:
    """Say how the agent of a hosted task stands, and where it is seen."""
    hosted, title = task["hosted"], title_of(task["hosted"]["agent"])
    if hosted["state"] == "stopped":
        note_to_person(f"{title} does not run: {hosted['problem']} Try again: harken task start {task['id']}")
    elif hosted["state"] == "starting":
        note_to_person(f"{title} is still starting. Look again: harken task show {task['id']}")
    else:
        asked.screen.text(f"{title} runs, hosted. Watch it: harken open, or harken task show {task['id']}")


def seed_task(asked: Invocation, task: str, folder: Path, host: str) -> SeedReport:
    """Connect a host in a task's folder, unless an agent asks."""
    return seed(local_place(asked.home.path), task, folder, host, partial(refuse_agent, asked, "connect hosts"))


def _check_out(daemon: DaemonClient, task: str, repository: Repository, spot: WorktreeSpot) -> None:
    is_kept = False
    try:
        add_worktree(repository, spot)
        is_kept = True
    except SpotTaken:
        is_kept = True  # the same task was made twice at once: it belongs to the first
        raise
    finally:
        if not is_kept:
            with suppress(HarkenError):  # what git said is the reason; a task that stays is shown without its folder
                daemon.ask("task_done", task=task)
                daemon.ask("task_rm", task=task)


def start_task(asked: Invocation, name: str, extra: Sequence[str], *, agent: str, way: StartWay) -> None:
    """Start the agent of a task, or say how."""
    refuse_on_satellite(asked.home, "starting a task")
    task = asked.ask("task_show", task=name)
    if way.is_hosted or (task["hosted"] and not way.is_printed and not way.is_tmux):
        _start_hosted(asked, task, extra, agent)
        return
    if task["state"] == "done":
        raise Conflict(f"Task {task['id']!r} is done.", 'Make another: harken task new "TITLE"')
    refuse_elsewhere(task)
    if not has_folder(task):
        raise Conflict(f"The folder of task {task['id']!r} is missing: {task['dir']}", missing_hint(task))
    host = _host(asked, task, agent)
    command = command_of(task, host, extra)
    is_run = not way.is_printed and (way.is_tmux or (not asked.as_json and sys.stdin.isatty() and sys.stdout.isatty()))
    if is_run and not command.is_installed:
        fact = interactive(host)
        raise NotFound(f"{title_of(host)} is not installed.", f"Install it: {fact.install}. Or use --print.")
    seeded = seed_task(asked, task["id"], command.folder, host)
    where = run_in_tmux(task["id"], command) if is_run and way.is_tmux else ""
    if asked.as_json:
        told = {"task": as_json(task), "argv": list(command.argv), "command": command.line}
        asked.print_json(
            {**told, "tmux": where or None, "seeded": list(seeded.files), "notes": [*seeded.notes, *seeded.about]}
        )
        return
    for note in seeded.notes:
        note_to_person(note)
    if where:
        asked.screen.line(f"Runs in tmux: {where}" + ("" if os.environ.get("TMUX") else f"  (tmux attach -t {where})"))
    elif is_run:
        _become(command)
    else:
        asked.screen.line(command.line)
        if not command.is_installed:
            note_to_person(f"{title_of(host)} is not installed here: {interactive(host).install}")


def _start_hosted(asked: Invocation, task: Result, extra: Sequence[str], agent: str) -> None:
    """Let the daemon start the agent of a task."""
    if extra:
        raise UserError("A hosted agent takes no arguments.", "Set it up by its own settings.")
    refuse_elsewhere(task)
    host = _host(asked, task, agent or (task["hosted"] or {}).get("agent", ""))
    seeded = seed_task(asked, task["id"], Path(task["dir"]), host) if has_folder(task) else SeedReport()
    started = asked.ask("task_host", task=task["id"], agent=host)
    if asked.gave_json({**as_json(started), "seeded": list(seeded.files), "notes": [*seeded.notes, *seeded.about]}):
        return
    for note in seeded.notes:
        note_to_person(note)
    _say_hosted(asked, started)


def _host(asked: Invocation, task: Result, agent: str) -> str:
    """Return the host that is meant: named now, named when the task was made, or the only one that is connected."""
    if agent or task["agent"]:
        return host_name(agent or task["agent"])
    connected = [record.host for record in records(asked.home.path) if not record.project and not record.url]
    if len(connected) == 1:
        return connected[0]
    raise UserError("Which agent?", f"Say --agent with one of: {', '.join(connected or host_names())}.")


def _become(command: AgentCommand) -> NoReturn:
    """Let the agent take the place of this command."""
    sys.stdout.flush()
    try:
        os.chdir(command.folder)
        # It is to be the task of this folder, whatever task the person's shell is for, and nobody's helper.
        for name in ("HARKEN_TASK", *names_of_marks(host_marks())):
            os.environ.pop(name, None)
        if sys.platform == "win32":
            sys.exit(subprocess.call(command.argv))
        become(command.argv)
    except OSError as exc:
        raise UserError(f"{command.argv[0]} cannot be started: {exc.strerror}.", "Try it by hand: --print") from exc


def finish_task(asked: Invocation, name: str, *, is_removed: bool | None) -> None:
    """Let a task be done. `is_removed`: what the person said about its worktree; None: they are asked."""
    refuse_on_satellite(asked.home, "ending a task")
    with asked.daemon() as daemon:
        task = daemon.ask("task_show", task=name)
        if task["has_worktree"]:
            refuse_elsewhere(task)
        outlook = None
        if task["has_worktree"]:
            others = [each for each in daemon.ask("task_list")["tasks"] if each["id"] != task["id"]]
            outlook = WorktreeOutlook(folder=Path(task["dir"]))
            if is_removed is not False:
                outlook = worktree_outlook(asked.home.path, task, others)
        can_go = _decide(asked, task, outlook, is_removed=is_removed)
        done = daemon.ask("task_done", task=task["id"])
    seeded = unseed(local_place(asked.home.path), task["id"])
    notes = [*seeded.notes, *(remove_task_worktree(task) if can_go else _kept(outlook))]
    gone = bool(task["has_worktree"]) and not has_folder(task)
    if asked.as_json:
        told = {"unseeded": list(seeded.files), "is_worktree_removed": gone, "notes": notes}
        asked.print_json({**as_json(done), "refused": done["refused"], **told})
        return
    _say_done(asked, done, seeded, notes)


def remove_task(asked: Invocation, name: str) -> None:
    """Forget a task that is done, or whose folder is missing."""
    refuse_on_satellite(asked.home, "removing a task")
    with asked.daemon() as daemon:
        task = daemon.ask("task_show", task=name)
        if task["state"] != "done":
            refuse_elsewhere(task)
        is_lost = not has_folder(task) and not task["machine"]
        if task["state"] != "done" and not is_lost:
            raise Conflict(f"Task {task['id']!r} is not done.", f"End it first: harken task done {task['id']}")
        refused = daemon.ask("task_done", task=task["id"])["refused"] if task["state"] != "done" else 0
        removed = daemon.ask("task_rm", task=task["id"])
    notes = list(unseed(local_place(asked.home.path), task["id"]).notes)
    if refused:
        notes.append(
            f"{refused} message(s) that it had not seen are refused. See: harken list --mailbox {task['mailbox']}"
        )
    if task["has_worktree"] and is_lost:
        notes += remove_task_worktree(task)
    elif task["has_worktree"]:
        notes.append(f"Its worktree stays: {short(Path(task['dir']))}")
    if asked.gave_json({**removed, "notes": notes}):
        return
    asked.screen.line(f"{one_line(task['id'])} is removed; its messages stay until they expire.")
    for note in notes:
        asked.screen.text(note)


def _decide(asked: Invocation, task: Result, outlook: WorktreeOutlook | None, *, is_removed: bool | None) -> bool:
    if outlook is None:
        if is_removed:
            raise UserError(f"Harken did not make {task['dir']}, and does not remove it.", "Leave out the option.")
        return False
    if not outlook.folder.exists():
        return True
    if is_removed is False:
        return False
    can_ask = not asked.as_json and sys.stdin.isatty() and sys.stdout.isatty()
    if outlook.reason or not can_ask:
        return _without_asking(outlook, is_removed=bool(is_removed))
    if is_removed and not outlook.losses.ignored:
        return True
    what = f", with {outlook.losses.sentence}" if outlook.losses.ignored else ""
    question = one_line(f"Remove the worktree {short(outlook.folder)}{what}?")
    return click.confirm(question, default=not outlook.losses.ignored)


def _without_asking(outlook: WorktreeOutlook, *, is_removed: bool) -> bool:
    if not is_removed:
        return False
    reason = outlook.reason or (f"It has {outlook.losses.sentence} files." if outlook.losses.ignored else "")
    if reason:
        raise Conflict(f"{short(outlook.folder)} is not removed, and the task is not ended. {reason}", outlook.by_hand)
    return True


def _kept(outlook: WorktreeOutlook | None) -> list[str]:
    if outlook is None:
        return []
    return [f"The worktree stays: {short(outlook.folder)}. {outlook.reason}".strip()]


def _say_done(asked: Invocation, done: Result, seeded: SeedReport, notes: Sequence[str]) -> None:
    screen = asked.screen
    count = done["refused"]
    refused = f" What it had not seen is refused: {counted(count, 'message')}." if count else ""
    screen.line(f"{one_line(done['id'])} is done.{refused}")
    if seeded.files:
        names = ", ".join(seeded.names(Path(done["dir"])))
        screen.text(f"What was written for it is as it was: {names}.")
    for note in notes:
        screen.text(note)
