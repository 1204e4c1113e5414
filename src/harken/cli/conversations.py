"""The verbs `conversations`, `done`, `snooze`, `reopen` and `unread`: your own order of what came; and `needs`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import Screen, at_home, clock_time, cut, note_to_person, sender_of
from harken.cli.verbs import Length, Moment, verb_command, verb_option
from harken.control.client import Result
from harken.display import one_line
from harken.model import timestamp
from harken.times import LENGTHS

VIEWS = ("open", "unread", "for-you", "snoozed", "done", "sent")
NAME_WIDTH = 20

_open = click.argument("refs", nargs=-1, required=True, metavar="ID...", shell_complete=completer("conversations"))
_any = click.argument("refs", nargs=-1, required=True, metavar="ID...", shell_complete=completer("messages"))


@verb_command("conversations")
@verb_option("conversations", "view", type=click.Choice(VIEWS), show_default=True)
@verb_option("conversations", "limit", show_default=True)
@verb_option("conversations", "before")
def conversations(asked: Invocation, *, view: str, limit: int, before: int) -> None:
    found = asked.ask("conversations", view=view, limit=limit, before=before)
    if not asked.gave_json(found):
        _show(asked.screen, found, view)


@verb_command("done")
@_open
def done(asked: Invocation, *, refs: tuple[str, ...]) -> None:
    result = asked.ask("done", refs=list(refs))
    if not asked.gave_json(result):
        _told(asked.screen, result, "done", "is done")


@verb_command("snooze")
@_open
@click.option("--for", "seconds", metavar="TIME", type=Length(), help=f"For this long: {LENGTHS}.")
@click.option("--until", metavar="TIME", type=Moment(), help="Until then: 14:00, tomorrow 9:00, 2026-01-05T09:00.")
def snooze(asked: Invocation, *, refs: tuple[str, ...], seconds: float | None, until: datetime | None) -> None:
    named = timestamp(until.astimezone(UTC)) if until else ""
    result = asked.ask("snooze", refs=list(refs), seconds=seconds, until=named)
    if not asked.gave_json(result):
        _told(asked.screen, result, "snoozed", "is put off until")


@verb_command("reopen")
@_any
def reopen(asked: Invocation, *, refs: tuple[str, ...]) -> None:
    result = asked.ask("reopen", refs=list(refs))
    if not asked.gave_json(result):
        _told(asked.screen, result, "open", "is in your list")


@verb_command("unread")
@_any
@verb_option("unread", "is_read")
def unread(asked: Invocation, *, refs: tuple[str, ...], is_read: bool) -> None:
    result = asked.ask("unread", refs=list(refs), is_read=is_read)
    if asked.gave_json(result):
        return
    for each in result["conversations"]:
        asked.screen.line(f"{one_line(each['newest']['id'])}  is {'read' if is_read else 'unread'}")


def _told(screen: Screen, result: Result, state: str, what: str) -> None:
    for each in result["conversations"]:
        told, until = what, f" {clock_time(each['until'])}" if each["until"] else ""
        if each["state"] != state:
            told, until = f"stays in your list: there is something newer, {one_line(each['newest_id'])}", ""
        screen.line(f"{one_line(each['message_id'])}  {told}{until}")


def _show(screen: Screen, found: Result, view: str) -> None:
    screen.table([_row(each) for each in found["conversations"]])
    if not found["conversations"]:
        note_to_person("Nothing is left to decide." if view == "open" else "There is nothing here.")
    elif view == "open":
        left = found["counts"]["open"] - len(found["conversations"])
        more = f"{left} more. " if left > 0 else ""
        note_to_person(f"{more}Read: harken read ID. Done: harken done ID. Later: harken snooze ID")


def _row(each: Result) -> tuple[str, ...]:
    newest = each["newest"]
    count = f"({each['count']})" if each["count"] > 1 else ""
    return (
        newest["id"],
        "unread" if each["is_unread"] else clock_time(each["until"]) if each["until"] else "",
        cut(sender_of(newest), NAME_WIDTH),
        cut(one_line(newest["channel"] or newest["source"]), NAME_WIDTH),
        count,
        newest["content_text_sanitized"],
    )


CLOCK_WIDTH = 5
NEXT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "confirm": "harken channel confirm {}",
        "question": "harken reply {} TEXT",
        "reply": "harken outbox retry {}",
        "sign-in": "harken source login {}",
        "source": "harken source test {}",
        "sender": "harken read {}",
        "agent": "harken rules reload",
        "rule": "harken rules list",
    }
)


@verb_command("needs")
def needs(asked: Invocation) -> None:
    found = asked.ask("needs")
    if asked.gave_json(found):
        return
    if asked.screen.width:
        for each in found["needs"]:
            _show_need(asked.screen, each)
    else:
        asked.screen.table([_need_row(each) for each in found["needs"]])
    if not found["needs"]:
        note_to_person("Nothing needs you.")


def _show_need(screen: Screen, each: Result) -> None:
    """Print what needs you, and below it what to do about it: a command that is cut is of no use."""
    since, said, command, about = _need_row(each)
    screen.line(screen.fit(f"  {since:<{CLOCK_WIDTH}}  {said}"))
    screen.line(screen.fit(f"{' ' * (CLOCK_WIDTH + 4)}{command}  {about}"))


def _need_row(each: Result) -> tuple[str, ...]:
    since = clock_time(each["since"]) if each["since"] else ""
    command = at_home(NEXT.get(each["kind"], "{}").format(one_line(each["ref"])))
    return (since, one_line(each["said"]), command, one_line(each["about"]))
