"""Harken's entries in Qwen Code's settings, and the lines for `sh` in them. Pure: bytes to bytes.

What the person added to our server stays; other entries are never touched. A hook of ours is found by its name, so
that it is changed where it stands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harken.hosts.connect.command import UNASKED, hook_line, mcp_command
from harken.hosts.connect.edits import json_append, json_remove, json_remove_items, json_set, json_value
from harken.hosts.connect.plan import InstallTarget
from harken.hosts.qwen.hooks import EVENTS, IDLE, IDLE_EVENT, NAME
from harken.sessions.events import HookMoment

SERVER: Final = "harken"
HOOK_NAME: Final = "harken"
# Above the 55 seconds that a tool of ours waits, and the time that a daemon needs to start.
TOOL_MILLISECONDS: Final = 90_000
HOOK_SECONDS: Final = 10
_ALLOWED: Final = tuple(f"mcp__{SERVER}__{name}" for name in UNASKED)
_ALLOW: Final = ("permissions", "allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenHookLine:
    """One hook: when it runs, and what."""

    event: str
    line: str
    matcher: str = ""


def hook_lines(place: InstallTarget) -> Sequence[QwenHookLine]:
    """Return the hooks that `connect` writes."""
    idle = QwenHookLine(event=IDLE_EVENT, line=hook_line(place, NAME, HookMoment.STOP), matcher=IDLE)
    return (*(QwenHookLine(event=event, line=_line(place, moment)) for moment, event in EVENTS.items()), idle)


def with_entries(settings: bytes | None, place: InstallTarget, *, file: Path) -> bytes:
    """Return the settings with our server, our hooks, and leave to read the inbox."""
    there = json_value(settings, ("mcpServers", SERVER), file=file)
    own = there if isinstance(there, dict) else {}
    command, *arguments = mcp_command(place)
    server = {
        **own,
        "command": command,
        "args": arguments,
        "timeout": own.get("timeout", TOOL_MILLISECONDS),
        # Otherwise the model is only told that there are tools it could look up.
        "alwaysLoadTools": own.get("alwaysLoadTools", True),
    }
    data = json_set(settings, ("mcpServers", SERVER), server, file=file)
    for tool in _ALLOWED:
        data = json_append(data, _ALLOW, tool, file=file)
    for hook in hook_lines(place):
        index = _index(_groups(data, hook.event, file))
        if index is None:
            data = json_append(data, ("hooks", hook.event), _group(hook), file=file)
        else:
            data = json_set(data, ("hooks", hook.event, index), _group(hook), file=file)
    return data


def without_entries(settings: bytes | None, *, file: Path) -> bytes | None:
    """Return the settings without anything of ours."""
    data = json_remove(settings, ("mcpServers", SERVER), file=file)
    data = json_remove_items(data, _ALLOW, lambda rule: rule in _ALLOWED, file=file)
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


def obstacles(settings: bytes | None, *, file: Path) -> Iterator[str]:
    """Return what in the person's own settings keeps ours from working."""
    if json_value(settings, ("disableAllHooks",), file=file) is True:
        yield '"disableAllHooks" is true'
    excluded = json_value(settings, ("mcp", "excluded"), file=file)
    if isinstance(excluded, list) and SERVER in excluded:
        yield '"mcp.excluded" names harken'
    allowed = json_value(settings, ("mcp", "allowed"), file=file)
    if isinstance(allowed, list) and allowed and SERVER not in allowed:
        yield '"mcp.allowed" does not name harken'
    if json_value(settings, ("agents", "crossSessionMessaging"), file=file) is False:
        yield '"agents.crossSessionMessaging" is false, so idle sessions cannot be woken'
    inbound = json_value(settings, ("agents", "crossSessionInbound"), file=file)
    if inbound in {"hold", "refuse"}:
        yield f'"agents.crossSessionInbound" is "{inbound}", so idle sessions are not woken by themselves'


def _line(place: InstallTarget, moment: HookMoment) -> str:
    line = hook_line(place, NAME, moment)
    if moment is not HookMoment.PROMPT:
        return line
    # It runs before every request of a turn. After the first its prompt is empty, and nobody needs to be asked unless
    # the bell rings. The text goes on as a document, not by a pipe: the hook's parent has to stay the session.
    bell = shlex.quote(str(place.harken / "run" / "bells" / NAME))
    return (
        f'[ -s {bell} ] || {{ said=$(cat); case $said in *\'"prompt":""}}\') exit 0;; esac; {line} <<HARKEN\n'
        f"$said\nHARKEN\n}}; {line}"
    )


def _group(hook: QwenHookLine) -> Mapping[str, object]:
    command = {"type": "command", "name": HOOK_NAME, "command": hook.line, "timeout": HOOK_SECONDS}
    return {**({"matcher": hook.matcher} if hook.matcher else {}), "hooks": [command]}


def _groups(data: bytes | None, event: str, file: Path) -> Sequence[object]:
    groups = json_value(data, ("hooks", event), file=file)
    return groups if isinstance(groups, list) else ()


def _index(groups: Sequence[object]) -> int | None:
    return next((number for number, group in enumerate(groups) if _is_ours(group)), None)


def _is_ours(group: object) -> bool:
    """Whether a group's only hook is ours; a group with more is not one of ours."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    hook = hooks[0] if isinstance(hooks, list) and len(hooks) == 1 else None
    return isinstance(hook, dict) and hook.get("name") == HOOK_NAME
