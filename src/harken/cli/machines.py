"""The verbs `join` and `leave`, by which a machine becomes a satellite and is one no more, and `machines`.

`join` tries the link before it changes anything. The store of the home, if it has one, is left alone: it is not read
while the machine is a satellite, and is there again after `leave`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harken.cli.invocation import Invocation
from harken.cli.output import clock_time, note_to_person
from harken.cli.progress import start_notice
from harken.cli.verbs import verb, verb_command
from harken.config.home import Home, ensure
from harken.config.satellite import JoinRecord, join_home, joined_to, leave_home, main_url
from harken.control.start import start
from harken.control.stop import stop_all
from harken.display import one_line
from harken.errors import Unavailable, UserError

if TYPE_CHECKING:
    from harken.control.client import Result

_file = click.Path(dir_okay=False, path_type=Path)


@verb("join")
@click.argument("url")
@click.option("--token", default="", help="The token; other programs of this machine can see it on the command line.")
@click.option("--token-file", type=_file, help="A file that holds the token.", metavar="FILE")
@click.option("--authority", type=_file, help="The PEM file of an authority of your own.", metavar="FILE")
def join(asked: Invocation, *, url: str, token: str, token_file: Path | None, authority: Path | None) -> None:
    """Make this machine a satellite of a main daemon.

    Agents, hooks and commands here then use the inbox of the main daemon. On the main machine, make the token first:
    harken token new NAME --kind machine
    """
    import anyio

    from harken.cli.authority import refuse_agent
    from harken.daemon.satellites.satellite import try_link

    refuse_agent(asked, "join this machine to another")
    home = asked.home
    ensure(home)
    record = JoinRecord(
        url=main_url(url), token=_token(token, token_file), authority=str(authority.resolve()) if authority else ""
    )
    try:
        machine = anyio.run(try_link, home, record)
    except Unavailable as exc:
        hint = "Nothing was changed here. Check the address, and that the main daemon runs: harken doctor there."
        raise Unavailable(exc.message, hint) from exc
    record = JoinRecord(url=record.url, token=record.token, authority=record.authority, machine=machine)
    stop_all(home)
    join_home(home, record)
    start(home, start_notice())
    if asked.gave_json({"url": record.url, "machine": machine}):
        return
    asked.screen.line(f"This machine is the satellite {one_line(machine)} of {record.url}.")
    if home.database.exists():
        note_to_person("The inbox that this home had is kept, and is read again after: harken leave")
    note_to_person("Connect the agents of this machine: harken connect")


@verb("leave")
def leave(asked: Invocation) -> None:
    """End being a satellite. This machine has its own inbox again."""
    from harken.cli.authority import refuse_agent

    refuse_agent(asked, "take this machine from its main daemon")
    home = asked.home
    record = joined_to(home)
    if record is None:
        raise UserError("This machine is no satellite.", "To make it one: harken join URL --token-file FILE")
    stop_all(home)
    leave_home(home)
    _forget_bells(home)
    if asked.gave_json({"url": record.url, "machine": record.machine}):
        return
    asked.screen.line(f"This machine is no satellite of {record.url} any more.")
    name = one_line(record.machine) or "NAME"
    note_to_person(f"Its token is still good. On the main machine, revoke it: harken token revoke {name}")


@verb_command("machines")
def machines(asked: Invocation) -> None:
    result = asked.ask("machines")
    if asked.gave_json(result):
        return
    asked.screen.table([_row(each) for each in result["machines"]])
    if not result["machines"]:
        note_to_person("No machine is joined. To join one, make a token: harken token new NAME --kind machine")


def _row(item: Result) -> tuple[str, ...]:
    seen = f"seen {clock_time(item['seen_at'])} from {item['address']}" if item["seen_at"] else "never seen"
    sessions = f"{item['sessions']} sessions" if item["sessions"] != 1 else "1 session"
    return (item["name"], item["state"], sessions if item["state"] == "here" else "", seen, item["version"])


def _token(token: str, file: Path | None) -> str:
    found = token.strip()
    if file is not None:
        try:
            found = file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise UserError(f"{file} cannot be read as a token.", "Write the token into it, and nothing else.") from exc
    elif not found and sys.stdin.isatty():
        found = str(click.prompt("Token", hide_input=True)).strip()
    if not found.isascii() or not found.isprintable() or not found or " " in found:
        raise UserError(
            "There is no token.", "Make one on the main machine, harken token new NAME, and give it: --token-file FILE"
        )
    return found


def _forget_bells(home: Home) -> None:
    for bell in home.bells_dir.glob("*"):
        bell.unlink(missing_ok=True)
