"""An MCP server over standard input and output, with two tools that leave a mark in a folder when they are called.

Started as `python -I toolserver.py FOLDER NAME`: a call of `note` makes FOLDER/NAME.note, one of `other` makes
FOLDER/NAME.other. It says nothing of Harken and imports nothing but the standard library, as somebody else's would.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

TOOLS: Final = ("note", "other")
_PROTOCOL: Final = "2025-06-18"
_UNKNOWN_METHOD: Final = -32601


def marks(folder: Path, name: str) -> set[str]:
    """Return the tools of a server that were called."""
    return {tool for tool in TOOLS if (folder / f"{name}.{tool}").exists()}


def answer(method: str, params: dict[str, object], folder: Path, name: str) -> dict[str, object] | None:
    """Return the result of a request; None for a method that it does not have."""
    if method == "initialize":
        version = params.get("protocolVersion", _PROTOCOL)
        info = {"name": name, "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        tools = [{"name": tool, "description": f"Makes a mark: {tool}.", "inputSchema": schema} for tool in TOOLS]
        return {"tools": tools}
    if method == "tools/call":
        tool = str(params.get("name"))
        (folder / f"{name}.{tool}").write_text("called", encoding="utf-8")
        return {"content": [{"type": "text", "text": f"MARKED {tool}"}]}
    return {} if method == "ping" else None


def main(folder: Path, name: str) -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        result = answer(request["method"], request.get("params") or {}, folder, name)
        reply: dict[str, object] = {"jsonrpc": "2.0", "id": request["id"]}
        if result is None:
            reply["error"] = {"code": _UNKNOWN_METHOD, "message": "unknown method"}
        else:
            reply["result"] = result
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
