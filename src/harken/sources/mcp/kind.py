"""Other MCP servers, declared: what they announce without being asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from harken.sources.source import Source, SourceEntry, SourceKind, Speakers

if TYPE_CHECKING:
    from harken.sources.check import CheckContext, CheckReport
    from harken.sources.setup import SourceSetup


def _check_settings(name: str, entry: Mapping[str, object]) -> None:
    from harken.sources.mcp.settings import read_settings

    read_settings(name, entry)


def _make(entry: SourceEntry) -> Source:
    from harken.sources.mcp.source import make_source

    return make_source(entry)


def _setup() -> SourceSetup:
    from harken.sources.mcp.setup import McpSetup

    return McpSetup()


def _check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    from harken.sources.check import listen
    from harken.sources.mcp.source import make_source

    return listen(make_source(entry), context.seconds)


KIND: Final = SourceKind(
    name="mcp",
    title="MCP server",
    summary="Another MCP server, by its address or the program that it is.",
    speakers=Speakers.MACHINES,
    check_settings=_check_settings,
    make=_make,
    can_answer=lambda _name, _entry: False,
    setup=_setup,
    check=_check,
    is_default=True,
)
