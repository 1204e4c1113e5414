"""The marks of Qwen Code, as version 0.24.4 was seen to set them."""

from __future__ import annotations

from typing import Final

from harken.hosts.marks import HostMarks

# Its shell has both, hooks and MCP servers the second. Not `QWEN_CODE_IDE_SERVER_PORT` and its like, which its
# extension puts into every terminal of an editor.
MARKS: Final = HostMarks(
    variables=("QWEN_CODE", "QWEN_CODE_SESSION_ID"),
    session="QWEN_CODE_SESSION_ID",
    programs=("qwen",),
    packages=("@qwen-code/qwen-code",),
)
