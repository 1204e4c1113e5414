"""The plugin that Copilot CLI loads: MCP server, hooks, the skills `/inbox` and `/channel`, where chosen a way to wake.

Pure: names and contents of files. It stands in a marketplace of its own, which Copilot reads live. The name of that
differs from Claude Code's on purpose: Copilot also loads what a project has enabled for Claude Code, and of two plugins
with one name it takes the project's. `connect.py` puts the files in place.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from importlib.resources import files as resources
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken import __version__
from harken.hosts.connect.command import hook_line, mcp_command
from harken.hosts.connect.plan import InstallTarget
from harken.hosts.copilot.hooks import NAME
from harken.hosts.instructions import SKILLS, Abilities, skill_text
from harken.sessions.events import HookMoment

MARKETPLACE: Final = "harken-copilot"
PLUGIN: Final = "harken"
PLUGIN_ID: Final = f"{PLUGIN}@{MARKETPLACE}"
SERVER: Final = "harken"
TOOL_PREFIX: Final = f"{SERVER}-"

EXTENSION: Final = "extension"
WAITER: Final = "waiter"
NO_WAKE: Final = ""

ARMING_WORDS: Final = "Please start Harken's waiter"
CATALOGUE: Final = ".github/plugin/marketplace.json"
EXTENSION_SETTINGS: Final = f"{PLUGIN}/extensions/{PLUGIN}/harken.json"

# Our tools that reach nobody but are not read-only, so that Copilot asks before each. A hook could answer for the
# person, but its word would also beat what they have refused by a rule of their own.
QUIET_TOOLS: Final = ("inbox_pull", "inbox_read", "wait_for_inbound_message", "ack", "check_inbox")
TELLING_TOOLS: Final = ("reply", "send_to_task", "send_to_peer")  # it asks before these too, and should

_DESCRIPTION: Final = "The inbox of this agent: messages from people, machines and other agents."
_HOOKS: Final[Mapping[str, HookMoment]] = MappingProxyType(
    {
        "sessionStart": HookMoment.START,
        "userPromptSubmitted": HookMoment.PROMPT,
        "postToolUse": HookMoment.TOOL,
        "postToolUseFailure": HookMoment.TOOL,
        "agentStop": HookMoment.STOP,
        "sessionEnd": HookMoment.END,
    }
)
# Copilot waits for a hook before it goes on; a daemon that hangs must not hold up a person for long.
_HOOK_SECONDS: Final = 10


def folder(place: InstallTarget) -> Path:
    """Return where the marketplace is; a project has one of its own, because its wake may be another."""
    if place.project is None:
        return place.harken / "plugins" / NAME
    mark = hashlib.sha256(str(place.project).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return place.harken / "plugins" / f"{NAME}-{mark}"


def abilities(wake: str) -> Abilities:
    """Return what Copilot can do with Harken when it is connected with this wake."""
    return Abilities(tool_prefix=TOOL_PREFIX, can_be_woken=wake != NO_WAKE)


def files(place: InstallTarget, wake: str) -> Mapping[str, bytes]:
    """Return the files of the marketplace by their names in it."""
    can = abilities(wake)
    parts = {
        f"{PLUGIN}/.mcp.json": _json({"mcpServers": {SERVER: _server(place)}}),
        f"{PLUGIN}/hooks/hooks.json": _json({"version": 1, "hooks": _hooks(place, wake)}),
        **{f"{PLUGIN}/skills/{name}/SKILL.md": skill_text(can, name).encode() for name in SKILLS},
    }
    manifest = {
        "name": PLUGIN,
        "version": __version__,
        "description": _DESCRIPTION,
        "skills": "skills/",
        "hooks": "hooks/hooks.json",
        "mcpServers": ".mcp.json",
    }
    if wake == EXTENSION:
        manifest["extensions"] = "extensions/"
        script = resources("harken.hosts.copilot").joinpath("files", "extension.mjs").read_bytes()
        parts[f"{PLUGIN}/extensions/{PLUGIN}/extension.mjs"] = script
        parts[EXTENSION_SETTINGS] = _json({"home": str(place.harken)})
    plugin = {"name": PLUGIN, "source": f"./{PLUGIN}", "description": _DESCRIPTION, "version": __version__}
    catalogue = {"name": MARKETPLACE, "owner": {"name": "Harken"}, "plugins": [plugin]}
    return {CATALOGUE: _json(catalogue), f"{PLUGIN}/plugin.json": _json(manifest), **parts}


def waiter_command(place: InstallTarget) -> str:
    """Return the command that an agent starts in the background to be woken."""
    return shlex.join(_waiter(place))


def arming(place: InstallTarget) -> Mapping[str, object]:
    """Return the hook that has the waiter started when Copilot starts: a prompt, which it takes from settings only."""
    prompt = (
        f"{ARMING_WORDS} with the bash tool, exactly as written here, with mode "
        '"async", detach true and the description "Harken waiter": '
        f"{waiter_command(place)}\n"
        "It ends when a message for this session arrives, and its output is that message. "
        "Nothing else is to be done now; an answer of one word is enough."
    )
    return {"type": "prompt", "prompt": prompt}


def is_arming(hook: object) -> bool:
    """Whether a hook in the settings is the one that starts a waiter of ours."""
    return isinstance(hook, dict) and str(hook.get("prompt", "")).startswith(ARMING_WORDS)


def _waiter(place: InstallTarget, *more: str) -> tuple[str, ...]:
    return (place.python, "-I", "-S", str(place.edge / "wait.py"), "--home", str(place.harken), NAME, *more)


def _server(place: InstallTarget) -> Mapping[str, object]:
    program, *arguments = mcp_command(place)
    return {"type": "local", "command": program, "args": arguments, "tools": ["*"]}


def _hooks(place: InstallTarget, wake: str) -> Mapping[str, list[Mapping[str, object]]]:
    hooks = {event: [_hook(hook_line(place, NAME, moment))] for event, moment in _HOOKS.items()}
    if wake == WAITER:
        command = waiter_command(place)
        hooks["permissionRequest"] = [_hook(_guarded(_waiter(place, "--allow", command)), matcher="^bash$")]
        # Of several that hold up the end of a turn, Copilot hears the last: messages go before reminders.
        hooks["agentStop"].insert(0, _hook(_guarded(_waiter(place, "--remind", command))))
    return hooks


def _hook(line: str, matcher: str = "") -> Mapping[str, object]:
    hook: dict[str, object] = {"type": "command", "bash": line, "timeoutSec": _HOOK_SECONDS}
    return hook | {"matcher": matcher} if matcher else hook


def _guarded(command: tuple[str, ...]) -> str:
    """Return a line that is silent where the interpreter or the script is gone."""
    return f"[ -x {shlex.quote(command[0])} ] && [ -f {shlex.quote(command[3])} ] || exit 0; exec {shlex.join(command)}"


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"
