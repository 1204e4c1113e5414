"""Harken's entries in Codex's two files: the MCP server, the hooks, and the trust in these hooks. Pure: bytes to bytes.

A hook is trusted by its place, so that nobody's trust moves: ours are appended, changed where they stand, and when
they go, the trust in what came after them goes along to its new place. Other entries are never touched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harken.hosts.codex.hooks import EVENTS, NAME
from harken.hosts.connect.command import hook_line, mcp_command
from harken.hosts.connect.edits import (
    json_append,
    json_remove_items,
    json_set,
    json_value,
    toml_remove,
    toml_set,
    toml_value,
)
from harken.hosts.connect.plan import InstallTarget
from harken.sessions.events import HookMoment

SERVER: Final = "harken"
# Above the 55 seconds that a tool of ours waits, and the time that a daemon needs to start.
TOOL_SECONDS: Final = 90
_SERVERS: Final = "mcp_servers"
_HOOK_SECONDS: Final = 10
# Codex gives these no more, and says so at every start when more is asked for.
_LAST_SECONDS: Final = 3
_OURS: Final = re.compile(r"/edge/hook\.py'? --home .+ codex [a-z]+(?: --in-task)?$", re.DOTALL)
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


def with_server(config: bytes | None, place: InstallTarget, *, file: Path) -> bytes:
    """Return the settings with the MCP server; what the person added to it, or decided about its tools, stays."""
    there = toml_value(config, (_SERVERS, SERVER), file=file)
    own = there if isinstance(there, dict) else {}
    command, *arguments = mcp_command(place)
    table = {
        **own,
        "command": command,
        "args": arguments,
        "tool_timeout_sec": own.get("tool_timeout_sec", TOOL_SECONDS),
        # Current models are not told of tools that are looked up on demand, nor of the server's instructions.
        "omit_tools_from": own.get("omit_tools_from", ["deferred"]),
    }
    return toml_set(config, (_SERVERS, SERVER), table, file=file)


def has_server(config: bytes | None, *, file: Path) -> bool:
    """Whether the MCP server is in the settings."""
    return isinstance(toml_value(config, (_SERVERS, SERVER), file=file), dict)


def without_server(config: bytes | None, *, file: Path) -> bytes | None:
    """Return the settings without the MCP server."""
    return toml_remove(config, (_SERVERS, SERVER), file=file)


def with_hooks(hooks: bytes | None, place: InstallTarget, *, file: Path) -> bytes | None:
    """Return the hooks with ours, each last in its event or where it stands already."""
    for moment, event in EVENTS.items():
        group = _group(place, moment)
        index = _index(_groups(hooks, event, file))
        if index is None:
            hooks = json_append(hooks, ("hooks", event), group, file=file)
        else:
            hooks = json_set(hooks, ("hooks", event, index), group, file=file)
    return hooks


def without_hooks(hooks: bytes | None, *, file: Path) -> bytes | None:
    """Return the hooks without ours; None when nothing is left."""
    for event in EVENTS.values():
        if _index(_groups(hooks, event, file)) is not None:
            hooks = json_remove_items(hooks, ("hooks", event), _is_ours, file=file)
    return hooks if json_value(hooks, file=file) else None


def places(hooks: bytes | None, *, file: Path) -> Mapping[str, str]:
    """Return where our hooks stand, as Codex writes it, each with its command."""
    found: dict[str, str] = {}
    for event in EVENTS.values():
        groups = _groups(hooks, event, file)
        index = _index(groups)
        if index is not None:
            found[_place(event, index, 0)] = _commands(groups[index])[0]
    return found


def with_trust(config: bytes | None, hooks_file: Path, hashes: Mapping[str, str], *, file: Path) -> bytes | None:
    """Return the settings with trust in the hooks at some places."""
    for place, digest in hashes.items():
        path = _trust(hooks_file, place)
        there = toml_value(config, path, file=file)
        own = there if isinstance(there, dict) else {}
        config = toml_set(config, path, {**own, "trusted_hash": digest}, file=file)
    return config


def without_trust(config: bytes | None, hooks_file: Path, hooks: bytes | None, *, file: Path) -> bytes | None:
    """Return the settings without trust in our hooks, and with the trust in those after them one place up."""
    for event in EVENTS.values():
        groups = _groups(hooks, event, hooks_file)
        index = _index(groups)
        if index is None:
            continue
        config = toml_remove(config, _trust(hooks_file, _place(event, index, 0)), file=file)
        for group in range(index + 1, len(groups)):
            for hook in range(len(_commands(groups[group]))):
                former, later = (_trust(hooks_file, _place(event, at, hook)) for at in (group, group - 1))
                state = toml_value(config, former, file=file)
                if isinstance(state, dict):
                    config = toml_set(toml_remove(config, former, file=file), later, state, file=file)
    return config


def trusts_project(config: bytes | None, project: Path, *, file: Path) -> bool:
    """Whether Codex reads the settings in a project's folder."""
    return toml_value(config, ("projects", str(project), "trust_level"), file=file) == "trusted"


def runs_hooks(config: bytes | None, *, file: Path) -> bool:
    """Whether the person has left hooks switched on."""
    return toml_value(config, ("features", "hooks"), file=file) is not False


def _group(place: InstallTarget, moment: HookMoment) -> dict[str, object]:
    is_last = moment in {HookMoment.START, HookMoment.END}
    hook: dict[str, object] = {
        "type": "command",
        "command": hook_line(place, NAME, moment, is_in_task=place.is_for_tasks),
        "timeout": _LAST_SECONDS if is_last else _HOOK_SECONDS,
    }
    if moment in {HookMoment.PROMPT, HookMoment.TOOL}:
        # No limit: it is counted in bytes, and would cut the middle out of a text that is not English.
        hook["additionalContextLimit"] = 0
    return {"hooks": [hook]}


def _groups(hooks: bytes | None, event: str, file: Path) -> Sequence[object]:
    groups = json_value(hooks, ("hooks", event), file=file)
    return groups if isinstance(groups, list) else []


def _index(groups: Sequence[object]) -> int | None:
    return next((index for index, group in enumerate(groups) if _is_ours(group)), None)


def _is_ours(group: object) -> bool:
    """Whether a group is as we write it: one hook, and that one of ours."""
    commands = _commands(group)
    return len(commands) == 1 and bool(_OURS.search(commands[0]))


def _commands(group: object) -> Sequence[str]:
    hooks = group.get("hooks") if isinstance(group, dict) else None
    entries = hooks if isinstance(hooks, list) else []
    return [str(hook.get("command", "")) if isinstance(hook, dict) else "" for hook in entries]


def _place(event: str, group: int, hook: int) -> str:
    return f"{_CAPITAL.sub('_', event).lower()}:{group}:{hook}"


def _trust(hooks_file: Path, place: str) -> tuple[str, str, str]:
    return ("hooks", "state", f"{hooks_file}:{place}")
