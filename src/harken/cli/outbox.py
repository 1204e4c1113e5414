"""The verb `outbox`: replies that have not left; and `outbox retry` for those that could not be sent."""

from __future__ import annotations

import click

from harken.cli.output import Screen, note_to_person
from harken.cli.verbs import Invocation, or_subcommand, verb
from harken.control.client import Result
from harken.display import one_line


@or_subcommand
@verb("outbox")
@click.option("--state", type=click.Choice(["queued", "parked", "sent"]), help="Only these; what has not left if none.")
def outbox(asked: Invocation, *, state: str | None) -> None:
    """Show replies that have not left: parked ones, which are not tried any more, and those that wait."""
    with asked.daemon() as daemon:
        found = daemon.ask("outbox", state=state or "")
    if asked.as_json:
        asked.print_json(found)
    else:
        _show(asked.screen, found["replies"])


@verb("retry")
@click.argument("replies", nargs=-1, required=True, metavar="ID...")
@click.option("--not-sent", is_flag=True, help="You have looked: it is not there. Send it without looking again.")
def retry(asked: Invocation, *, replies: tuple[str, ...], not_sent: bool) -> None:
    """Try parked replies once more, now.

    One that may have been sent is looked for first, where its service can be asked. Where it cannot, such as a bot's,
    look into the conversation yourself, and say --not-sent.
    """
    with asked.daemon() as daemon:
        result = daemon.ask("outbox_retry", replies=list(replies), is_unsent=not_sent)
    if asked.as_json:
        asked.print_json(result)
        return
    for reply in result["replies"]:
        asked.screen.line(f"{one_line(reply['reply_id'])}  {one_line(reply['state'])}")


outbox.add_command(retry)


def _show(screen: Screen, replies: list[Result]) -> None:
    screen.table([_row(each) for each in replies])
    if not replies:
        note_to_person("Every reply has left.")
    elif any(each["state"] == "parked" for each in replies):
        note_to_person("Try a parked one again: harken outbox retry ID")


def _row(reply: Result) -> tuple[str, ...]:
    why = reply["error"] if reply["state"] != "sent" else ""
    return (reply["reply_id"], reply["state"], reply["message_id"], one_line(why), one_line(reply["body"]))
