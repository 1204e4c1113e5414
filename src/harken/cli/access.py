"""The verbs that decide who may reach what, and which machines: only the person may, the daemon refuses an agent."""

from __future__ import annotations

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import clock_time, note_to_person
from harken.cli.verbs import Length, lists, verb_command, verb_option
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
        asked.screen.line(f"{one_line(result['code'])}  allows the first sender who sends it, until {until}.")


@verb_command("mute")
@_kind
@click.argument("name")
@click.option("--for", "seconds", metavar="TIME", type=Length(), help=f"For this long: {LENGTHS}.")
def mute(asked: Invocation, *, kind: str, name: str, seconds: float | None) -> None:
    result = _ask(asked, "mute", kind=kind, name=name, seconds=seconds)
    if not asked.as_json:
        until = f" until {clock_time(result['until'])}" if result["until"] else ""
        asked.screen.line(f"{result['kind']} {one_line(result['name'])} is muted{until}; messages are still stored.")


@verb_command("unmute")
@_kind
@click.argument("name")
def unmute(asked: Invocation, *, kind: str, name: str) -> None:
    result = _ask(asked, "unmute", kind=kind, name=name)
    if not asked.as_json:
        asked.screen.line(f"{result['kind']} {one_line(result['name'])} is not muted.")


@click.group()
def token() -> None:
    """Make, list and revoke the tokens that let other machines in."""


@verb_command("token_new", name="new")
@click.argument("name")
@click.option("--kind", type=click.Choice(("machine",)), default="machine", show_default=True, help="What it is for.")
@click.option("--expires", "seconds", metavar="TIME", type=Length(), help=f"After this long: {LENGTHS}.")
def token_new(asked: Invocation, *, name: str, kind: str, seconds: float | None) -> None:
    result = _ask(asked, "token_new", name=name, kind=kind, seconds=seconds)
    if not asked.as_json:
        asked.screen.line(one_line(result["secret"]))
        until = f" It is good until {clock_time(result['expires_at'])}." if result["expires_at"] else ""
        note_to_person(f"It is shown only once.{until} It works only for the first machine that uses it.")


@verb_command("token_list", name="list")
def token_list(asked: Invocation) -> None:
    result = _ask(asked, "token_list")
    if not asked.as_json:
        asked.screen.table([_token_row(each) for each in result["tokens"]])
        if not result["tokens"]:
            note_to_person("There are no tokens. To create one: harken token new NAME")


@verb_command("token_revoke", name="revoke")
@click.argument("name", shell_complete=completer("tokens"))
def token_revoke(asked: Invocation, *, name: str) -> None:
    result = _ask(asked, "token_revoke", name=name)
    if not asked.as_json:
        asked.screen.line(f"Token {one_line(result['name'])} is revoked; what was open with it has ended.")


for _each in (token_new, token_list, token_revoke):
    token.add_command(_each)
lists(token)


def _token_row(item: Result) -> tuple[str, ...]:
    ends = f"until {clock_time(item['expires_at'])}" if item["expires_at"] else "no end"
    state = item["state"] if item["state"] != "in force" else ends
    used = f"used {clock_time(item['used_at'])} from {item['used_from']}" if item["used_at"] else "not used yet"
    return (item["name"], item["kind"], state, used)


def _ask(asked: Invocation, method: str, **params: object) -> Result:
    result = asked.ask(method, **params)
    if asked.as_json:
        asked.print_json(result)
    return result


def _sender(result: Result) -> str:
    where = "" if result["source"] == "*" else f" from {one_line(result['source'])}"
    return f"{one_line(result['sender'])}{where}"
