"""The words of the verbs for messages: saying, taking, looking and answering. What most do is in `messages.py`."""

from __future__ import annotations

import os

import click

from harken.cli import messages
from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import note_to_person
from harken.cli.verbs import Seconds, light_command, verb_command, verb_option
from harken.display import YOU, one_line, reader_name
from harken.times import LENGTHS

PRIORITIES = click.Choice(["high", "normal", "low"])


@light_command("send")
@click.argument("text", nargs=-1)
@verb_option("send", "sender", metavar="NAME")
@verb_option("send", "channel", shell_complete=completer("channels"))
@verb_option("send", "to", metavar="MAILBOX", shell_complete=completer("mailboxes"))
@verb_option("send", "priority", type=PRIORITIES, show_default=True)
@verb_option("send", "conversation")
@verb_option("send", "upstream_id")
@verb_option("send", "as_file")
def send() -> None:
    """TEXT is joined with spaces; `-`, or no text and a pipe, reads it from stdin.

    A text that is too long is refused; for a task, --as-file saves it as a file in the task's folder.
    """


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
