"""The verbs that decide who and what may reach you, and with which token. The daemon refuses them to an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import clock_time, note_to_person
from harken.cli.verbs import Length, lists, verb_command, verb_option
from harken.control.client import Result
from harken.display import one_line
from harken.times import LENGTHS

KINDS = ("channel", "sender", "session")
_MAILBOX: Final = "A mailbox that it is for (default: inbox); '*' is every one. Repeatable."
_MAY: Final = "What it may do, with commas: read, send, reply, approve, or verbs that only you may do."
TOKEN_KINDS = ("agent", "sender", "machine", "phone")
_HOLDS: Final[Mapping[str | None, str]] = {
    "owner": "speaks for you",
    "known": "is known and may reach sessions",
    "unknown": "is only counted from now on",
    None: "is no longer decided about",
}

_source = verb_option("allow", "source", show_default=True)
_kind = click.argument("kind", type=click.Choice(KINDS))


@verb_command("allow")
@click.argument("sender")
@_source
@verb_option("allow", "as_owner")
@verb_option("allow", "is_undone")
def allow(asked: Invocation, *, sender: str, source: str, as_owner: bool, is_undone: bool) -> None:
    _tell(asked, _ask(asked, "allow", sender=sender, source=source, as_owner=as_owner, is_undone=is_undone))


@verb_command("deny")
@click.argument("sender")
@_source
@verb_option("deny", "is_undone")
def deny(asked: Invocation, *, sender: str, source: str, is_undone: bool) -> None:
    _tell(asked, _ask(asked, "deny", sender=sender, source=source, is_undone=is_undone))


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
    """Make, list and revoke the tokens that let programs and other machines in."""


@verb_command("token_new", name="new")
@click.argument("name")
@verb_option("token_new", "kind", type=click.Choice(TOKEN_KINDS), show_default=True)
@click.option("--mailbox", "mailboxes", metavar="NAME", multiple=True, help=_MAILBOX)
@verb_option("token_new", "task", metavar="TASK")
@click.option("--may", metavar="WORDS", default="", help=_MAY)
@verb_option("token_new", "consumer", metavar="NAME")
@verb_option("token_new", "trust", metavar="TRUST")
@verb_option("token_new", "subject", metavar="NAME")
@click.option("--expires", "seconds", metavar="TIME", type=Length(), help=f"After this long: {LENGTHS}.")
def token_new(asked: Invocation, *, mailboxes: tuple[str, ...], may: str, **options: object) -> None:
    words = [word.strip() for word in may.split(",") if word.strip()]
    result = _ask(asked, "token_new", mailboxes=list(mailboxes), may=words, **options)
    if not asked.as_json:
        if result["secret"]:
            asked.screen.line(one_line(result["secret"]))
        until = f" It is good until {clock_time(result['expires_at'])}." if result["expires_at"] else ""
        what = _scope(result) or "It works only for the first machine that uses it"
        shown = "It is shown only once." if result["secret"] else "Its holder comes with a token of the issuer."
        note_to_person(f"{shown}{until} {what}.")
        if result["kind"] == "machine" and result["join_url"]:
            note_to_person(f"On that machine: harken join {result['join_url']} --token-file FILE")
        elif result["join_url"]:
            path = "/mcp" if result["kind"] == "agent" else "/api/VERB"
            note_to_person(f"It is good at {result['join_url']}{path}")
        else:
            others = "Other machines" if result["kind"] == "machine" else "Programs elsewhere"
            note_to_person(f"{others} are not let in yet: set http.public_listen in config.toml.")


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
    return (item["name"], item["kind"], _scope(item), state, used)


def _scope(item: Result) -> str:
    """Say what a token lets its holder do; nothing for a machine's, which says who asks."""
    if not item["may"]:
        return ""
    where = "every mailbox" if "*" in item["mailboxes"] else ", ".join(map(one_line, item["mailboxes"]))
    trust = f", as {item['trust']}" if item["trust"] else ""
    reader = f", as {one_line(item['consumer'])}" if "read" in item["may"] else ""
    return f"May {', '.join(item['may'])} in {where}{reader or trust}"


def _tell(asked: Invocation, result: Result) -> None:
    """Say what holds for a sender from now on."""
    if not asked.as_json:
        asked.screen.line(f"{_sender(result)} {_HOLDS[result['trust']]}.")


def _ask(asked: Invocation, method: str, **params: object) -> Result:
    result = asked.ask(method, **params)
    if asked.as_json:
        asked.print_json(result)
    return result


def _sender(result: Result) -> str:
    where = "" if result["source"] == "*" else f" from {one_line(result['source'])}"
    return f"{one_line(result['sender'])}{where}"
