"""When the MCP SDK is imported: a moment after the daemon is ready, or with the first agent that comes sooner.

It is more than half of what a daemon imports, and commands, hooks and the page do without it. What serves an agent
with it is in `surfaces.mcp.connection`; who is served is decided in `compose`.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:  # importing it here is what this module puts off
    from harken.surfaces.mcp.connection import Connection

MODULE: Final = "harken.surfaces.mcp.connection"
# Whoever started the daemon asks it something first; that is not to be slowed down.
QUIET_SECONDS: Final = 3.0


class Sdk:
    """What serves agents, once it is imported."""

    def __init__(self) -> None:
        self._connection: type[Connection] | None = None
        self._importing = anyio.Lock()

    async def connection(self) -> type[Connection]:
        """Return what serves an agent. The first call takes as long as the import; meanwhile others are served."""
        return self._connection or await self._import_once()

    async def load(self) -> None:
        """Import it when the daemon has been ready for a moment, so that no agent has to wait for it."""
        await anyio.sleep(QUIET_SECONDS)
        await self.connection()

    async def _import_once(self) -> type[Connection]:
        # Many agents may come at once: one thread imports, not all that there are.
        async with self._importing:
            found = self._connection
            if found is None:
                found = self._connection = await anyio.to_thread.run_sync(_imported)
            return found


def _imported() -> type[Connection]:
    # As with everything else that stays: the collector need not look at it again and again, now or later.
    gc.disable()
    found: type[Connection] = import_module(MODULE).Connection
    gc.enable()
    gc.collect()
    gc.freeze()
    return found
