"""The marks of Claude Code, as version 2.1.325 was seen to set them for its shell, its hooks and its MCP servers."""

from __future__ import annotations

from typing import Final

from harken.hosts.marks import HostMarks

# Not `CLAUDE_CODE_ENTRYPOINT`, which programs set that start it, nor `CLAUDE_CODE_SSE_PORT`, which its extension puts
# into every terminal of an editor, nor `CLAUDE_PROJECT_DIR`, which other hosts set too. MCP servers get the first two.
MARKS: Final = HostMarks(
    variables=("CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_PID"),
    session="CLAUDE_CODE_SESSION_ID",
    process="CLAUDE_PID",
    programs=("claude",),
    packages=("@anthropic-ai/claude-code",),
)
