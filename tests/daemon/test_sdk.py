"""What a daemon imports on use: the MCP SDK with the first client that needs it, and the page when it is opened."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import anyio

from harken.daemon.compose import Sdk
from harken.surfaces.mcp import sdk

SECONDS = 30.0
PUT_OFF = {"mcp", "mcp_types", "pydantic", "jinja2", "markdown_it", "harken.surfaces.web.page.rendering"}
LOOK = f"import sys, harken.daemon.compose; print(*sorted({PUT_OFF} & set(sys.modules)))"


def test_a_daemon_starts_without_the_sdk_and_the_page() -> None:
    """They are more than half of what a start takes, and the first command waits for it."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOOK], capture_output=True, check=True, text=True, timeout=SECONDS
    )
    assert done.stdout.split() == []


async def test_agents_that_come_at_once_are_all_served() -> None:
    """After a restart every session comes back in the same moment: none may take a thread of its own, or fail."""
    imported, got = Sdk(), list[ModuleType]()

    async def come() -> None:
        got.append(await imported.module())

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as agents:
            for _ in range(50):
                agents.start_soon(come)
    assert got == [sdk] * 50
