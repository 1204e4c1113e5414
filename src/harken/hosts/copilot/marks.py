"""The marks of Copilot CLI, as version 1.0.102 was seen to set them."""

from __future__ import annotations

from typing import Final

from harken.hosts.marks import HostMarks

# Its shell has both, hooks the first, MCP servers the second.
MARKS: Final = HostMarks(
    variables=("COPILOT_CLI", "COPILOT_AGENT_SESSION_ID"),
    session="COPILOT_AGENT_SESSION_ID",
    programs=("copilot",),
    packages=("@github/copilot",),
)
