"""The verb `probe`: its words and options. What it does is imported when it is run."""

from __future__ import annotations

from pathlib import Path

import click

from harken.cli.connect import complete_hosts
from harken.cli.verbs import Invocation, verb
from harken.hosts.registry import host_name


@verb("probe")
@click.argument("word", metavar="HOST", shell_complete=complete_hosts)
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
