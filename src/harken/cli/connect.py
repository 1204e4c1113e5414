"""The verbs about hosts, `connect`, `disconnect`, `doctor` and `probe`: their words and options.

What they do is imported when they are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.verbs import verb
from harken.errors import NotFound, UserError
from harken.hosts.registry import connectable, host_name, host_names

_hosts = click.argument("words", metavar="HOST...", nargs=-1, shell_complete=completer("complete_hosts"))
_project = click.option(
    "--project",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="This folder only, not every session of yours.",
)
_yes = click.option("--yes", "-y", is_flag=True, help="Do it without asking.")


@verb("connect")
@_hosts
@click.option("--all", "is_all", is_flag=True, help="Every host that is installed.")
@_project
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@_yes
@click.option("--wake", metavar="WAY", default=None, help="How an idle session is woken, where the host has a choice.")
def connect(
    asked: Invocation,
    *,
    words: tuple[str, ...],
    is_all: bool,
    project: Path | None,
    dry_run: bool,
    yes: bool,
    wake: str | None,
) -> None:
    """Connect agent hosts: MCP server, hooks, wake and instructions, each where the host reads it.

    HOST is an agent program that `harken doctor` lists. Shows what would change and asks. Your other settings stay as
    they are; `harken disconnect` takes out exactly what was written. A host that is not installed is prepared where
    files are enough. Exits with 1 when the host does not see what was written.
    """
    from harken.cli.connecting import connect_targets, look_for_hosts

    found = look_for_hosts(asked, names_of(words, is_all=is_all), project)
    if is_all:
        found = [target for target in found if target.found]
    if not found:
        raise NotFound("No agent host was found on this machine.", f"There are: {', '.join(host_names())}.")
    connect_targets(asked, found, wake=wake, is_dry=dry_run, is_agreed=yes)


@verb("disconnect")
@_hosts
@click.option("--all", "is_all", is_flag=True, help="Every connection, of projects too.")
@_project
@_yes
def disconnect(asked: Invocation, *, words: tuple[str, ...], is_all: bool, project: Path | None, yes: bool) -> None:
    """Disconnect agent hosts: take out what `connect` wrote, and nothing else.

    Files that nobody has written since become what they were, byte for byte; from the others our entries go.
    """
    from harken.cli.connecting import disconnect_targets
    from harken.hosts.connect.targets import connected_targets, targets

    if is_all and not words and not project:
        found = connected_targets(asked.home.path)
    else:
        found = targets(asked.home.path, names_of(words, is_all=is_all), project, is_looking=False)
    disconnect_targets(asked, found, is_agreed=yes)


def names_of(words: Sequence[str], *, is_all: bool) -> list[str]:
    """Return the hosts that are meant, each once."""
    if is_all and words:
        raise UserError("Name hosts, or say --all, not both.")
    if not words and not is_all:
        raise UserError("Which host?", f"Name one or several of: {', '.join(host_names())}; or say --all.")
    return connectable() if is_all else list(dict.fromkeys(host_name(word) for word in words))


@verb("probe")
@click.argument("word", metavar="HOST", shell_complete=completer("complete_hosts"))
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Run it in this folder, for a host that asks whether to trust a new one.",
)
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
def probe(asked: Invocation, *, word: str, folder: Path | None, yes: bool) -> None:
    """Send everything that can be sent to an idle session of a host, and report what it showed and told its model.

    HOST is run in a terminal of its own, with your settings and a model of Harken's own in place of yours: it costs no
    model call. Without --dir it takes none of your messages. In your own folder it reads your inbox as any session
    there does: what waits is given to it, and counts as read by this host.
    """
    from harken.cli.live import probe_host

    probe_host(asked, host_name(word), folder, is_agreed=yes)


@verb("doctor")
@click.argument("words", metavar="[HOST...]", nargs=-1, shell_complete=completer("complete_hosts"))
@click.option("--live", is_flag=True, help="Run the hosts named, and send a marker through every surface.")
@click.option(
    "--restart",
    is_flag=True,
    help="With --live: restart Harken while the host works, and look whether it is found again.",
)
def doctor(asked: Invocation, *, words: tuple[str, ...], live: bool, restart: bool) -> None:
    """Check Harken and the agent hosts: installed, connected, current, and proven by what arrived.

    Repairs nothing and calls no model. Exits with 1 when something needs fixing; a host that is not installed or not
    connected does not.

    With --live each host named is run for a moment, with your settings and a model of Harken's own in place of yours:
    it costs no model call, takes none of your messages and writes nothing into your settings. With --restart your own
    Harken is stopped and started again while the host works: nothing that was accepted is lost.
    """
    if restart and not live:
        raise UserError("--restart is a part of the live check.", "Run: harken doctor --live HOST --restart")
    if live:
        from harken.cli.live import check_live

        check_live(asked, names_of(words, is_all=False), can_restart=restart)
        return
    from harken.cli.connecting import check_up

    check_up(asked, names_of(words, is_all=not words))
