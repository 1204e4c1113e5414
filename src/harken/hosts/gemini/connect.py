"""Connecting Gemini CLI: an MCP server and hooks in its settings, a rules file of our own, a block in GEMINI.md.

Gemini passes on the few words that the server says of itself; the block says who speaks in a message. How plans are
made is in `connect/settings_connector.py`. Its hooks see to it that a subagent's tools are told nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.hosts.connect.command import SERVER, UNASKED, hook_line
from harken.hosts.connect.edits import json_value
from harken.hosts.connect.files import read
from harken.hosts.connect.plan import FileEdit, InstallTarget, RemoteEntry
from harken.hosts.connect.record import key_of, records
from harken.hosts.connect.settings_connector import HOOK_NAME, SETTINGS, SettingsConnector, SettingsHook, is_connected
from harken.hosts.gemini.hooks import ASKS, CLEARED, EVENTS, NAME, TELLS
from harken.hosts.instructions import Abilities
from harken.sessions.turns import HookMoment

RULES: Final = f"""\
# Written by `harken connect gemini`, removed by `harken disconnect gemini`.
# Reading the inbox needs no confirmation, so these tools exist in headless runs too. Answering people (reply) does.
[[rule]]
mcpName = "{SERVER}"
toolName = [{", ".join(f'"{name}"' for name in UNASKED)}]
decision = "allow"
priority = 100
""".encode()
_SUBAGENT: Final = "harken subagent"
_SUBAGENT_TOOL: Final = "invoke_agent"
_MARK_EVENT: Final = "BeforeTool"
_ITS_OWN: Final = f"^{_SUBAGENT_TOOL}$"
_OTHERS: Final = f"^(?!{_SUBAGENT_TOOL}$)"
_ASLEEP: Final = (
    "Gemini CLI has no way to be woken. A message for an idle session waits and comes with your next prompt; while "
    "Gemini works, it comes after the current tool or at the end of the turn."
)
_ASKS: Final = (
    "Reading the inbox is allowed by policies/harken.toml, and only that: Gemini asks you before `reply` sends an "
    "answer. In headless runs (gemini -p) nobody can be asked, so there `reply` does not exist."
)
_TRUST: Final = "In a folder that you have not told Gemini to trust, it starts no MCP server and runs no hook."


class GeminiConnector(SettingsConnector):
    """How Gemini CLI is connected. There is no way to wake it."""

    name = NAME
    title = "Gemini CLI"
    program = "gemini"
    package = "@google/gemini-cli"
    node = 20
    oldest = (0, 61)
    folder = ".gemini"
    home_variable = "GEMINI_CLI_HOME"
    # Without the second, it first starts itself once more.
    quiet = MappingProxyType({"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"})
    context_files = project_context_files = ("GEMINI.md",)
    abilities = Abilities(tool_prefix=f"mcp_{SERVER}_", can_be_woken=False)
    hook_time = 10_000
    hook_names = frozenset({HOOK_NAME, _SUBAGENT})
    why = "MCP server harken, and hooks: what waits, with a prompt, after a tool, at the end of a turn"
    notes = (_ASLEEP, _ASKS, _TRUST)
    no_wake_hint = "Leave the option out: messages come with the next prompt."

    def own_folder(self, place: InstallTarget) -> Path:
        """Return the folder of the person's settings."""
        return Path(place.environ.get(self.home_variable) or place.user) / self.folder

    def hooks(self, place: InstallTarget) -> Sequence[SettingsHook]:
        """Return the hooks that `connect` writes."""
        return tuple(_hooks(place))

    def more_edits(self, place: InstallTarget, *, is_connected: bool) -> Sequence[FileEdit]:
        """Return the rules, which Gemini reads from the person's own folder only."""
        file = self.own_folder(place) / "policies" / "harken.toml"
        before = read(file)
        after = RULES if is_connected else before if self._needs_rules(place) else None
        return (FileEdit(path=file, before=before, after=after, why="reading the inbox needs no confirmation"),)

    def obstacles(self, settings: bytes | None, *, file: Path) -> Iterator[str]:
        """Yield what in the person's own settings keeps ours from working."""
        if json_value(settings, ("hooksConfig", "enabled"), file=file) is False:
            yield '"hooksConfig.enabled" is false'
        disabled = json_value(settings, ("hooksConfig", "disabled"), file=file)
        if isinstance(disabled, list) and self.hook_names & {str(name) for name in disabled}:
            yield '"hooksConfig.disabled" names hooks of Harken'
        yield from super().obstacles(settings, file=file)

    def _needs_rules(self, place: InstallTarget) -> bool:
        """Whether the rules serve a folder besides this one: the person's settings name our server, or another's."""
        own, key = self.own_folder(place) / SETTINGS, key_of(NAME, place.project)
        if place.project is not None and is_connected(read(own), file=own):
            return True
        return any(each.host == NAME and each.key != key for each in records(place.harken))


def _hooks(place: InstallTarget) -> Iterator[SettingsHook]:
    run = shlex.quote(str(place.harken / "run"))
    folder = shlex.quote(str(place.harken / "run" / "subagents"))
    marks = f"{folder}/$PPID."
    mark = f"[ -d {run} ] || exit 0; mkdir -p {folder} 2>/dev/null && : >{marks}$$; exit 0"
    unmark = f'for mark in {marks}*; do rm "$mark" 2>/dev/null && break; done; '
    forget = f"rm -f {marks}* 2>/dev/null; "
    quiet = f'for mark in {marks}*; do [ -e "$mark" ] && exit 0; done; '
    lines = {moment: hook_line(place, NAME, moment) for moment in EVENTS}
    tool = lines[HookMoment.TOOL]
    for moment in (HookMoment.START, HookMoment.PROMPT):
        yield SettingsHook(event=EVENTS[moment], line=forget + lines[moment])
    yield SettingsHook(event=_MARK_EVENT, name=_SUBAGENT, line=mark, matcher=_ITS_OWN)
    yield SettingsHook(event=EVENTS[HookMoment.TOOL], line=quiet + tool, matcher=_OTHERS)
    yield SettingsHook(event=EVENTS[HookMoment.TOOL], name=_SUBAGENT, line=unmark + quiet + tool, matcher=_ITS_OWN)
    yield SettingsHook(event=EVENTS[HookMoment.STOP], line=lines[HookMoment.STOP])
    yield SettingsHook(event=TELLS, line=hook_line(place, NAME, HookMoment.HALT), matcher=ASKS)
    # At an exit Gemini would show lines about it to the person; that the process is gone is seen without.
    yield SettingsHook(event=EVENTS[HookMoment.END], line=forget + lines[HookMoment.END], matcher=CLEARED)


CONNECTOR: Final = GeminiConnector()
REMOTE: Final[RemoteEntry] = CONNECTOR.remote_entry()
