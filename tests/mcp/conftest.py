"""One daemon for the folder, and agents that are closed at the end of a test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from harken.testing import DaemonProcess, EdgeClient, running_daemon
from tests.mcp.rig import Connect, drain, fresh_name


@pytest.fixture(scope="session")
def daemon() -> Iterator[DaemonProcess]:
    """A daemon with nothing configured. Its folder has a short path: a socket's name has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="harken-") as folder, running_daemon(Path(folder)) as running:
        yield running


@pytest.fixture
def connect(daemon: DaemonProcess) -> Iterator[Connect]:
    """Start agents."""
    with ExitStack() as open_agents:

        def start(
            name: str = "",
            *,
            environment: Mapping[str, str] | None = None,
            has_own_host: bool = False,
            is_drained: bool = True,
        ) -> EdgeClient:
            command = daemon.edge_command()
            if has_own_host:
                # With something left to do afterwards the shell stays, as the parent of the edge.
                command = ["/bin/sh", "-c", '"$@"; exit $?', "host", *command]
            agent = EdgeClient(command, name=name or fresh_name(), environment=dict(environment or {}))
            open_agents.enter_context(agent)
            if is_drained:
                drain(agent)
            return agent

        yield start
