"""Connecting Qwen Code: an MCP server, hooks and leave to read the inbox, all in its settings; a block for agents.

Only current versions pass on what the server says of itself, and those few words are not enough: who speaks in a
message is said in a block in QWEN.md, in a project in AGENTS.md. How plans are made is in
`connect/settings_connector.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from harken.hosts.connect.command import SERVER, UNASKED, hook_line
from harken.hosts.connect.edits import json_append, json_remove_items, json_value
from harken.hosts.connect.instructions_block import AGENTS_FILE
from harken.hosts.connect.plan import InstallTarget, RemoteEntry
from harken.hosts.connect.settings_connector import HOOK_NAME, SettingsConnector, SettingsHook
from harken.hosts.instructions import Abilities
from harken.hosts.qwen.hooks import ASKS, EVENTS, FAILS, IDLE, IDLE_EVENT, NAME
from harken.sessions.turns import HookMoment

HALT_NAME: Final = f"{HOOK_NAME} halt"
_PREFIX: Final = f"mcp__{SERVER}__"
_ALLOWED: Final = tuple(f"{_PREFIX}{name}" for name in UNASKED)
_ALLOW: Final = ("permissions", "allow")
_CONTEXT_FILE: Final = "QWEN.md"
_WOKEN: Final = (
    "An idle session in a terminal is woken by Qwen's own inbox for messages between sessions, which is on unless you "
    "turned it off (agents.crossSessionMessaging). It arrives as the word of a process that Qwen started, never as "
    "yours."
)
_ASKS: Final = (
    "Reading the inbox needs no confirmation (permissions.allow), and only that: whether `reply` may send an answer is "
    "decided by your approval mode, as for any tool."
)


class QwenConnector(SettingsConnector):
    """How Qwen Code is connected. It has one way to be woken, and it costs nothing."""

    name = NAME
    title = "Qwen Code"
    program = "qwen"
    package = "@qwen-code/qwen-code"
    node = 22
    oldest = (0, 24)
    folder = ".qwen"
    home_variable = "QWEN_HOME"
    context_files = (_CONTEXT_FILE, AGENTS_FILE)
    project_context_files = (AGENTS_FILE, _CONTEXT_FILE)  # of the two that it reads there, the one of all hosts
    abilities = Abilities(tool_prefix=_PREFIX)
    hook_time = 10
    hook_names = frozenset({HOOK_NAME, HALT_NAME})
    why = "MCP server harken, leave to read the inbox, and hooks: with a prompt, between tools, at the end of a turn"
    notes = (_WOKEN, _ASKS)
    project_note = "Qwen reads it only in a folder that you trust."
    no_wake_hint = "Leave it out: idle sessions in a terminal are woken anyway."

    def own_folder(self, place: InstallTarget) -> Path:
        """Return the folder of the person's settings."""
        return Path(place.environ.get(self.home_variable) or place.user / self.folder)

    def hooks(self, place: InstallTarget) -> Sequence[SettingsHook]:
        """Return the hooks that `connect` writes."""
        idle = SettingsHook(event=IDLE_EVENT, line=hook_line(place, NAME, HookMoment.STOP), matcher=IDLE)
        halt = hook_line(place, NAME, HookMoment.HALT)
        asks = SettingsHook(event=IDLE_EVENT, line=halt, matcher=ASKS, name=HALT_NAME)
        fails = SettingsHook(event=FAILS, line=halt)
        usual = [SettingsHook(event=event, line=_line(place, moment)) for moment, event in EVENTS.items()]
        return (*usual, idle, asks, fails)

    def server(self, own: Mapping[str, object]) -> Mapping[str, object]:
        """Return what the entry of the server has besides its command."""
        # Otherwise the model is only told that there are tools it could look up.
        return {**super().server(own), "alwaysLoadTools": own.get("alwaysLoadTools", True)}

    def with_entries(self, settings: bytes | None, place: InstallTarget, *, file: Path) -> bytes:
        """Return the settings with our server, our hooks, and leave to read the inbox."""
        data = super().with_entries(settings, place, file=file)
        for tool in _ALLOWED:
            data = json_append(data, _ALLOW, tool, file=file)
        return data

    def without_entries(self, settings: bytes | None, *, file: Path) -> bytes | None:
        """Return the settings without anything of ours."""
        data = super().without_entries(settings, file=file)
        return json_remove_items(data, _ALLOW, lambda rule: rule in _ALLOWED, file=file)

    def obstacles(self, settings: bytes | None, *, file: Path) -> Iterator[str]:
        """Yield what in the person's own settings keeps ours from working."""
        if json_value(settings, ("disableAllHooks",), file=file) is True:
            yield '"disableAllHooks" is true'
        yield from super().obstacles(settings, file=file)
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


CONNECTOR: Final = QwenConnector()
REMOTE: Final[RemoteEntry] = CONNECTOR.remote_entry()
