"""The verb `browsers`: who is signed in to the page; and `browsers sign-out` to end that."""

from __future__ import annotations

import click

from harken.cli import complete
from harken.cli.output import clock_time, note_to_person
from harken.cli.verbs import Invocation, or_subcommand, verb, verb_option
from harken.control.client import DaemonClient, Result
from harken.display import one_line


@or_subcommand
@verb("browsers")
def browsers(asked: Invocation) -> None:
    """Show the browsers that are signed in to the page, and when each was used last."""
    with DaemonClient(asked.home) as daemon:
        found = daemon.ask("browsers")
    if asked.as_json:
        asked.print_json(found)
        return
    asked.screen.table([browser_row(each) for each in found["browsers"]])
    if not found["browsers"]:
        note_to_person("No browser is signed in. To sign one in: harken open")


@verb("sign-out")
@click.argument("names", nargs=-1, metavar="ID...", shell_complete=complete.browsers)
@verb_option("sign_out", "is_all")
def sign_out(asked: Invocation, *, names: tuple[str, ...], is_all: bool) -> None:
    """Sign browsers out of the page. What is open in them ends too."""
    with DaemonClient(asked.home) as daemon:
        result = daemon.ask("sign_out", browsers=list(names), is_all=is_all)
    if asked.as_json:
        asked.print_json(result)
        return
    for each in result["browsers"]:
        asked.screen.line(f"{one_line(each['id'])}  signed out: {one_line(each['browser'])}")
    if not result["browsers"]:
        note_to_person("No browser was signed in.")


browsers.add_command(sign_out)


def browser_row(browser: Result) -> tuple[str, ...]:
    """Return what is said of a browser in a line."""
    since, used = clock_time(browser["began_at"]), clock_time(browser["used_at"])
    return (browser["id"], browser["browser"], f"since {since}", f"last used {used}")
