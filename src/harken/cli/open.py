"""`harken open`: the page in the browser, signed in by a link that works once.

The link comes from the daemon, which gives it only to the person. It is opened by whatever browser the machine has,
and printed, so that it can be opened elsewhere (through an SSH tunnel, say) too.
"""

from __future__ import annotations

import os
import sys
import webbrowser

import click

from harken.cli.output import note_to_person
from harken.cli.verbs import Invocation, verb
from harken.control.client import DaemonClient
from harken.display import one_line


@verb("open")
@click.option("--print", "is_only_printed", is_flag=True, help="Only print the link.")
def open_page(asked: Invocation, *, is_only_printed: bool) -> None:
    """Open the page in the browser. The link signs you in: it works once, for two minutes."""
    with DaemonClient(asked.home) as daemon:
        url = str(daemon.ask("sign_in")["url"])
        problem = str(daemon.ask("status")["daemon"]["port_problem"])
    is_opened = not is_only_printed and has_display() and webbrowser.open(url)
    if asked.as_json:
        asked.print_json({"url": url, "opened": is_opened})
        return
    if problem:
        note_to_person(one_line(problem.removesuffix(": harken open")) + ".")
    asked.screen.line(one_line(url))
    if not is_only_printed and not is_opened:
        note_to_person("There is no browser to open here. Open the link yourself: it works once, for two minutes.")


def has_display() -> bool:
    """Whether a browser has somewhere to show a page; a terminal is not for it."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
