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
    help="Only this folder (default: all your sessions).",
)
_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


@verb("connect")
@_hosts
@click.option("--all", "is_all", is_flag=True, help="Every agent that is installed.")
@_project
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@_yes
@click.option(
    "--approvals/--no-approvals",
    "has_approvals",
    default=None,
    help="Answer elsewhere too what the agent asks before it uses a tool.",
)
@click.option("--wake", metavar="WAY", default=None, help="How to wake an idle session, if the agent has a choice.")
def connect(
    asked: Invocation,
    *,
    words: tuple[str, ...],
    is_all: bool,
    project: Path | None,
    dry_run: bool,
    yes: bool,
    wake: str | None,
    has_approvals: bool | None,
) -> None:
    """Connect agents: shows the changes to their settings, asks, and writes them.

    HOST is an agent that `harken doctor` lists. Adds Harken's MCP server, hooks and instructions, keeps a backup, and
    leaves your other settings as they are; `harken disconnect` removes exactly what was added. An agent that is not
    installed is prepared if files are enough. Exits with 1 if the agent does not see what was written.
    """
    from harken.cli.connecting import connect_targets, look_for_hosts

    found = look_for_hosts(asked, names_of(words, is_all=is_all), project)
    if is_all:
        found = [target for target in found if target.found]
    if not found:
        raise NotFound("No agent was found on this machine.", f"There are: {', '.join(host_names())}.")
    connect_targets(asked, found, wake=wake, has_approvals=has_approvals, is_dry=dry_run, is_agreed=yes)


@verb("disconnect")
@_hosts
@click.option("--all", "is_all", is_flag=True, help="Every connection, also of projects.")
@_project
@_yes
def disconnect(asked: Invocation, *, words: tuple[str, ...], is_all: bool, project: Path | None, yes: bool) -> None:
    """Disconnect agents: removes exactly what `connect` added.

    Files that have not changed since become byte for byte what they were; others lose only Harken's entries.
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
        raise UserError("Name agents or use --all, not both.")
    if not words and not is_all:
        raise UserError("Which host?", f"Name one or several of: {', '.join(host_names())}; or use --all.")
    return connectable() if is_all else list(dict.fromkeys(host_name(word) for word in words))


@verb("probe")
@click.argument("word", metavar="HOST", shell_complete=completer("complete_hosts"))
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Run it in this folder, for an agent that asks whether to trust a new one.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def probe(asked: Invocation, *, word: str, folder: Path | None, yes: bool) -> None:
    """Send everything Harken can send to an idle agent, and report what reached its screen and its model.

    Runs HOST in a hidden terminal, with your settings and Harken's own model instead of yours: it costs no model
    call. Without --dir, it takes none of your messages. In your own folder it reads your inbox like any session
    there: it gets unread messages, and they count as read by this agent.
    """
    from harken.cli.live import probe_host

    probe_host(asked, host_name(word), folder, is_agreed=yes)


@verb("doctor")
@click.argument("words", metavar="[HOST...]", nargs=-1, shell_complete=completer("complete_hosts"))
@click.option("--live", is_flag=True, help="Run the agents named, and send a marker along every path to the model.")
@click.option(
    "--restart",
    is_flag=True,
    help="With --live: restart Harken while the agent works, and check that it reconnects.",
)
def doctor(asked: Invocation, *, words: tuple[str, ...], live: bool, restart: bool) -> None:
    """Check Harken and your agents: installed, connected, current, proven.

    Repairs nothing and calls no model. Exits with 1 if something needs fixing; an agent that is not installed or not
    connected does not count.

    --live runs each agent named for a moment, with your settings and Harken's own model instead of yours. It costs no
    model call, takes none of your messages and does not change your settings. --restart stops and starts your Harken
    while the agent works; nothing is lost.
    """
    if restart and not live:
        raise UserError("--restart is a part of the live check.", "Run: harken doctor --live HOST --restart")
    if live:
        from harken.cli.live import check_live

        check_live(asked, names_of(words, is_all=False), can_restart=restart)
        return
    from harken.cli.connecting import check_up

    check_up(asked, names_of(words, is_all=not words))
