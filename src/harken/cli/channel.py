"""The verb `channel`: what machines announce, by where it came from.

Each verb of it is one question to the daemon. A word that is no verb is the name of a channel: `harken channel ci` is
`harken channel show ci`, which also shows a channel that is named like a verb. To add a verb, add it to the tuple at
the end.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

from harken.cli.actions import confirm, pause, resume, run
from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import DIM, Screen, clock_time, note_to_person
from harken.cli.rules import LIST, RELOAD, look
from harken.cli.verbs import lists, verb, verb_command, verb_option
from harken.control.client import Result
from harken.display import one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHOW = "show"
NOTHING = "No channel yet. Listen to an MCP server: harken source add NAME --url URL"
COUNTED = 100  # of a channel only the newest are looked at for what is unread


class NamedChannels(click.Group):
    """A group of verbs in which any other word is the name of a channel to show."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; what is none names a channel."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            return SHOW, self.commands[SHOW], args
        return super().resolve_command(context, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the verbs, then the channels."""
        offered = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            return offered
        taken = {item.value for item in offered}
        names = completer("channel_names")(ctx, None, incomplete)
        return offered + [item for item in names if item.value not in taken]


@click.group(cls=NamedChannels, subcommand_metavar="COMMAND | NAME")
def channel() -> None:
    """Show what machines announce, channel by channel, and pass it to an agent."""


_name = click.argument("name", metavar="[NAME]", default="", shell_complete=completer("channel_names"))
_source = verb_option("channel", "source", shell_complete=completer("sources_of_channels"))


@verb_command("channel", "list")
@verb_option("channel", "limit", show_default=True)
def list_newest(asked: Invocation, *, limit: int) -> None:
    """Covers all channels; `harken channel NAME` shows one. `harken channel` alone does the same."""
    _show_messages(asked, asked.ask("channel", limit=limit))


@verb_command("channels", "names")
@verb_option("channels", "limit", show_default=True)
def list_channels(asked: Invocation, *, limit: int) -> None:
    found = asked.ask("channels", limit=limit)
    if asked.gave_json(found):
        return
    asked.screen.table([_row(each, asked.screen) for each in found["channels"]])
    if not found["channels"]:
        note_to_person(NOTHING)


@verb_command("channel", SHOW)
@click.argument("name", metavar="NAME", shell_complete=completer("channel_names"))
@_source
@verb_option("channel", "limit", show_default=True)
def show(asked: Invocation, *, name: str, source: str, limit: int) -> None:
    """`harken channel NAME` is the same."""
    _show_messages(asked, asked.ask("channel", channel=name, source=source, limit=limit), name)


def _show_messages(asked: Invocation, found: Result, name: str = "") -> None:
    if asked.gave_json(found):
        return
    for record in found["messages"]:
        asked.screen.row(record)
    if found["messages"]:
        return
    if found["cleared"]:
        note_to_person(f"Nothing new since you cleared it. Earlier messages: {_listing(name)}")
    else:
        note_to_person(NOTHING)


@verb_command("channel_clear", "clear")
@_name
@_source
@verb_option("channel_clear", "all")
def clear(asked: Invocation, *, name: str, source: str, **options: bool) -> None:
    """Later messages appear as usual. To mark messages as seen, use `harken channel ack`."""
    found = asked.ask("channel_clear", channel=name, source=source, **options)
    if asked.gave_json(found):
        return
    if not found["cleared"]:
        note_to_person("There was nothing to clear.")
        return
    places = ", ".join(f"{one_line(_place(each))} ({each['count']})" for each in found["channels"])
    asked.screen.line(f"{_messages(found['cleared'])} cleared: {places}")
    only = found["channels"][0]["channel"] if len(found["channels"]) == 1 else ""
    asked.screen.hint(f"Still stored, and unread if it was: {_listing(only)}")


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _listing(name: str) -> str:
    return f"harken list --channel {shlex.quote(one_line(name))}" if name else "harken list --channel NAME"


@verb_command("channel_ack", "ack")
@_name
@_source
def ack(asked: Invocation, *, name: str, source: str) -> None:
    """Covers the newest 500 messages of each channel. Agents are not affected."""
    found = asked.ask("channel_ack", channel=name, source=source)
    if asked.gave_json(found):
        return
    if not found["acknowledged"]:
        note_to_person("Everything was already seen.")
        return
    names = ", ".join(one_line(_place(each)) for each in found["channels"])
    asked.screen.line(f"{found['acknowledged']} seen by you: {names}")


@verb_command("channel_inject", "inject")
@_name
@_source
@verb_option("channel_inject", "to", metavar="MAILBOX", shell_complete=completer("mailboxes"))
def inject(asked: Invocation, *, name: str, source: str, to: str) -> None:
    """Without NAME, those of all channels whose messages go with prompts."""
    # Named here and not by the daemon: it is asked again when the connection breaks, and must be done once.
    key = f"cli-{os.urandom(12).hex()}"
    with asked.daemon() as daemon:
        sent = daemon.ask("channel_inject", channel=name, source=source, to=to, key=key)
        was_tried = daemon.tries > 1
    if asked.gave_json(sent):
        return
    sentence = sent["forecast"]["sentence"]
    if was_tried and sent["state"] == "known":
        sentence = "is stored; the daemon was restarted meanwhile"
    count = len(sent["injected"])
    what = "1 channel message" if count == 1 else f"{count} channel messages"
    place = f"{one_line(sent['id'])}  {one_line(sent['mailbox'])} #{sent['seq']}"
    asked.screen.line(f"{asked.screen.paint(place, DIM)}  {what}: {one_line(sentence)}")


@verb("rules")
@click.argument("what", metavar="[reload]", required=False, type=click.Choice(["reload"]))
def rules(asked: Invocation, *, what: str | None) -> None:
    """Show the rules, as `harken rules list` does; with `reload`, load the file first."""
    look(asked, RELOAD if what else LIST)


for _verb in (list_newest, list_channels, show, ack, clear, inject, pause, resume, rules, confirm, run):
    channel.add_command(_verb)
lists(channel)


def _row(found: Result, screen: Screen) -> tuple[str, ...]:
    more = "+" if found["unread"] >= COUNTED else ""
    newest = found["newest"]
    return (
        screen.short(found["channel"] or "-", 4),
        screen.short(found["source"], 8),
        f"{found['unread']}{more} unread" if found["unread"] else "",
        f"{found['count']} in all" + (f", {found['cleared']} cleared" if found["cleared"] else ""),
        clock_time(found["last_at"]),
        f"#{newest['seq']} {newest['preview']}" if newest else "",
    )


def _place(found: Result) -> str:
    return f"{found['source']}/{found['channel']}" if found["channel"] else str(found["source"])
