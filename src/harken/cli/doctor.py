"""The verb `doctor`: its words and options. What it does is imported when it is run."""

from __future__ import annotations

import click

from harken.cli.connect import complete_hosts, names_of
from harken.cli.verbs import Invocation, verb
from harken.errors import UserError


@verb("doctor")
@click.argument("words", metavar="[HOST...]", nargs=-1, shell_complete=complete_hosts)
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
    from harken.cli.checkup import check_up

    check_up(asked, names_of(words, is_all=not words))
