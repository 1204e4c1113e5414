"""A satellite of one of several daemons that share a store."""

from __future__ import annotations

from pathlib import Path

from tests.loss.rig import DaemonStarter, Served, until
from tests.postgres.conftest import Machines
from tests.satellite.rig import MainDaemon, free_port, join, let_machines_in


def state_of(main: Served) -> str:
    """Return what a main daemon says of its only machine."""
    [machine] = main.call("machines")["machines"]
    return str(machine["state"])


def test_token_that_another_daemon_revokes_ends_the_link_at_once(
    machines: Machines, starter: DaemonStarter, tmp_path: Path
) -> None:
    """You revoke it where you are, and whoever has that machine is you until its link ends."""
    there, port = machines.start("there"), free_port()
    authority = let_machines_in(tmp_path / "main", port, tmp_path)
    machines.more = (tmp_path / "main" / "config.toml").read_text()
    main = MainDaemon(machines.start("here"), authority, port)
    until(lambda: main.served.call("status")["daemon"]["public_url"], "other machines are let in")
    home = machines.folder / "satellite"
    join(home, main, main.token("sandbox"), port)
    with starter.daemon(home) as satellite:
        satellite.start()
        until(lambda: state_of(main.served) == "here", "it is linked")
        assert satellite.call("send", text="hello")["id"]
        there.call("token_revoke", name="sandbox")
        until(lambda: state_of(main.served) == "revoked", "the link has ended")
