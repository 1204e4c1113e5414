"""Starting the agent of a task: its command, printed, run in this terminal, or in a window of tmux.

The person's own program in their own environment. When mail waits, the command has a first prompt, so that the host's
prompt hook brings it; what is in the mail stands in no command, where everybody on the machine could read it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from harken.cli.edge import become
from harken.cli.output import note_to_person
from harken.cli.task_new import seed_task
from harken.cli.task_show import as_json, has_folder, missing_hint
from harken.cli.verbs import Invocation
from harken.control.client import DaemonClient, Result
from harken.errors import Conflict, NotFound, UserError
from harken.hosts.connect.record import records
from harken.hosts.host import names_of_marks
from harken.hosts.registry import host_marks, host_name, host_names, interactive, title_of
from harken.workspaces.agent_command import AgentCommand, command_of, run_in_tmux


def start_task(
    asked: Invocation, name: str, extra: Sequence[str], *, agent: str, is_printed: bool, is_tmux: bool
) -> None:
    """Start the agent of a task, or say how."""
    with DaemonClient(asked.home) as daemon:
        task = daemon.ask("task_show", task=name)
    if task["state"] == "done":
        raise Conflict(f"Task {task['id']!r} is done.", 'Make another: harken task new "TITLE"')
    if not has_folder(task):
        raise Conflict(f"The folder of task {task['id']!r} is missing: {task['dir']}", missing_hint(task))
    host = _host(asked, task, agent)
    command = command_of(task, host, extra)
    is_run = not is_printed and (is_tmux or (not asked.as_json and sys.stdin.isatty() and sys.stdout.isatty()))
    if is_run and not command.is_installed:
        fact = interactive(host)
        raise NotFound(f"{title_of(host)} is not installed.", f"Install it: {fact.install}. Or use --print.")
    seeded = seed_task(asked, task["id"], command.folder, host)
    where = run_in_tmux(task["id"], command) if is_run and is_tmux else ""
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


def _host(asked: Invocation, task: Result, agent: str) -> str:
    """Return the host that is meant: named now, named when the task was made, or the only one that is connected."""
    if agent or task["agent"]:
        return host_name(agent or task["agent"])
    connected = [record.host for record in records(asked.home.path) if not record.project]
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
