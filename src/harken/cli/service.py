"""The verb `service`: have the system start Harken when the person logs in, so that mail arrives without a session.

Shown, asked, done; what it wrote is known again and taken away, and nothing else is. The system's side is in
`setup/service.py`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from harken.cli.authority import agree
from harken.cli.invocation import Invocation
from harken.cli.output import DIM, INDENT
from harken.cli.verbs import lists, verb
from harken.control.client import Result
from harken.display import one_line
from harken.hosts.registry import short

if TYPE_CHECKING:
    from harken.setup.service import Service

_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
_dry = click.option("--dry-run", is_flag=True, help="Show what would happen, without doing it.")


@click.group()
def service() -> None:
    """Run Harken as a service: systemd on Linux, launchd on macOS."""


@verb("install")
@_dry
@_yes
def install(asked: Invocation, *, dry_run: bool, yes: bool) -> None:
    """Install a user service that starts Harken, and start it now.

    Shows the unit, then asks. A running daemon is stopped and continues as the service.
    """
    from harken.cli.authority import refuse_agent
    from harken.setup.service import install as set_up
    from harken.setup.service import service_of, written

    refuse_agent(asked, "install a service")
    found = service_of(asked.home, os.environ)
    before, state = written(found), found.state()
    if before == found.text and state.is_enabled and state.is_active:
        _tell(asked, found, "current", f"{found.name} is installed and runs.")
        return
    commands = found.turning_on(is_new=before is None)
    if not asked.as_json:
        _show(asked, found, commands, text=found.text if before != found.text else "")
    if dry_run:
        _tell(asked, found, "planned", "", commands)
        return
    agree(asked, "Install?", is_agreed=yes)
    set_up(asked.home, found, before, state)
    _tell(asked, found, "installed", f"{found.name} runs, and starts when you log in.", commands)


@verb("remove")
@_dry
@_yes
def remove(asked: Invocation, *, dry_run: bool, yes: bool) -> None:
    """Stop the service, and remove exactly what `install` wrote.

    Leaves a unit that you wrote or changed as it is.
    """
    from harken.cli.authority import refuse_agent
    from harken.setup.service import remove as take_down
    from harken.setup.service import service_of, written

    refuse_agent(asked, "remove a service")
    found = service_of(asked.home, os.environ)
    if written(found) is None:
        _tell(asked, found, "not_installed", "There is no service of this home.")
        return
    commands = (*found.turning_off(), *found.forgetting())
    if not asked.as_json:
        _show(asked, found, commands, text="")
    if dry_run:
        _tell(asked, found, "planned", "", commands)
        return
    agree(asked, "Remove?", is_agreed=yes)
    take_down(found)
    said = f"{found.name} is removed, and the daemon stopped. Agents start it when they need it; by hand: harken up"
    _tell(asked, found, "removed", said, commands)


@verb("status")
def status(asked: Invocation) -> None:
    """Show whether the service is installed, enabled and running."""
    from harken.setup.service import ServiceState, is_changed, service_of

    found = service_of(asked.home, os.environ)
    is_there = found.file.is_file()
    state = found.state() if is_there else ServiceState(activity="inactive")
    has_changes = is_there and is_changed(found)
    word = state.activity if is_there else "not_installed"
    needs_login = found.needs_login() if is_there else None
    if asked.as_json:
        said = {"state": word, "enabled": state.is_enabled, "pid": state.pid or None, "needs_login": needs_login}
        asked.print_json({"name": found.name, "file": str(found.file), **said, "changed": has_changes})
        return
    if not is_there:
        asked.screen.hint("No service is installed for this home. Install it: harken service install")
        return
    rows = [("service", found.name), ("file", short(found.file)), ("state", word)]
    rows += [("starts by itself", "yes" if state.is_enabled else "no")]
    asked.screen.table([*rows, ("process", str(state.pid or "-"))])
    if needs_login:
        asked.screen.text(_linger())
    if has_changes:
        asked.screen.text("Its file is not as it was written, so that installing and removing leave it alone.")


service.add_command(install)
service.add_command(remove)
service.add_command(status)
lists(service, "status")


def _show(asked: Invocation, found: Service, commands: Sequence[Sequence[str]], *, text: str) -> None:
    screen = asked.screen
    screen.line(f"  {short(found.file)}")
    for line in text.splitlines():
        screen.line(INDENT + screen.paint(one_line(line), DIM))
    screen.line("  Commands:")
    for argv in commands:
        screen.line(INDENT + one_line(shlex.join(argv)))


def _tell(asked: Invocation, found: Service, state: str, sentence: str, commands: Sequence[Sequence[str]] = ()) -> None:
    is_on = state in ("installed", "current")
    needs_login = found.needs_login() if is_on else None
    if asked.as_json:
        said: Result = {"state": state, "name": found.name, "file": str(found.file), "needs_login": needs_login}
        asked.print_json(said | {"commands": [list(argv) for argv in commands]})
        return
    if sentence:
        asked.screen.line(sentence)
    if needs_login:
        asked.screen.text(_linger())


def _linger() -> str:
    if sys.platform == "darwin":
        return "It runs while you are logged in."
    return "It runs while you are logged in. To have it run always: loginctl enable-linger"
