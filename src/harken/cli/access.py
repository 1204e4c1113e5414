"""The verbs that decide who may reach what: only the person may, an agent is refused by the daemon."""

from __future__ import annotations

import click

from harken.cli.invocation import Invocation
from harken.cli.output import clock_time
from harken.cli.times import Length
from harken.cli.verbs import verb_command, verb_option
from harken.control.client import Result
from harken.display import one_line
from harken.times import LENGTHS

KINDS = ("channel", "sender", "session")

_source = verb_option("allow", "source", show_default=True)
_kind = click.argument("kind", type=click.Choice(KINDS))


@verb_command("allow")
@click.argument("sender")
@_source
@verb_option("allow", "as_owner")
def allow(asked: Invocation, *, sender: str, source: str, as_owner: bool) -> None:
    result = _ask(asked, "allow", sender=sender, source=source, as_owner=as_owner)
    if not asked.as_json:
        what = "speaks for you" if result["trust"] == "owner" else "is known and may reach sessions"
        asked.screen.line(f"{_sender(result)} {what}.")


@verb_command("deny")
@click.argument("sender")
@_source
def deny(asked: Invocation, *, sender: str, source: str) -> None:
    result = _ask(asked, "deny", sender=sender, source=source)
    if not asked.as_json:
        asked.screen.line(f"{_sender(result)} is only counted from now on.")


@verb_command("pair")
def pair(asked: Invocation) -> None:
    result = _ask(asked, "pair")
    if not asked.as_json:
        until = clock_time(result["until"])
        asked.screen.line(f"{one_line(result['code'])}  admits the first who sends it, until {until}.")


@verb_command("mute")
@_kind
@click.argument("name")
@click.option("--for", "seconds", metavar="TIME", type=Length(), help=f"For this long: {LENGTHS}.")
def mute(asked: Invocation, *, kind: str, name: str, seconds: float | None) -> None:
    result = _ask(asked, "mute", kind=kind, name=name, seconds=seconds)
    if not asked.as_json:
        until = f" until {clock_time(result['until'])}" if result["until"] else ""
        asked.screen.line(f"{result['kind']} {one_line(result['name'])} is muted{until}; what comes is stored.")


@verb_command("unmute")
@_kind
@click.argument("name")
def unmute(asked: Invocation, *, kind: str, name: str) -> None:
    result = _ask(asked, "unmute", kind=kind, name=name)
    if not asked.as_json:
        asked.screen.line(f"{result['kind']} {one_line(result['name'])} is not muted.")


def _ask(asked: Invocation, method: str, **params: object) -> Result:
    result = asked.ask(method, **params)
    if asked.as_json:
        asked.print_json(result)
    return result


def _sender(result: Result) -> str:
    where = "" if result["source"] == "*" else f" from {one_line(result['source'])}"
    return f"{one_line(result['sender'])}{where}"
