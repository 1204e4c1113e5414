"""The marks of Gemini CLI, as version 0.61.0 was seen to set them."""

from __future__ import annotations

from typing import Final

from harken.hosts.marks import HostMarks

# Its shell and MCP servers have the first, hooks the second. Not `GEMINI_CLI_IDE_SERVER_PORT` and its like, which its
# extension puts into every terminal of an editor.
MARKS: Final = HostMarks(
    variables=("GEMINI_CLI", "GEMINI_SESSION_ID"),
    session="GEMINI_SESSION_ID",
    programs=("gemini",),
    packages=("@google/gemini-cli",),
)
