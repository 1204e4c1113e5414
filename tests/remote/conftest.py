"""A daemon with a public listener, in a home with a short path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loss.conftest import home, no_runtime_folder
from tests.loss.rig import DaemonStarter
from tests.remote.rig import PublicDaemon
from tests.satellite.rig import MainDaemon, free_port, let_machines_in

__all__ = ["home", "no_runtime_folder"]


@pytest.fixture
def public(starter: DaemonStarter, home: Path, tmp_path: Path) -> Iterator[PublicDaemon]:
    """A daemon that programs elsewhere reach, started."""
    port = free_port()
    authority = let_machines_in(home, port, tmp_path)
    with starter.daemon(home) as served:
        yield PublicDaemon(MainDaemon(served, authority, port).start())
