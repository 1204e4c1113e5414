"""Hosts with their MCP server and hooks in one JSON file: Gemini CLI, and Qwen Code, which was made from it.

Makes plans from what it finds and writes nothing. Such a host leaves files behind whenever it runs, even for its
version, so it is only ever asked in a scratch home, with a copy of the settings. What is its own (files, hooks, what it
lets be done without a question) each says in its folder.
"""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from harken.errors import UserError
from harken.hosts.connect.command import (
    SERVER,
    TOOL_SECONDS,
    find_program,
    mcp_command,
    output_of,
    version_numbers,
)
from harken.hosts.connect.edits import json_put_item, json_remove, json_remove_items, json_set, json_value
from harken.hosts.connect.files import read
from harken.hosts.connect.instructions_block import context_file, telling_notes, told, untold
from harken.hosts.connect.plan import (
    CheckFinding,
    ConnectOptions,
    Connector,
    ConnectPlan,
    FileEdit,
    InstalledProgram,
    InstallTarget,
    RemoteEntry,
    RemoteInbox,
    is_change,
)
from harken.hosts.connect.remote import SettingsEntry
from harken.hosts.instructions import ANY_HOST, Abilities

HOOK_NAME: Final = "harken"
SETTINGS: Final = "settings.json"
_SERVER: Final = ("mcpServers", SERVER)
_RESTART: Final = "Sessions that are open now have to be started again."


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsHook:
    """One hook: when it runs, and what."""

    event: str
    line: str
    matcher: str = ""
    name: str = HOOK_NAME  # unique among ours in its event: how it is found again


class SettingsConnector(Connector):
    """How such a host is connected."""

    title: ClassVar[str]
    program: ClassVar[str]
    package: ClassVar[str]  # of npm
    node: ClassVar[int]  # the version of node that it needs
    oldest: ClassVar[tuple[int, ...]]  # the oldest that was seen to do all that is used here
    folder: ClassVar[str]  # in a home and in a project
    home_variable: ClassVar[str]
    quiet: ClassVar[Mapping[str, str]] = MappingProxyType({})  # for a question in a scratch home
    context_files: ClassVar[tuple[str, ...]]  # that it gives to its model, by default
    project_context_files: ClassVar[tuple[str, ...]]
    abilities: ClassVar[Abilities]
    hook_time: ClassVar[int]  # how long a hook may take, in the host's own unit
    hook_names: ClassVar[frozenset[str]] = frozenset({HOOK_NAME})
    why: ClassVar[str]  # the settings are changed
    notes: ClassVar[tuple[str, ...]]
    project_note: ClassVar[str] = ""
    no_wake_hint: ClassVar[str]

    @abstractmethod
    def own_folder(self, place: InstallTarget) -> Path:
        """Return the folder of the person's settings, also when a project is connected."""

    @abstractmethod
    def hooks(self, place: InstallTarget) -> Sequence[SettingsHook]:
        """Return the hooks that `connect` writes."""

    def server(self, own: Mapping[str, object]) -> Mapping[str, object]:
        """Return what the entry of the server has besides its command; `own` is what you have there."""
        return {"timeout": own.get("timeout", 1000 * TOOL_SECONDS)}

    def remote_entry(self) -> RemoteEntry:
        """Return how it is connected by URL; in its settings, `url` alone would mean an older transport."""
        return SettingsEntry(file=self._settings, keys=_SERVER, value=_remote_server)

    def more_edits(self, place: InstallTarget, *, is_connected: bool) -> Sequence[FileEdit]:
        """Return the other files of a connection, or without it."""
        del place, is_connected
        return ()

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program and its version."""
        program = find_program(place, self.program)
        if program is None:
            return None
        words = self._ask(place, (program, "--version")).split()
        return InstalledProgram(program=Path(program), version=words[-1] if words else "")

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now."""
        if options.wake:
            raise UserError(f"{self.title} has no way to be woken called {options.wake[:40]!r}.", self.no_wake_hint)
        own = self.own_folder(place) / SETTINGS
        if place.project is not None and is_connected(read(own), file=own):
            note = f"{self.title} is connected in every folder already: in this one, every hook would run twice."
            return ConnectPlan(host=self.name, steps=(), notes=(note,))
        context = self._context(place)
        block = told(place, self.name, context, ANY_HOST if place.project else self.abilities)
        return ConnectPlan(
            host=self.name,
            steps=[*self._edits(place), block],
            notes=[*self._notes(place), *telling_notes(place, context)],
            blocks=[context] if place.can_tell else [],
        )

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take out our entries, wherever they stand now."""
        file = self._settings(place)
        before = read(file)
        after = self.without_entries(before, file=file) or None
        settings = FileEdit(path=file, before=before, after=after, why=self.why)
        block = untold(place, self.name, self._context(place))
        return ConnectPlan(host=self.name, steps=[settings, *self.more_edits(place, is_connected=False), block])

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Ask the host itself whether it understands the settings as they are."""
        found = self.find(place)
        if found is None:
            hint = f"Install it, for example with: npm install -g {self.package}"
            return [CheckFinding(what=f"{self.title} is installed", is_good=False, hint=hint)]
        file = self._settings(place)
        again = f"Run: harken connect {self.program}" + (f" --project {place.project}" if place.project else "")
        made_for = f"this was made for {'.'.join(map(str, self.oldest))} and later"
        return [
            CheckFinding.of(
                f"{self.title} {found.version} is new enough",
                f"Update it: {made_for}. It needs node {self.node} or later.",
                is_good=version_numbers(found.version) >= self.oldest,
            ),
            CheckFinding.of("the settings are current", again, is_good=not any(map(is_change, self._edits(place)))),
            *(
                CheckFinding(what="nothing in your settings is in the way", is_good=False, hint=f"{each}: see {path}.")
                for path in dict.fromkeys((self.own_folder(place) / SETTINGS, file))
                for each in self.obstacles(read(path), file=path)
            ),
            CheckFinding.of(
                f"{self.title} lists the MCP server {SERVER}",
                f"See what it says itself: {self.program} mcp list",
                is_good=self._lists_server(str(found.program), place),
            ),
        ]

    def with_entries(self, settings: bytes | None, place: InstallTarget, *, file: Path) -> bytes:
        """Return the settings with our server and our hooks."""
        there = json_value(settings, _SERVER, file=file)
        own = there if isinstance(there, dict) else {}
        command, *arguments = mcp_command(place)
        server = {**own, "command": command, "args": arguments, **self.server(own)}
        data = json_set(settings, _SERVER, server, file=file)
        for hook in self.hooks(place):
            data = json_put_item(data, ("hooks", hook.event), _is_named({hook.name}), self._group(hook), file=file)
        return data

    def without_entries(self, settings: bytes | None, *, file: Path) -> bytes | None:
        """Return the settings without anything of ours."""
        data = json_remove(settings, _SERVER, file=file)
        hooks = json_value(data, ("hooks",), file=file)
        for event in hooks if isinstance(hooks, dict) else ():
            data = json_remove_items(data, ("hooks", str(event)), _is_named(self.hook_names), file=file)
        return data

    def obstacles(self, settings: bytes | None, *, file: Path) -> Iterator[str]:
        """Yield what in the person's own settings keeps ours from working."""
        excluded = json_value(settings, ("mcp", "excluded"), file=file)
        if isinstance(excluded, list) and SERVER in excluded:
            yield '"mcp.excluded" names harken'
        allowed = json_value(settings, ("mcp", "allowed"), file=file)
        if isinstance(allowed, list) and allowed and SERVER not in allowed:
            yield '"mcp.allowed" does not name harken'

    def _settings(self, place: InstallTarget) -> Path:
        return (place.project / self.folder if place.project else self.own_folder(place)) / SETTINGS

    def _edits(self, place: InstallTarget) -> Sequence[FileEdit]:
        file = self._settings(place)
        before = read(file)
        after = self.with_entries(before, place, file=file)
        settings = FileEdit(path=file, before=before, after=after, why=self.why)
        return (settings, *self.more_edits(place, is_connected=True))

    def _group(self, hook: SettingsHook) -> Mapping[str, object]:
        command = {"type": "command", "name": hook.name, "command": hook.line, "timeout": self.hook_time}
        return {**({"matcher": hook.matcher} if hook.matcher else {}), "hooks": [command]}

    def _context(self, place: InstallTarget) -> Path:
        """Return the file that the host gives to its model."""
        own = self.own_folder(place)
        usual = self.project_context_files if place.project else self.context_files
        return (place.project or own) / context_file((own / SETTINGS, self._settings(place)), *usual)

    def _notes(self, place: InstallTarget) -> Iterator[str]:
        yield from self.notes
        yield _RESTART
        if place.project is not None:
            kept = "holds paths of this machine; where git tracks it, keep it out of your commits."
            yield f"{self._settings(place)} {kept} {self.project_note}".strip()

    def _lists_server(self, program: str, place: InstallTarget) -> bool:
        """Ask for the list of servers, with one in the place of ours that does nothing: the host tries each."""
        file = self._settings(place)
        settings = read(file)
        if is_connected(settings, file=file):
            settings = json_set(settings, _SERVER, {"command": "true"}, file=file)
        shown = self._ask(place, (program, "mcp", "list"), settings)
        return any(f" {SERVER}: " in line for line in shown.splitlines())

    def _ask(self, place: InstallTarget, argv: Sequence[str], settings: bytes | None = None) -> str:
        """Return what the host says in a home of its own with these settings."""
        with tempfile.TemporaryDirectory(prefix=f"harken-{self.program}-", ignore_cleanup_errors=True) as home:
            environ = {**place.environ, self.home_variable: home, **self.quiet, "NO_COLOR": "1"}
            folder = self.own_folder(replace(place, environ=environ))
            folder.mkdir(exist_ok=True)
            if settings is not None:
                (folder / SETTINGS).write_bytes(settings)
            return output_of(argv, environ, Path(home))


def _remote_server(inbox: RemoteInbox) -> Mapping[str, object]:
    headers = {"Authorization": f"Bearer ${{{inbox.variable}}}"}
    return {"httpUrl": inbox.url, "headers": headers, "timeout": 1000 * TOOL_SECONDS}


def is_connected(settings: bytes | None, *, file: Path) -> bool:
    """Whether our server is in the settings."""
    return json_value(settings, _SERVER, file=file) is not None


def _is_named(names: Collection[str]) -> Callable[[object], bool]:
    """Return whether a group's only hook has one of the names; a group with more is not one of ours."""

    def is_named(group: object) -> bool:
        hooks = group.get("hooks") if isinstance(group, dict) else None
        hook = hooks[0] if isinstance(hooks, list) and len(hooks) == 1 else None
        return isinstance(hook, dict) and hook.get("name") in names

    return is_named
