"""Harken's entries in Gemini CLI's settings, and its rules file. Pure: bytes to bytes.

What the person added to our server stays; other entries are never touched. A hook of ours is found by its name, so
that it is changed where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harken.hosts.connect.command import UNASKED, mcp_command
from harken.hosts.connect.edits import json_append, json_remove, json_remove_items, json_set, json_value
from harken.hosts.connect.plan import InstallTarget
from harken.hosts.gemini.hook_lines import GeminiHookLine, hook_lines

SERVER: Final = "harken"
# Above the 55 seconds that a tool of ours waits, and the time that a daemon needs to start.
TOOL_MILLISECONDS: Final = 90_000
HOOK_MILLISECONDS: Final = 10_000
_NAMES: Final = frozenset({"harken", "harken subagent"})
RULES: Final = f"""\
# Written by `harken connect gemini`, removed by `harken disconnect gemini`.
# Reading the inbox needs no confirmation, so these tools exist in headless runs too. Answering people (reply) does.
[[rule]]
mcpName = "{SERVER}"
toolName = [{", ".join(f'"{name}"' for name in UNASKED)}]
decision = "allow"
priority = 100
""".encode()


def with_entries(settings: bytes | None, place: InstallTarget, *, file: Path) -> bytes:
    """Return the settings with our server and our hooks."""
    there = json_value(settings, ("mcpServers", SERVER), file=file)
    own = there if isinstance(there, dict) else {}
    command, *arguments = mcp_command(place)
    server = {**own, "command": command, "args": arguments, "timeout": own.get("timeout", TOOL_MILLISECONDS)}
    data = json_set(settings, ("mcpServers", SERVER), server, file=file)
    for hook in hook_lines(place):
        index = _index(_groups(data, hook.event, file), hook.name)
        group = _group(hook)
        if index is None:
            data = json_append(data, ("hooks", hook.event), group, file=file)
        else:
            data = json_set(data, ("hooks", hook.event, index), group, file=file)
    return data


def without_entries(settings: bytes | None, *, file: Path) -> bytes | None:
    """Return the settings without anything of ours."""
    data = json_remove(settings, ("mcpServers", SERVER), file=file)
    hooks = json_value(data, ("hooks",), file=file)
    for event in hooks if isinstance(hooks, dict) else ():
        data = json_remove_items(data, ("hooks", str(event)), _is_ours, file=file)
    return data


def with_stub(settings: bytes | None, *, file: Path) -> bytes | None:
    """Return settings in which our server does nothing: the host tries it when it lists what it knows."""
    if not is_connected(settings, file=file):
        return settings
    return json_set(settings, ("mcpServers", SERVER), {"command": "true"}, file=file)


def is_connected(settings: bytes | None, *, file: Path) -> bool:
    """Whether our server is in the settings."""
    return json_value(settings, ("mcpServers", SERVER), file=file) is not None


def obstacles(settings: bytes | None, *, file: Path) -> Sequence[str]:
    """Return what in the person's own settings keeps ours from working."""
    found = []
    if json_value(settings, ("hooksConfig", "enabled"), file=file) is False:
        found.append('"hooksConfig.enabled" is false')
    disabled = json_value(settings, ("hooksConfig", "disabled"), file=file)
    if isinstance(disabled, list) and _NAMES & {str(name) for name in disabled}:
        found.append('"hooksConfig.disabled" names hooks of Harken')
    excluded = json_value(settings, ("mcp", "excluded"), file=file)
    if isinstance(excluded, list) and SERVER in excluded:
        found.append('"mcp.excluded" names harken')
    allowed = json_value(settings, ("mcp", "allowed"), file=file)
    if isinstance(allowed, list) and allowed and SERVER not in allowed:
        found.append('"mcp.allowed" does not name harken')
    return found


def _group(hook: GeminiHookLine) -> Mapping[str, object]:
    command = {"type": "command", "name": hook.name, "command": hook.line, "timeout": HOOK_MILLISECONDS}
    return {**({"matcher": hook.matcher} if hook.matcher else {}), "hooks": [command]}


def _groups(data: bytes | None, event: str, file: Path) -> Sequence[object]:
    groups = json_value(data, ("hooks", event), file=file)
    return groups if isinstance(groups, list) else ()


def _index(groups: Sequence[object], name: str) -> int | None:
    return next((number for number, group in enumerate(groups) if _name(group) == name), None)


def _is_ours(group: object) -> bool:
    return _name(group) in _NAMES


def _name(group: object) -> str:
    """Return the name of a group's only hook; a group with more is not one of ours."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    hook = hooks[0] if isinstance(hooks, list) and len(hooks) == 1 else None
    return str(hook.get("name", "")) if isinstance(hook, dict) else ""
