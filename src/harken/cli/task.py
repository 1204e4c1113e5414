"""The verb `task`: the words and options of its verbs. What they do is imported when they are run.

Looking and linking are questions to the daemon and are here; making, starting and ending also concern git and the
agent's host, and have modules of their own.
"""

from __future__ import annotations

from pathlib import Path

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import note_to_person
from harken.cli.verbs import lists, verb, verb_command, verb_option
from harken.control.client import Result
from harken.display import one_line


@click.group()
def task() -> None:
    """Manage tasks: each has its own folder, mailbox and agent."""


_task = click.argument("name", metavar="TASK", shell_complete=completer("tasks"))
_agent = verb_option("task_make", "agent", metavar="HOST", shell_complete=completer("complete_hosts"))


@verb("new")
@click.argument("title", nargs=-1, required=True)
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    default=".",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The repository or folder (default: the current one).",
)
@_agent
@click.option(
    "--link", "links", metavar="TASK", multiple=True, shell_complete=completer("tasks"), help="A task it can message."
)
@verb_option("task_make", "prompt", metavar="TEXT")
@verb_option("task_make", "branch", metavar="NAME")
@verb_option("task_make", "start", metavar="REF")
@verb_option("task_make", "is_here")
@verb_option("task_make", "id", metavar="ID")
@verb_option("task_make", "is_trusted")
@click.option("--hosted", "is_hosted", is_flag=True, help="Run its agent without a terminal; the page shows it.")
def new(asked: Invocation, *, title: tuple[str, ...], **options: object) -> None:
    """Create a task with a worktree on a new branch, and a mailbox.

    TITLE is joined with spaces. The worktree is beside the repository, in NAME.worktrees/ID. A folder outside a git
    repository is used as it is.
    """
    import msgspec

    from harken.cli.task_lifecycle import make_task
    from harken.workspaces.tasks import TaskRequest

    make_task(asked, msgspec.convert({"title": " ".join(title), **options}, TaskRequest, strict=False))


@verb("start")
@_task
@click.argument("extra", metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED)
@_agent
@click.option("--print", "is_printed", is_flag=True, help="Print the command instead of running it.")
@click.option("--tmux", "is_tmux", is_flag=True, help="Run it in a new tmux window.")
@click.option("--hosted", "is_hosted", is_flag=True, help="Let the daemon run it, without a terminal.")
def start(asked: Invocation, *, name: str, extra: tuple[str, ...], agent: str, **how: bool) -> None:
    """Start a task's agent in its folder; without a terminal, print the command.

    ARGS go to the agent. If there is mail, the agent starts with it. A hosted task is started by the daemon.
    """
    import msgspec

    from harken.cli.task_lifecycle import StartWay, start_task

    start_task(asked, name, extra, agent=agent, way=msgspec.convert(how, StartWay))


@verb_command("task_stop", "stop")
@_task
@verb_option("task_stop", "is_end")
def stop(asked: Invocation, *, name: str, is_end: bool) -> None:
    found = asked.ask("task_stop", task=name, is_end=is_end)
    if asked.gave_json(found):
        return
    said = "ended, and the task is not hosted any more" if is_end else "stopped"
    told = f"The agent of {found['id']} is {said}." if found["is_stopped"] else f"{found['id']} is in no turn."
    asked.screen.line(one_line(told))


@verb_command("task_list", "list")
@verb_option("task_list", "all")
def list_tasks(asked: Invocation, **options: bool) -> None:
    from harken.cli.task_show import as_json, show_tasks

    found = [as_json(each) for each in asked.ask("task_list", **options)["tasks"]]
    if asked.gave_json({"tasks": found}):
        return
    show_tasks(asked.screen, found)
    if not found:
        note_to_person('There are no tasks. Create one: harken task new "TITLE"')
    for each in found:
        if not each["has_folder"] and each["state"] != "done":
            note_to_person(f"The folder of {each['id']} is missing. Remove the task: harken task rm {each['id']}")


@verb_command("task_show", "show")
@_task
def show(asked: Invocation, *, name: str) -> None:
    found = asked.ask("task_show", task=name)
    _show(asked, found)


@verb_command("task_link", "link")
@_task
@click.argument("others", metavar="OTHER...", nargs=-1, required=True, shell_complete=completer("tasks"))
def link(asked: Invocation, *, name: str, others: tuple[str, ...]) -> None:
    _link(asked, "task_link", name, others)


@verb_command("task_unlink", "unlink")
@_task
@click.argument("others", metavar="OTHER...", nargs=-1, required=True, shell_complete=completer("tasks"))
def unlink(asked: Invocation, *, name: str, others: tuple[str, ...]) -> None:
    _link(asked, "task_unlink", name, others)


@verb("done")
@_task
@click.option(
    "--remove-worktree/--keep-worktree",
    "is_removed",
    default=None,
    help="Remove its worktree, or keep it (default: you are asked, if nothing is uncommitted).",
)
def done(asked: Invocation, *, name: str, is_removed: bool | None) -> None:
    """Finish a task: it gets no more mail, and Harken's files leave its folder.

    A worktree with changes is never removed. You are asked about files that git ignores. The branch stays if no other
    branch has its commits.
    """
    from harken.cli.task_lifecycle import finish_task

    finish_task(asked, name, is_removed=is_removed)


@verb("rm")
@_task
def rm(asked: Invocation, *, name: str) -> None:
    """Forget a task that is done, or whose folder is missing."""
    from harken.cli.task_lifecycle import remove_task

    remove_task(asked, name)


for _verb in (new, start, stop, list_tasks, show, link, unlink, done, rm):
    task.add_command(_verb)
lists(task)


def _link(asked: Invocation, method: str, name: str, others: tuple[str, ...]) -> None:
    with asked.daemon() as daemon:
        found: Result = {}
        for other in others:
            found = daemon.ask(method, task=name, other=other)
    if asked.as_json:
        _show(asked, found)
        return
    peers = ", ".join(found["peers"])
    print(one_line(f"{found['id']}  peers: {peers}" if peers else f"{found['id']}  has no peer"))


def _show(asked: Invocation, found: Result) -> None:
    from harken.cli.task_show import as_json, missing_hint, show_task

    record = as_json(found)
    if asked.gave_json(record):
        return
    show_task(asked.screen, record)
    if not record["has_folder"] and record["state"] != "done":
        note_to_person(f"Its folder is missing. {missing_hint(record)}")
