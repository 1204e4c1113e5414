"""Ending a task: it takes no more mail, what was seeded goes, and a worktree goes only when nothing is lost with it.

What is uncommitted is never removed. What git ignores may be worth as much, a file with secrets or a week of results:
a person is asked about it, nobody else decides. A branch stays when it is the only one with its commits.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from harken.cli.task_show import as_json, has_folder
from harken.cli.verbs import Invocation
from harken.control.client import DaemonClient, Result
from harken.display import counted, one_line
from harken.errors import Conflict, UserError
from harken.hosts.connect.plan import local_place
from harken.hosts.registry import short
from harken.workspaces.seeding import SeedReport, unseed
from harken.workspaces.tasks import WorktreeOutlook, remove_task_worktree, worktree_outlook


def finish_task(asked: Invocation, name: str, *, is_removed: bool | None) -> None:
    """Let a task be done. `is_removed`: what the person said about its worktree; None: they are asked, if anybody."""
    with DaemonClient(asked.home) as daemon:
        task = daemon.ask("task_show", task=name)
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
    with DaemonClient(asked.home) as daemon:
        task = daemon.ask("task_show", task=name)
        is_lost = not has_folder(task)
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
    if asked.as_json:
        asked.print_json({**removed, "notes": notes})
        return
    asked.screen.line(f"{one_line(task['id'])} is removed; its messages stay until they are old.")
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
