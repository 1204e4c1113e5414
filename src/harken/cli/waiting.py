"""The verb `waiting`: what was asked and not answered, the oldest first; and `waiting done` for what needs no answer.

Which messages are questions, and when you are reminded of them, is decided by the daemon. Answering is `reply`.
"""

from __future__ import annotations

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.messages import standing
from harken.cli.output import Screen, cut, note_to_person, sender_of
from harken.cli.verbs import or_subcommand, verb_command, verb_option
from harken.control.client import Result
from harken.display import one_line

NAME_WIDTH = 20


@or_subcommand
@verb_command("questions", "waiting")
@verb_option("questions", "mailbox", shell_complete=completer("mailboxes"))
@verb_option("questions", "limit", show_default=True)
def waiting(asked: Invocation, *, mailbox: str, limit: int) -> None:
    """Answer with `harken reply ID TEXT`, or take a question off the list with `harken waiting done ID`."""
    found = asked.ask("questions", mailbox=mailbox, limit=limit)
    if asked.as_json:
        asked.print_json(found)
    else:
        _show(asked.screen, found)


@verb_command("question_done", "done")
@click.argument("refs", nargs=-1, required=True, metavar="ID...", shell_complete=completer("open_questions"))
def done(asked: Invocation, *, refs: tuple[str, ...]) -> None:
    result = asked.ask("question_done", refs=list(refs))
    if asked.gave_json(result):
        return
    for message_id in result["settled"]:
        asked.screen.line(f"{one_line(message_id)}  needs no answer")


waiting.add_command(done)


def _show(screen: Screen, found: Result) -> None:
    screen.table([_row(each) for each in found["questions"]])
    if not found["count"]:
        note_to_person("No unanswered questions.")
        return
    left = found["count"] - len(found["questions"])
    screen.line(one_line(found["sentence"]) + (f", {left} of them not shown" if left > 0 else ""))
    note_to_person("Answer: harken reply ID TEXT. If none is needed: harken waiting done ID")


def _row(question: Result) -> tuple[str, ...]:
    record = question["message"]
    return (
        record["id"],
        cut(sender_of(record), NAME_WIDTH),
        cut(one_line(record["channel"] or record["source"]), NAME_WIDTH),
        question["how_long"],
        standing(question),
        record["content_text_sanitized"],
    )
