"""Connecting Magpie: its MCP server and hooks in `settings.json`, and a block in `MAGPIE.md`. Makes plans only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.errors import UserError
from harken.hosts.connect.command import find_program, hook_line, mcp_command, output_of
from harken.hosts.connect.edits import json_remove, json_set, json_value
from harken.hosts.connect.files import read
from harken.hosts.connect.instructions_block import told, untold
from harken.hosts.connect.plan import (
    CheckFinding,
    ConnectOptions,
    Connector,
    ConnectPlan,
    FileEdit,
    InstalledProgram,
    InstallTarget,
)
from harken.hosts.instructions import ANY_HOST

from .hooks import MOMENTS

NAME: Final = "magpie"
_SERVER: Final = ("servers", "harken")
_HOOKS: Final = ("hooks", "harken")


@dataclass(frozen=True, slots=True)
class MagpieConnector:
    """How Magpie is connected."""

    name: str = NAME

    @property
    def wakes(self) -> Mapping[str, str]:
        """The ways to be woken that a person may choose: there is one, and it costs nothing."""
        return MappingProxyType({})

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program and its version."""
        program = find_program(place, NAME)
        if program is None:
            return None
        version = output_of((program, "--version"), place.environ, place.user).strip()
        return InstalledProgram(program=Path(program), version=version)

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now."""
        if options.wake:
            raise UserError("Magpie has no choice of ways to be woken.", "Leave --wake out.")
        edits = [_settings(place, is_connected=True), told(place, NAME, _context(place), ANY_HOST)]
        return ConnectPlan(host=NAME, steps=list(_changes(edits)), blocks=[_context(place)])

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take out our entries, wherever they stand now."""
        edits = [_settings(place, is_connected=False), untold(place, NAME, _context(place))]
        return ConnectPlan(host=NAME, steps=list(_changes(edits)))

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Look whether Magpie is there, and its settings current."""
        is_there, is_current = self.find(place) is not None, not self.plan(place, ConnectOptions()).steps
        again = "" if is_current else f"Run: harken connect {NAME}"
        return [
            CheckFinding(what="Magpie is installed", is_good=is_there, hint="Run: pip install magpie-agent"),
            CheckFinding(what="the settings are current", is_good=is_current, hint=again),
        ]


def _folder(place: InstallTarget) -> Path:
    return (place.project or place.user) / ".magpie"


def _context(place: InstallTarget) -> Path:
    return (place.project or _folder(place)) / "MAGPIE.md"


def _settings(place: InstallTarget, *, is_connected: bool) -> FileEdit:
    file = _folder(place) / "settings.json"
    before = after = read(file)
    hooks = {moment.value: hook_line(place, NAME, moment) for moment in MOMENTS}
    for path, value in ((_SERVER, list(mcp_command(place, NAME))), (_HOOKS, hooks)):
        if is_connected and json_value(after, path, file=file) != value:
            after = json_set(after, path, value, file=file)
        elif not is_connected:
            after = json_remove(after, path, file=file)
    return FileEdit(path=file, before=before, after=after or None, why="MCP server harken, and hooks")


def _changes(edits: Sequence[FileEdit]) -> Iterator[FileEdit]:
    return (edit for edit in edits if edit.before != edit.after)


CONNECTOR: Final[Connector] = MagpieConnector()
