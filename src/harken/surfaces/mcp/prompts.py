"""The prompt `inbox`, for hosts that show a server's prompts as commands. Those with a skill of ours have it there."""

from __future__ import annotations

import mcp_types as types
from mcp.shared.exceptions import MCPError

from harken.hosts.instructions import SKILL_NAME, Abilities, command_text

_DESCRIPTION = "Show what waits in Harken, and answer it."
_WITH_SKILL = frozenset({"claude-code", "copilot-cli"})


def prompts_for(host: str) -> list[types.Prompt]:
    """Return the prompts that a host shows; none to one that has the same as a skill."""
    if host in _WITH_SKILL:
        return []
    return [types.Prompt(name=SKILL_NAME, title="Inbox", description=_DESCRIPTION)]


def prompt(name: str) -> types.GetPromptResult:
    """Return the text of a prompt."""
    if name != SKILL_NAME:
        raise MCPError(types.INVALID_PARAMS, f"There is no prompt {name[:80]!r}; there is {SKILL_NAME}.")
    text = types.TextContent(type="text", text=command_text(Abilities()))
    return types.GetPromptResult(description=_DESCRIPTION, messages=[types.PromptMessage(role="user", content=text)])
