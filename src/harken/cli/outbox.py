"""The verb `outbox`: replies that have not left; and `outbox retry` for those that could not be sent."""

from __future__ import annotations

import click

from harken.cli.invocation import Invocation
from harken.cli.output import Screen, note_to_person
from harken.cli.verbs import or_subcommand, verb_command, verb_option
from harken.control.client import Result
from harken.display import one_line


@or_subcommand
@verb_command("outbox")
@verb_option("outbox", "state", type=click.Choice(["queued", "parked", "sent"]), default=None)
def outbox(asked: Invocation, *, state: str | None) -> None:
    found = asked.ask("outbox", state=state or "")
    if asked.as_json:
        asked.print_json(found)
    else:
        _show(asked.screen, found["replies"])


@verb_command("outbox_retry", "retry")
@click.argument("replies", nargs=-1, required=True, metavar="ID...")
@verb_option("outbox_retry", "is_unsent")
def retry(asked: Invocation, *, replies: tuple[str, ...], is_unsent: bool) -> None:
    """If a reply may have been sent after all, Harken first asks the service.

    If the service cannot be asked, as for a bot, look into the conversation yourself and add --not-sent.
    """
    result = asked.ask("outbox_retry", replies=list(replies), is_unsent=is_unsent)
    if asked.gave_json(result):
        return
    for reply in result["replies"]:
        asked.screen.line(f"{one_line(reply['reply_id'])}  {one_line(reply['state'])}")


outbox.add_command(retry)


def _show(screen: Screen, replies: list[Result]) -> None:
    screen.table([_row(each) for each in replies])
    if not replies:
        note_to_person("All replies have been sent.")
    elif any(each["state"] == "parked" for each in replies):
        note_to_person("Try a parked one again: harken outbox retry ID")


def _row(reply: Result) -> tuple[str, ...]:
    why = reply["error"] if reply["state"] != "sent" else ""
    return (reply["reply_id"], reply["state"], reply["message_id"], one_line(why), one_line(reply["body"]))
