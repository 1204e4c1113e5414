"""The MCP SDK is imported when an agent comes, or a moment later: a daemon is ready without it."""

from __future__ import annotations

import subprocess
import sys

import anyio

from harken.daemon.compose import Sdk
from harken.surfaces.mcp.connection import Connection

SECONDS = 30.0
LOOK = "import sys, harken.daemon.compose; print(*sorted({'mcp', 'mcp_types', 'pydantic'} & set(sys.modules)))"


def test_a_daemon_starts_without_the_sdk() -> None:
    """It is more than half of what a start takes, and whoever starts a daemon waits for it."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOOK], capture_output=True, check=True, text=True, timeout=SECONDS
    )
    assert done.stdout.split() == []


async def test_agents_that_come_at_once_are_all_served() -> None:
    """After a restart every session comes back in the same moment: none may take a thread of its own, or fail."""
    sdk, got = Sdk(), list[type[Connection]]()

    async def come() -> None:
        got.append(await sdk.connection())

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as agents:
            for _ in range(50):
                agents.start_soon(come)
    assert got == [Connection] * 50
