"""The words of the verbs for messages: saying, taking, looking and answering. What most do is in `messages.py`.

The verbs for the mail of tasks have the names of the tools that agents have. Without a task, the one of the folder that
the command runs in is meant; the daemon decides that. What is taken counts as seen when it was printed.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from harken.cli import messages
from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.messages import hand_over, text_or_stdin
from harken.cli.output import BOLD, DIM, MARKS, Screen, clock_time, note_to_person, unmarked
from harken.cli.verbs import Seconds, light_command, verb_command, verb_option
from harken.control.client import Result
from harken.display import YOU, one_line, reader_name, task_sender_name
from harken.times import LENGTHS

IN = click.option("--in", "delay", default="", metavar="TIME", help=f"Deliver it after this long: {LENGTHS}.")
AFTER_TURN = click.option("--after-turn", is_flag=True, help="Deliver it when the turn that goes on now is over.")
PRIORITIES = click.Choice(["high", "normal", "low"])
_own = click.argument("task", metavar="[TASK]", default="", shell_complete=completer("tasks"))


@light_command("send")
@click.argument("text", nargs=-1)
@verb_option("send", "sender", metavar="NAME")
@verb_option("send", "channel", shell_complete=completer("channels"))
@verb_option("send", "to", metavar="MAILBOX", shell_complete=completer("mailboxes"))
@verb_option("send", "priority", type=PRIORITIES, show_default=True)
@verb_option("send", "conversation")
@verb_option("send", "upstream_id")
@verb_option("send", "as_file")
@verb_option("send", "at", metavar="TIME")
@IN
@verb_option("send", "when", metavar="idle|turn")
@AFTER_TURN
def send() -> None:
    """TEXT is joined with spaces; `-`, or no text and a pipe, reads it from stdin.

    A text that is too long is refused; for a task, --as-file saves it as a file in the task's folder.

    What is to be delivered later is stored now. `harken list` shows it, `harken unsend ID` withdraws it.
    """


@verb_command("unsend")
@click.argument("ref", metavar="ID")
def unsend(asked: Invocation, *, ref: str) -> None:
    found = asked.ask("unsend", ref=ref)
    if not asked.gave_json(found):
        print(f"{one_line(found['id'])}  {one_line(found['mailbox'])}  {one_line(found['scheduled']['sentence'])}")


@light_command("list")
@verb_option("list", "mailbox", shell_complete=completer("mailboxes"))
@verb_option("list", "channel", shell_complete=completer("channels"))
@verb_option("list", "sender")
@verb_option("list", "limit", show_default=True)
@verb_option("list", "before", metavar="SEQ")
def list_messages() -> None:
    pass


@verb_command("search")
@click.argument("words", nargs=-1, required=True)
@verb_option("search", "mailbox", shell_complete=completer("mailboxes"))
@verb_option("search", "channel", shell_complete=completer("channels"))
@verb_option("search", "sender")
@verb_option("search", "limit", show_default=True)
def search(asked: Invocation, *, words: tuple[str, ...], **options: str | int) -> None:
    found = asked.ask("search", text=" ".join(words), **options)
    messages.show_rows(asked, found, "No message contains all of that.")
    messages.note_most(asked, options["limit"], "More words find fewer.")


@light_command("read")
@click.argument("ref", metavar="ID", shell_complete=completer("messages"))
@verb_option("read", "offset", type=click.IntRange(min=0), metavar="N")
@verb_option("read", "limit", type=click.IntRange(min=1), metavar="CHARS")
def read() -> None:
    """ID is a message id, its beginning, or #seq."""


@verb_command("pull")
@verb_option("pull", "consumer", shell_complete=completer("consumers"))
@verb_option("pull", "channel", shell_complete=completer("channels"))
@verb_option("pull", "limit", show_default=True)
@verb_option("pull", "peek")
def pull(asked: Invocation, **options: str | int | bool) -> None:
    """They count as seen once printed."""
    with asked.daemon() as daemon:
        pulled = daemon.ask("pull", **options)
        messages.hand_over(asked, daemon, pulled, messages.show_offered, pulled["unread_remaining"])
    if not asked.as_json:
        messages.note_most_taken(int(options["limit"]), pulled)
    if not pulled["messages"] and not asked.as_json:
        note_to_person("No unread messages.")


@light_command("wait")
@verb_option("wait", "consumer", shell_complete=completer("consumers"))
@click.option(
    "--timeout",
    default=messages.WAIT_SECONDS,
    show_default="50s",
    metavar="TIME",
    type=Seconds(0, 86_400),
    help=f"Wait for this long: {LENGTHS}, or seconds.",
)
@verb_option("wait", "limit", show_default=True)
def wait() -> None:
    """Exits with 0 even if nothing arrives. Ctrl-C takes nothing."""


@verb_command("ack")
@click.argument("refs", nargs=-1, required=True, metavar="ID...", shell_complete=completer("messages"))
@verb_option("ack", "consumer", shell_complete=completer("consumers"))
def ack(asked: Invocation, *, refs: tuple[str, ...], consumer: str) -> None:
    result = asked.ask("ack", refs=list(refs), consumer=consumer)
    if asked.gave_json(result):
        return
    if not result["acknowledged"]:
        note_to_person("Everything was already seen.")
    for message_id in result["acknowledged"]:
        print(f"{one_line(message_id)}  seen by {reader_name(consumer or YOU)}")


@verb_command("reply")
@click.argument("ref", metavar="ID", shell_complete=completer("messages"))
@click.argument("text", nargs=-1)
def reply(asked: Invocation, *, ref: str, text: tuple[str, ...]) -> None:
    """`-`, or no TEXT and a pipe, reads stdin."""
    body = messages.text_or_stdin(text, f'Say what to answer: harken reply {ref} "thank you"')
    result = asked.ask("reply", ref=ref, body=body, key=os.urandom(12).hex())
    if asked.gave_json(result):
        return
    print(f"{one_line(result['reply_id'])}  answers {one_line(result['message_id'])}  {one_line(result['state'])}")


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
@verb_option("send_to_task", "at", metavar="TIME")
@IN
@verb_option("send_to_task", "when", metavar="idle|turn")
@AFTER_TURN
def send_to_task(
    asked: Invocation, *, task: str, text: tuple[str, ...], priority: str, key: str, as_file: bool, **timing: str | bool
) -> None:
    """TEXT is joined with spaces; `-`, or no text and a pipe, reads it from stdin."""
    body = text_or_stdin(text, f'Say something: harken send-to-task {task} "the API has changed"')
    said = {"task_id": task, "body": body, "priority": priority, "as_file": as_file}
    _send(asked, "send_to_task", key, **said, **messages.timing_of(timing))


@verb_command("send_to_peer")
@click.argument("text", nargs=-1)
@verb_option("send_to_peer", "peer", metavar="TASK", shell_complete=completer("tasks"))
@verb_option("send_to_peer", "priority", type=PRIORITIES, show_default=True)
@verb_option("send_to_peer", "key")
@verb_option("send_to_peer", "as_file")
@verb_option("send_to_peer", "at", metavar="TIME")
@IN
@verb_option("send_to_peer", "when", metavar="idle|turn")
@AFTER_TURN
def send_to_peer(
    asked: Invocation, *, text: tuple[str, ...], peer: str, priority: str, key: str, as_file: bool, **timing: str | bool
) -> None:
    """Your task is the one of the current folder.

    TEXT is joined with spaces; `-`, or no text and a pipe, reads it from stdin.
    """
    body = text_or_stdin(text, 'Say something: harken send-to-peer "the API has changed"')
    said = {"body": body, "peer": peer, "priority": priority, "cwd": _cwd(), "as_file": as_file}
    _send(asked, "send_to_peer", key, **said, **messages.timing_of(timing))


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
    messages.print_sent(sent, sent["forecast"]["sentence"])


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
