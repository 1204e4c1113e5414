"""Other MCP servers, declared: what they announce without being asked."""

from __future__ import annotations

from typing import Final

from harken.plugins import LazyPart
from harken.sources.source import SourceKind, Speakers

KIND: Final = SourceKind(
    name="mcp",
    title="MCP server",
    summary="An MCP server, by its address or the command that starts it.",
    speakers=Speakers.MACHINES,
    read_settings=LazyPart("harken.sources.mcp.settings:read_settings"),
    answers=False,
    make=LazyPart("harken.sources.mcp.source:make_source"),
    setup=LazyPart("harken.sources.mcp.settings:McpSetup"),
    check=LazyPart("harken.sources.mcp.source:check"),
    is_default=True,
)
