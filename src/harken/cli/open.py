"""The verbs `open` and `browsers`: the page in the browser, signed in by a link that works once, and who is signed in.

The link comes from the daemon, which gives it only to the person. It is opened by the browser of the machine, and
printed, so that it can be opened elsewhere (through an SSH tunnel, say) too.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import note_to_person
from harken.cli.status import browser_row
from harken.cli.verbs import Length, or_subcommand, verb, verb_command, verb_option
from harken.display import one_line
from harken.times import LENGTHS

_MAY: Final = "What the phone may do, with commas: read, answer, approve, send, sort."


@verb("open")
@click.option("--print", "is_only_printed", is_flag=True, help="Only print the link.")
@click.option("--phone", "is_phone", is_flag=True, help="Show a code for your phone to scan.")
@click.option("--name", metavar="NAME", default="", help="What to call the phone (default: phone).")
@click.option("--may", metavar="WORDS", default="read", show_default=True, help=_MAY)
@click.option("--expires", "seconds", metavar="TIME", type=Length(), help=f"Sign the phone out after: {LENGTHS}.")
def open_page(
    asked: Invocation, *, is_only_printed: bool, is_phone: bool, name: str, may: str, seconds: float | None
) -> None:
    """Open the page in the browser. The link signs you in: it works once, for two minutes."""
    if is_phone:
        _open_phone(asked, name, may, seconds)
        return
    import webbrowser

    with asked.daemon() as daemon:
        url = str(daemon.ask("sign_in")["url"])
        problem = str(daemon.ask("status")["daemon"]["port_problem"])
    is_opened = not is_only_printed and has_display() and webbrowser.open(url)
    if asked.gave_json({"url": url, "opened": is_opened}):
        return
    if problem:
        note_to_person(one_line(problem.removesuffix(": harken open")) + ".")
    asked.screen.line(one_line(url))
    if not is_only_printed and not is_opened:
        note_to_person("No browser was found. Open the link yourself: it works once, for two minutes.")


def _open_phone(asked: Invocation, name: str, may: str, seconds: float | None) -> None:
    words = [word.strip() for word in may.split(",") if word.strip()]
    made = asked.ask("phone_link", name=name, may=words, seconds=seconds)
    if asked.gave_json(made):
        return
    url, called = one_line(made["url"]), one_line(made["name"])
    if sys.stdout.isatty():
        sys.stdout.write(_code(url))
    asked.screen.line(url)
    note_to_person(f"Scan the code with your phone, or open the link there. It works once, for {made['seconds']:g} s.")
    note_to_person(f"The phone may {', '.join(words)}. To sign it out: harken token revoke {called}")


def _code(url: str) -> str:
    """Return the code for a phone, in blocks that stand for two dots each."""
    import io

    import segno

    drawn = io.StringIO()
    segno.make_qr(url, error="l").terminal(drawn, border=2, compact=True)
    # In its own colours: on a light terminal it would be a negative, which not every phone reads.
    return "".join(f"\x1b[97;40m{line}\x1b[0m\n" for line in drawn.getvalue().splitlines())


def has_display() -> bool:
    """Whether a browser has somewhere to show a page; a terminal is not for it."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


@or_subcommand
@verb_command("browsers")
def browsers(asked: Invocation) -> None:
    found = asked.ask("browsers")
    if asked.gave_json(found):
        return
    asked.screen.table([browser_row(each) for each in found["browsers"]])
    if not found["browsers"]:
        note_to_person("No browser is signed in. To sign one in: harken open")


@verb_command("sign_out")
@click.argument("names", nargs=-1, metavar="ID...", shell_complete=completer("browsers"))
@verb_option("sign_out", "is_all")
def sign_out(asked: Invocation, *, names: tuple[str, ...], is_all: bool) -> None:
    result = asked.ask("sign_out", browsers=list(names), is_all=is_all)
    if asked.gave_json(result):
        return
    for each in result["browsers"]:
        asked.screen.line(f"{one_line(each['id'])}  signed out: {one_line(each['browser'])}")
    if not result["browsers"]:
        note_to_person("No browser was signed in.")


browsers.add_command(sign_out)
