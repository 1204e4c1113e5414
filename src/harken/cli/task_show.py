"""How tasks look on the screen and as JSON. Titles are hostile text; folders may be gone, which is said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harken.cli.output import BOLD, DIM, NARROW, Screen, clock_time, cut
from harken.control.client import Result
from harken.display import one_line
from harken.errors import Conflict
from harken.hosts.registry import short, title_of

TITLE_WIDTH = 40
SHOWN_PARTS = 12
SHOWN_LINES = 4
GONE = "gone"


def has_folder(task: Result) -> bool:
    """Whether a task's folder is there."""
    return not task["machine"] and Path(task["dir"]).is_dir()


def as_json(task: Result) -> Result:
    """Return a task with what only this machine's files can say."""
    return {**task, "has_folder": has_folder(task)}


def show_tasks(screen: Screen, tasks: Sequence[Result]) -> None:
    """Print one line for each task."""
    is_narrow = 0 < screen.width < NARROW
    rows = []
    for task in tasks:
        title = one_line(task["title"])
        if screen.width:
            title = cut(title, TITLE_WIDTH)
        row = (task["id"], _doing(task), str(task["pending"] or ""), title, _where(task))
        rows.append(row[:-1] if is_narrow else row)
    screen.table(rows)


def show_task(screen: Screen, task: Result) -> None:
    """Print everything about a task."""
    screen.line(f"{screen.paint(one_line(task['id']), BOLD)}  {screen.fit(task['title'], len(task['id']) + 2)}")
    branch = task["branch"] + (" (a worktree of its own)" if task["has_worktree"] else "")
    rows = {
        "state": _doing(task),
        "folder": _where(task),
        "branch": branch,
        "agent": title_of(task["agent"]),
        "peers": ", ".join(task["peers"]) or "none: harken task link",
        "mailbox": f"{task['mailbox']}, {task['pending'] or 'nothing'} unread",
        **{name: clock_time(task[f"{name}_at"]) for name in ("created", "started", "done") if task[f"{name}_at"]},
    }
    if hosted := task["hosted"]:
        rows["hosted"] = f"{hosted['state']}. {hosted['problem']}".removesuffix(". ")
    screen.table([row for row in rows.items() if row[1]])
    for session in task["sessions"]:
        screen.line("  " + screen.paint(screen.fit(_session(session), 2), DIM))
    if hosted and "parts" in hosted:
        _show_parts(screen, hosted)


def _show_parts(screen: Screen, hosted: Result) -> None:
    """Print the newest of what a hosted agent said and did; the page shows the rest."""
    for step in hosted["plan"]:
        screen.line(screen.fit(f"  plan: {one_line(step['step'])}  {one_line(step['status'])}"))
    for part in hosted["parts"][-SHOWN_PARTS:]:
        said = part["text"].strip().splitlines()
        head = [f"{part['title']}  {part['status']}".strip()] if part["kind"] == "tool" else []
        for line in [*head, *said[-SHOWN_LINES:]]:
            screen.line(screen.fit(f"  {part['kind']}: {one_line(line)}"))


def refuse_elsewhere(task: Result) -> None:
    """Refuse what needs the folder of a task, where another machine has that."""
    if task["machine"]:
        raise Conflict(f"The folder of task {task['id']!r} is on {task['machine']}.", "Do it there.")


def missing_hint(task: Result) -> str:
    """Return what helps with a task without its folder."""
    return f"Remove the task: harken task rm {task['id']}"


def _doing(task: Result) -> str:
    return task["state"] if task["presence"] in (GONE, task["state"]) else f"{task['state']}, {task['presence']}"


def _where(task: Result) -> str:
    if task["machine"]:
        return f"{task['machine']}:{task['dir']}"
    is_lost = not has_folder(task) and task["state"] != "done"
    return ("(missing) " if is_lost else "") + short(Path(task["dir"]))


def _session(session: Result) -> str:
    known = [session.get(name) for name in ("host", "session", "presence")]
    return "session " + " ".join(str(word) for word in (*known, "hosted" if session.get("is_hosted") else "") if word)
