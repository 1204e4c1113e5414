"""Which host carries out an order: one that is installed, and whose sandbox can be fenced to the tools.

It looks for programs and reads no settings of theirs. What it refuses, it says why in one sentence, because that is
what people read beside the rule.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harken.runs.sandbox import Sandbox, ToolServer
from harken.runs.tools import Ability, Tool, is_too_short, parse_tool

ServerOf = Callable[[str], ToolServer | None]
"""Returns the MCP server of a name, None when there is none that a run may use."""


@dataclass(frozen=True, slots=True)
class ChosenHost:
    """A host that can do it, and the path of its program; or why none can."""

    sandbox: Sandbox | None
    program: str = ""
    refusal: str = ""


class HostChooser:
    """Chooses among the sandboxes there are."""

    def __init__(
        self,
        sandboxes: Callable[[], Sequence[Sandbox]],
        server_of: ServerOf,
        environ: Mapping[str, str],
        preferred: str = "",
    ) -> None:
        self._sandboxes = sandboxes
        self._server_of = server_of
        self._environ = environ
        self._preferred = preferred

    def choose(self, agent: str, tools: Sequence[str]) -> ChosenHost:
        """Return the host for an order: the one it names, else the preferred one, else the first that can."""
        named = agent or self._preferred
        sandboxes = [sandbox for sandbox in self._sandboxes() if not named or sandbox.host == named]
        if not sandboxes:
            return ChosenHost(None, refusal=f"there is no way to fence {named}")
        wanted = [parse_tool(text) for text in tools]
        if missing := self._unknown_server(wanted):
            return ChosenHost(None, refusal=missing)
        if short := next((tool for tool in wanted if is_too_short(tool)), None):
            return ChosenHost(None, refusal=f"{short.text} allows any command: name more of it, or say shell")
        abilities = {tool.ability for tool in wanted}
        if Ability.EDIT_INSTRUCTIONS in abilities and Ability.EDIT_FILE not in abilities:
            return ChosenHost(None, refusal="edit_instructions edits nothing by itself: name edit_file too")
        refusals = []
        for sandbox in sandboxes:
            program = shutil.which(sandbox.program, path=self._environ.get("PATH", os.defpath))
            if program is None:
                refusals.append(f"{sandbox.host} is not installed")
            elif refusal := sandbox.refusal(wanted):
                refusals.append(f"{sandbox.host}: {refusal}")
            else:
                return ChosenHost(sandbox, program)
        return ChosenHost(None, refusal="; ".join(refusals))

    def servers(self, tools: Sequence[Tool]) -> dict[str, ToolServer]:
        """Return the servers that some tools are of."""
        names = {tool.server for tool in tools if tool.ability is Ability.MCP}
        found = {name: self._server_of(name) for name in sorted(names)}
        return {name: server for name, server in found.items() if server is not None}

    def _unknown_server(self, tools: Sequence[Tool]) -> str:
        for tool in tools:
            if tool.ability is Ability.MCP and self._server_of(tool.server) is None:
                return f"{tool.text}: there is no MCP server {tool.server!r} among the sources"
        return ""
