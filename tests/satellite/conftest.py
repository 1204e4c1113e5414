"""A main daemon that lets other machines in, in a home with a short path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loss.conftest import home, no_runtime_folder
from tests.loss.rig import DaemonStarter
from tests.postgres.proxy import BadWay
from tests.satellite.rig import MainDaemon, Pair, free_port, join, let_machines_in

__all__ = ["home", "no_runtime_folder"]


@pytest.fixture
def main(starter: DaemonStarter, home: Path, tmp_path: Path) -> Iterator[MainDaemon]:
    """A main daemon, not started yet."""
    port = free_port()
    authority = let_machines_in(home, port, tmp_path)
    with starter.daemon(home) as served:
        yield MainDaemon(served, authority, port)


@pytest.fixture
def pair(main: MainDaemon, starter: DaemonStarter, home: Path) -> Iterator[Pair]:
    """A main daemon and a satellite that is linked to it."""
    main.start()
    there = home.with_name("satellite")
    token = main.token("buildbox")
    with BadWay(("127.0.0.1", main.port)) as way, starter.daemon(there) as satellite:
        join(there, main, token, way.port)
        yield Pair(main, satellite, way, token).start()
