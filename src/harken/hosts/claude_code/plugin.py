"""The plugin that Claude Code installs: MCP server, hooks, the skills `/inbox` and `/channel`. A marketplace of one.

Pure: names and contents of files. Every command has the interpreter and Harken's home written out, because hosts start
them with an environment of their own making. A hook at the start tells the agent who speaks in a message: what the
server says of itself is missing from a turn that a message begins, and CLAUDE.md is read by other programs too, but not
in every worktree. `connect.py` puts the files in place.

The plugin's server is also Claude Code's channel, its own push. A session listens to it by an option of its command
line; without one Claude Code drops what is pushed, silently, so nothing is pushed then. That a session listens is not
yet proof: Claude Code may refuse the channel for reasons of its own, and other surfaces follow.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harken import __version__
from harken.hosts.claude_code.hooks import ASK_SECONDS, ASKS, ASKS_FORM, EVENTS, FAILS, TELLS
from harken.hosts.connect.command import UNASKED, hook_line, mcp_command
from harken.hosts.connect.plan import InstallTarget
from harken.hosts.hook import ASK
from harken.hosts.instructions import SKILLS, Abilities, agent_instructions, skill_text
from harken.hosts.wake import PushChannel
from harken.model import Message, timestamp
from harken.sessions.turns import HookMoment

HOST: Final = "claude-code"
PLUGIN: Final = "harken"
SERVER: Final = "harken"
TOOL_PREFIX: Final = f"mcp__plugin_{PLUGIN}_{SERVER}__"

MANIFEST: Final = f"{PLUGIN}/.claude-plugin/plugin.json"
_DESCRIPTION: Final = "The inbox of this agent: messages from people, machines and other agents."
_SUMMARY: Final = "Harken: a message arrived"
_PREFIX: Final = "New in the inbox."
# Claude Code waits for a hook before it goes on; a daemon that hangs must not hold up a person for long.
_HOOK_SECONDS: Final = 10
_MARK_CHARS: Final = 12
_TOLD: Final = "instructions.json"
# A session that is resumed has it in its transcript.
_FRESH: Final = "startup|clear|compact"

METHOD: Final = "notifications/claude/channel"
OPTIONS: Final = ("--channels", "--dangerously-load-development-channels")


def marketplace(place: InstallTarget) -> str:
    """Return the name of the marketplace. Each project has its own: one can be taken away without the others."""
    return "-".join(("harken", *_mark(place)))


def folder(place: InstallTarget) -> Path:
    """Return where the marketplace is."""
    return place.harken / "plugins" / "-".join((HOST, *_mark(place)))


def plugin_id(place: InstallTarget) -> str:
    """Return what Claude Code calls the plugin."""
    return f"{PLUGIN}@{marketplace(place)}"


def is_plugin_id(value: str) -> bool:
    """Return whether this is what Claude Code calls the plugin, in any scope."""
    return re.fullmatch(rf"{PLUGIN}@harken(-[0-9a-f]{{{_MARK_CHARS}}})?", value) is not None


def files(place: InstallTarget) -> Mapping[str, bytes]:
    """Return the files of the marketplace by their names in it."""
    abilities = Abilities(tool_prefix=TOOL_PREFIX)
    parts = {
        f"{PLUGIN}/.mcp.json": _json({"mcpServers": {SERVER: _server(place)}}),
        f"{PLUGIN}/hooks/hooks.json": _json({"hooks": _hooks(place)}),
        f"{PLUGIN}/hooks/{_TOLD}": _json(_told(abilities)),
        **{f"{PLUGIN}/skills/{name}/SKILL.md": skill_text(abilities, name).encode() for name in SKILLS},
    }
    manifest = {
        "name": PLUGIN,
        "version": _version(parts),
        "description": _DESCRIPTION,
        "author": {"name": "Harken"},
        "license": "Apache-2.0",
        "channels": [{"server": SERVER}],
    }
    catalogue = {
        "name": marketplace(place),
        "owner": {"name": "Harken"},
        "description": "Written by `harken connect`.",
        "plugins": [{"name": PLUGIN, "source": f"./{PLUGIN}", "description": _DESCRIPTION}],
    }
    return {".claude-plugin/marketplace.json": _json(catalogue), MANIFEST: _json(manifest), **parts}


def version(place: InstallTarget) -> str:
    """Return the version of the plugin that these files are."""
    return str(json.loads(files(place)[MANIFEST])["version"])


def _mark(place: InstallTarget) -> tuple[str, ...]:
    if place.project is None:
        return ()
    return (hashlib.sha256(bytes(place.project)).hexdigest()[:_MARK_CHARS],)


def _server(place: InstallTarget) -> Mapping[str, object]:
    program, *arguments = mcp_command(place)
    # A turn that a wake starts does not list tools that have to be searched for.
    return {"command": program, "args": arguments, "alwaysLoad": True}


def _hooks(place: InstallTarget) -> Mapping[str, object]:
    hooks: dict[str, list[Mapping[str, object]]] = {EVENTS[moment]: [_hook(place, moment)] for moment in EVENTS}
    # Silent in another program that loads the plugin and does not say where it is.
    command = f'cat "${{CLAUDE_PLUGIN_ROOT}}/hooks/{_TOLD}" 2>/dev/null || :'
    instructing = {"type": "command", "command": command, "timeout": _HOOK_SECONDS}
    hooks[EVENTS[HookMoment.START]].append({"matcher": _FRESH, "hooks": [instructing]})
    # Claude Code asks before it uses any tool of a server, in every mode; a person's own deny rules come before this.
    allow = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
    command = f"printf %s {shlex.quote(json.dumps(allow))}"
    names = "|".join(UNASKED)
    hooks["PreToolUse"] = [
        {"matcher": f"^{TOOL_PREFIX}({names})$", "hooks": [{"type": "command", "command": command}]},
    ]
    telling = _hook(place, HookMoment.HALT)
    hooks |= {ASKS: [telling], FAILS: [telling], TELLS: [{"matcher": f"^{ASKS_FORM}$", **telling}]}
    if place.has_approvals:
        asking = {"type": "command", "command": hook_line(place, HOST, ASK), "timeout": ASK_SECONDS}
        hooks[ASKS].append({"hooks": [asking]})
    return hooks


def _told(abilities: Abilities) -> Mapping[str, object]:
    """Return what the hook at the start of a session answers."""
    text = agent_instructions(abilities)
    return {"hookSpecificOutput": {"hookEventName": EVENTS[HookMoment.START], "additionalContext": text}}


def _hook(place: InstallTarget, moment: HookMoment) -> Mapping[str, object]:
    hook: dict[str, object] = {"type": "command", "command": hook_line(place, HOST, moment), "timeout": _HOOK_SECONDS}
    if moment is HookMoment.BELL:
        hook |= {"asyncRewake": True, "rewakeSummary": _SUMMARY, "rewakeMessage": _PREFIX}
    return {"hooks": [hook]}


def _version(parts: Mapping[str, bytes]) -> str:
    """Return Harken's version and a mark of the contents: Claude Code updates a plugin when its version differs."""
    mark = hashlib.sha256(b"\0".join(parts[name] for name in sorted(parts))).hexdigest()[:8]
    return f"{__version__}+{mark}"


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


def listens_to_channel(argv: Sequence[str]) -> bool:
    """Return whether a command line of Claude Code asks for our channel."""
    is_listing = False
    for word in argv[1:]:
        option, _, value = word.partition("=")
        if option in OPTIONS:
            if _is_ours(value):
                return True
            is_listing = not value  # with `=` the option takes one entry, else all that follow
        elif word.startswith("-"):
            if word == "--":
                return False
            is_listing = False
        elif is_listing and _is_ours(word):
            return True
    return False


def _is_ours(entry: str) -> bool:
    kind, _, name = entry.partition(":")
    return is_plugin_id(name) if kind == "plugin" else entry == f"server:{SERVER}"


def _params(text: str, messages: Sequence[Message]) -> Mapping[str, object]:
    """Return a push; of a single message also what plugins of this kind say: who wrote it, where, and when.

    Meta values are strings, and none is called `source`: the host adds that one itself.
    """
    meta = {"kind": "inbox"}
    if len(messages) == 1:
        (message,) = messages
        meta |= {
            "chat_id": message.conversation or message.channel or message.source,
            "message_id": message.id,
            "user": message.sender.label,
            "ts": timestamp(message.received_at),
        }
    return {"content": text, "meta": meta}


CHANNEL: Final = PushChannel(
    surface="claude channel",
    capability="claude/channel",
    method=METHOD,
    most_chars=8_000,
    params=_params,
    listens=listens_to_channel,
)
