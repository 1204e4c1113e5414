"""The prompts `inbox` and `channel`, for hosts that show prompts as commands and have no skills of ours."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from harken.hosts.instructions import CHANNEL, INBOX, SKILLS, Abilities, command_text
from harken.hosts.registry import host_named

MAX_ARGUMENT_CHARS: Final = 200
_NAME: Final = "name"
_PROMPTS: Final[Mapping[str, types.Prompt]] = MappingProxyType(
    {
        INBOX: types.Prompt(name=INBOX, title="Inbox", description="Show what waits in Harken, and answer it."),
        CHANNEL: types.Prompt(
            name=CHANNEL,
            title="Channel",
            description="Show what was announced lately on a channel of Harken.",
            arguments=[types.PromptArgument(name=_NAME, description="The channel; all when left out.", required=False)],
        ),
    }
)


def prompts_for(host: str) -> list[types.Prompt]:
    """Return the prompts that a host shows; none to one that has the same as skills."""
    return [] if host_named(host).has_skills else list(_PROMPTS.values())


def prompt(name: str, arguments: Mapping[str, str] | None = None) -> types.GetPromptResult:
    """Return the text of a prompt, with what the user added to it."""
    known = _PROMPTS.get(name)
    if known is None:
        raise MCPError(types.INVALID_PARAMS, f"There is no prompt {name[:80]!r}; there are {', '.join(SKILLS)}.")
    # On one line: it stands at the end of our own words.
    added = " ".join((arguments or {}).get(_NAME, "").split())[:MAX_ARGUMENT_CHARS] if name == CHANNEL else ""
    text = types.TextContent(type="text", text=command_text(Abilities(), added, name=name))
    message = types.PromptMessage(role="user", content=text)
    return types.GetPromptResult(description=known.description, messages=[message])
