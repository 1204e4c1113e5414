"""The verbs about hosts, `connect`, `disconnect`, `doctor` and `probe`: their words and options.

What they do is imported when they are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.verbs import verb
from harken.errors import NotFound, UserError
from harken.hosts.registry import connectable, host_name, host_names

if TYPE_CHECKING:  # what they do is imported when they are run
    from harken.hosts.connect.plan import RemoteInbox

_hosts = click.argument("words", metavar="HOST...", nargs=-1, shell_complete=completer("complete_hosts"))
_project = click.option(
    "--project",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Only this folder (default: all your sessions).",
)
_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


class ConnectChoices(TypedDict):
    """How an agent is connected; what you do not choose stays as it was."""

    wake: str | None
    has_approvals: bool | None
    url: str
    token_file: str
    token_variable: str


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
@click.option("--url", metavar="URL", default="", help="Connect to a Harken elsewhere: https://HOST/mcp. Tools only.")
@click.option("--token-file", metavar="FILE", type=click.Path(), default="", help="With --url: a file with the token.")
@click.option(
    "--token-variable",
    metavar="NAME",
    default="",
    help="With --url: the environment variable with the token (default: HARKEN_TOKEN).",
)
def connect(
    asked: Invocation,
    *,
    words: tuple[str, ...],
    is_all: bool,
    project: Path | None,
    dry_run: bool,
    yes: bool,
    **chosen: Unpack[ConnectChoices],
) -> None:
    """Connect agents: shows the changes to their settings, asks, and writes them.

    HOST is an agent that `harken doctor` lists. Adds Harken's MCP server, hooks and instructions, keeps a backup, and
    leaves your other settings as they are; `harken disconnect` removes exactly what was added. An agent that is not
    installed is prepared if files are enough. Exits with 1 if the agent does not see what was written.

    With --url, the agent is connected to a Harken on another machine: it gets its tools, and no hooks and no wake. The
    token is not written into its settings, only where it is.
    """
    from harken.cli.connecting import connect_targets, look_for_hosts

    remote = _remote(chosen["url"], chosen["token_file"], chosen["token_variable"])
    found = look_for_hosts(asked, names_of(words, is_all=is_all), project, remote)
    if is_all:
        found = [target for target in found if target.found]
    if not found:
        raise NotFound("No agent was found on this machine.", f"There are: {', '.join(host_names())}.")
    wake, has_approvals = chosen["wake"], chosen["has_approvals"]
    connect_targets(asked, found, wake=wake, has_approvals=has_approvals, is_dry=dry_run, is_agreed=yes)


def _remote(url: str, token_file: str, token_variable: str) -> RemoteInbox | None:
    """Return the inbox on another machine that the options name, if they do."""
    from harken.hosts.connect.plan import DEFAULT_VARIABLE
    from harken.hosts.connect.remote import remote_inbox

    if not url and not token_file and not token_variable:
        return None
    if not url:
        raise UserError("--token-file and --token-variable belong to --url.", "See: docs/howto/remote-mcp.md")
    if token_file and token_variable:
        raise UserError("A token is in a file or in a variable.", "Leave out one of the two options.")
    return remote_inbox(url, token_variable or DEFAULT_VARIABLE, token_file)


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
