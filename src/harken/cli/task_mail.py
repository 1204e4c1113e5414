"""The verbs for the mail of tasks, with the names of the tools that agents have.

Without a task, the one of the folder that the command runs in is meant; the daemon decides that. What is taken counts
as seen when it was printed, as with `pull`.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.message_commands import PRIORITIES
from harken.cli.messages import hand_over, note_file, text_or_stdin
from harken.cli.output import BOLD, DIM, MARKS, Screen, clock_time, note_to_person, unmarked
from harken.cli.verbs import verb_command, verb_option
from harken.control.client import Result
from harken.display import one_line, task_sender_name

_own = click.argument("task", metavar="[TASK]", default="", shell_complete=completer("tasks"))


@verb_command("check_inbox")
@_own
@verb_option("check_inbox", "peek")
def check_inbox(asked: Invocation, *, task: str, peek: bool) -> None:
    """They count as seen once printed. TASK defaults to the task of the current folder."""
    with asked.daemon() as daemon:
        found = daemon.ask("check_inbox", task_id=task, peek=peek, cwd=_cwd())
        hand_over(asked, daemon, found, show_mail, found["pending"])
    if not found["messages"] and not asked.as_json:
        note_to_person(f"Nothing waits for {found['task']}.")


@verb_command("send_to_task")
@click.argument("task", metavar="TASK", shell_complete=completer("tasks"))
@click.argument("text", nargs=-1)
@verb_option("send_to_task", "priority", type=PRIORITIES, show_default=True)
@verb_option("send_to_task", "key")
@verb_option("send_to_task", "as_file")
def send_to_task(
    asked: Invocation, *, task: str, text: tuple[str, ...], priority: str, key: str, as_file: bool
) -> None:
    """TEXT is joined with spaces; `-`, or no text and a pipe, reads it from stdin."""
    body = text_or_stdin(text, f'Say something: harken send-to-task {task} "the API has changed"')
    _send(asked, "send_to_task", key, task_id=task, body=body, priority=priority, as_file=as_file)


@verb_command("send_to_peer")
@click.argument("text", nargs=-1)
@verb_option("send_to_peer", "peer", metavar="TASK", shell_complete=completer("tasks"))
@verb_option("send_to_peer", "priority", type=PRIORITIES, show_default=True)
@verb_option("send_to_peer", "key")
@verb_option("send_to_peer", "as_file")
def send_to_peer(
    asked: Invocation, *, text: tuple[str, ...], peer: str, priority: str, key: str, as_file: bool
) -> None:
    """Your task is the one of the current folder.

    TEXT is joined with spaces; `-`, or no text and a pipe, reads it from stdin.
    """
    body = text_or_stdin(text, 'Say something: harken send-to-peer "the API has changed"')
    _send(asked, "send_to_peer", key, body=body, peer=peer, priority=priority, cwd=_cwd(), as_file=as_file)


@verb_command("inbox_status")
@_own
def inbox_status(asked: Invocation, *, task: str) -> None:
    """TASK defaults to the task of the current folder."""
    found = asked.ask("inbox_status", task_id=task, cwd=_cwd())
    if asked.gave_json(found):
        return
    print(f"{found['pending']} unread")


def _cwd() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""  # the folder is gone, as that of a task that was removed may be


def _send(asked: Invocation, method: str, key: str, **params: object) -> None:
    # Named here and not by the daemon: it is sent again when the connection breaks, and must be stored once.
    sent = asked.ask(method, key=key or f"cli-{os.urandom(12).hex()}", **params)
    if asked.gave_json(sent):
        return
    sentence = sent["forecast"]["sentence"]
    print(f"{one_line(sent['id'])}  {one_line(sent['mailbox'])} #{sent['seq']}  {one_line(sentence)}")
    note_file(sent)


def show_mail(screen: Screen, record: Result) -> None:
    """Print a message: a line about it, then its text, indented, so that no line of it can pose as another message."""
    words = [record["priority"]] if record["priority"] != "normal" else []
    words += ["repeat"] if record["repeat"] else []
    words += [f"cut, {record['length']} characters"] if "truncated" in record else []
    note = f" ({', '.join(words)})" if words else ""
    who = MARKS.get(record["trust"], MARKS["unknown"]) + unmarked(task_sender_name(record["sender"], record["trust"]))
    place = f"{record['id']} {record['task']} {clock_time(record['created_at'])}{note}"
    screen.line(f"{screen.paint(one_line(place), DIM)} {screen.paint(who, BOLD)}:")
    screen.text(record["body"])
