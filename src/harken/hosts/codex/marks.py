"""The marks of Codex, as version 0.166.0 was seen to set them."""

from __future__ import annotations

from typing import Final

from harken.hosts.marks import HostMarks

# For its shell only: hooks and MCP servers have none, and are known by their process. Not `CODEX_MANAGED_BY_NPM`, which
# the command that starts it sets, nor `CODEX_CI` and `CODEX_HOME`, which people may set.
MARKS: Final = HostMarks(
    variables=("CODEX_THREAD_ID", "CODEX_SESSION_ID", "CODEX_TOOL_CALL_ID"),
    session="CODEX_THREAD_ID",
    programs=("codex",),
    packages=("@openai/codex",),
)
