"""Connecting Claude Code: a plugin in a marketplace of Harken's own, installed and removed by Claude Code's commands.

Makes plans from what it finds and writes nothing. A folder is connected in Claude Code's local scope; git does not
track the settings file of that scope; the project's own files stay as they are, CLAUDE.md among them: the plugin itself
tells each session what a message is. What it contains is in `plugin.py`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.errors import UserError
from harken.hosts.claude_code import plugin
from harken.hosts.claude_code.hooks import ASKS
from harken.hosts.claude_code.plugin import PLUGIN, SERVER, marketplace, plugin_id
from harken.hosts.connect.command import UNASKED, find_program, output_of, version_numbers
from harken.hosts.connect.files import read
from harken.hosts.connect.plan import (
    CheckFinding,
    CommandStep,
    ConnectOptions,
    Connector,
    ConnectPlan,
    FileEdit,
    InstalledProgram,
    InstallTarget,
    RemoteEntry,
    RemoteInbox,
    Step,
)
from harken.hosts.connect.remote import NODE_AUTHORITY, WHY

PROGRAM: Final = "claude"
OLDEST: Final = (2, 1, 197)  # the oldest that was seen to wake for a watched file
_AGAIN: Final = "Run `harken connect claude-code`."
_CHANNEL: Final = "--dangerously-load-development-channels"
# Keeps its own commands from asking the network for news; what they do is the same.
_QUIET: Final[Mapping[str, str]] = MappingProxyType(
    {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
)

_ADD: Final = "add"
_FORGET: Final = "forget"
_INSTALL: Final = "install"
_UNINSTALL: Final = "uninstall"
_UPDATE: Final = "update"
_WHY: Final[Mapping[str, str]] = MappingProxyType(
    {
        _ADD: "let Claude Code know where the plugin is",
        _FORGET: "let Claude Code forget where the plugin was",
        _INSTALL: "install the plugin: MCP server, hooks, instructions and the skill /inbox",
        _UNINSTALL: "uninstall the plugin",
        _UPDATE: "let Claude Code copy the changed plugin",
    }
)


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where one connection lives: every session of a person, or those in one folder."""

    name: str
    settings: Path
    project: Path | None

    @classmethod
    def of(cls, place: InstallTarget) -> _Scope:
        """Return the scope that a place asks for."""
        if place.project is None:
            return cls("user", _config(place) / "settings.json", None)
        return cls("local", place.project / ".claude" / "settings.local.json", place.project)

    def fits(self, entry: Mapping[str, object]) -> bool:
        """Whether an entry of an installed plugin is of this scope."""
        return entry.get("scope") == self.name and (
            self.project is None or entry.get("projectPath") == str(self.project)
        )


class _ClaudeConnector(Connector):
    """How Claude Code is connected. It has one way to be woken, a watched file, which costs nothing until then."""

    name = plugin.HOST

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program; None when there is none."""
        program = _program(place)
        if program is None:
            return None
        words = _said(place, (str(program), "--version")).split()
        return InstalledProgram(program=program, version=words[0] if words else "")

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now."""
        if options.wake:
            raise UserError(
                f"Claude Code has no way to be woken called {options.wake[:40]!r}.",
                "Leave it out: idle sessions are woken anyway.",
            )
        asked, place = place.project, _rooted(place)
        program, scope = _needed(place), _Scope.of(place)
        state = _State.read(place, scope)
        if scope.project is not None and _is_connected_everywhere(place):
            return ConnectPlan(
                host=self.name, steps=(), notes=("Every session of yours is connected, so this folder is too.",)
            )
        if scope.project is None and (folders := _connected_folders(place)):
            raise UserError(
                f"Claude Code is connected for folders: {', '.join(folders)}.",
                "Disconnect each of them first, with `harken disconnect claude-code --project DIR`.",
            )
        changes = [*_files(place)]
        commands = [*_installs(place, scope, program, state)]
        notes = _notes(place, scope, asked) if changes or commands else ()
        return ConnectPlan(host=self.name, steps=(*changes, *commands), notes=notes)

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take the plugin out again."""
        place = _rooted(place)
        scope = _Scope.of(place)
        state = _State.read(place, scope)
        program = _program(place)
        steps: list[Step] = []
        if program is not None:
            if state.is_installed:
                steps.append(_step(place, scope, program, _UNINSTALL))
            if state.is_known:
                steps.append(_step(place, scope, program, _FORGET))
        steps += _files(place, is_connected=False)
        return ConnectPlan(host=self.name, steps=steps)

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Look whether Claude Code itself sees the plugin and will run its hooks.

        Not by `claude mcp get`, which starts the server: it leaves files behind that nothing takes away again.
        """
        place = _rooted(place)
        if _is_connected_everywhere(place):
            place = replace(place, project=None)
        found, scope = self.find(place), _Scope.of(place)
        if found is None:
            return (CheckFinding(what="Claude Code is installed", is_good=False, hint="Put `claude` on your PATH."),)
        is_current = next(_files(place), None) is None
        return (
            CheckFinding.of(
                f"Claude Code {found.version} is new enough",
                f"Update it: before {'.'.join(map(str, OLDEST))} idle sessions may not be woken.",
                is_good=version_numbers(found.version) >= OLDEST,
            ),
            CheckFinding.of("the plugin's files are current", _AGAIN, is_good=is_current),
            _listed(place, scope, found.program),
            _hears_hooks(place, scope),
            *([_answers_alone(place, scope)] if place.has_approvals else ()),
        )


CONNECTOR: Final[Connector] = _ClaudeConnector()


class _ClaudeEntry(RemoteEntry):
    """Claude Code's list of servers, in the file with all that it remembers, which only its own commands change."""

    authority = NODE_AUTHORITY
    takes_file = True
    note = ""

    def steps(self, place: InstallTarget, inbox: RemoteInbox | None) -> Sequence[Step]:
        """Return the command that changes the list, where anything has to be changed."""
        place = _rooted(place)
        scope = _Scope.of(place)
        there = _inner(_servers(place, scope), SERVER)
        wanted = _remote_server(inbox) if inbox is not None else {}
        if there == wanted or (not wanted and "url" not in there):
            return ()
        program, at = _needed(place), ("--scope", scope.name, SERVER)
        remove = _inside(scope, (str(program), "mcp", "remove", *at))
        add = _inside(scope, (str(program), "mcp", "add-json", *at, json.dumps(wanted)))
        touches = (_account(place), _config(place) / "backups")

        def step(argv: tuple[str, ...], undo: tuple[str, ...]) -> CommandStep:
            return CommandStep(argv=argv, undo=undo, why=WHY, environ=_environ(place), touches=touches)

        removed = [step(remove, ())] if there else []
        return [*removed, *([step(add, remove)] if wanted else [])]


REMOTE: Final[RemoteEntry] = _ClaudeEntry()


def _remote_server(inbox: RemoteInbox) -> Mapping[str, object]:
    server = {"type": "http", "url": inbox.url}
    if not inbox.token_file:
        return {**server, "headers": {"Authorization": f"Bearer ${{{inbox.variable}}}"}}
    # The name of the file is not in the text that `printf` reads: it may hold anything.
    form = shlex.quote('{"Authorization":"Bearer %s"}')
    return {**server, "headersHelper": f'printf {form} "$(cat {shlex.quote(inbox.token_file)})"'}


def _servers(place: InstallTarget, scope: _Scope) -> Mapping[str, object]:
    account = _object(_account(place))
    own = account if scope.project is None else _inner(account, "projects", str(scope.project))
    return _inner(own, "mcpServers")


@dataclass(frozen=True, slots=True)
class _State:
    """What Claude Code's own files say about the plugin."""

    is_known: bool  # the marketplace is declared here
    is_ours: bool  # and it is the one in this home
    is_installed: bool
    is_enabled: bool
    version: str  # of the copy that Claude Code made

    @classmethod
    def read(cls, place: InstallTarget, scope: _Scope) -> _State:
        """Read the settings of a scope and the list of installed plugins."""
        settings = _object(scope.settings)
        known = _inner(settings, "extraKnownMarketplaces", marketplace(place))
        source = _inner(known, "source")
        installed = _installed(place, scope)
        return cls(
            is_known=bool(known),
            is_ours=source.get("path") == str(plugin.folder(place)),
            is_installed=bool(installed),
            is_enabled=_inner(settings, "enabledPlugins").get(plugin_id(place)) is True,
            version=str(installed.get("version", "")),
        )


def _is_connected_everywhere(place: InstallTarget) -> bool:
    everywhere = replace(place, project=None)
    state = _State.read(everywhere, _Scope.of(everywhere))
    return state.is_ours and state.is_installed and state.is_enabled


def _connected_folders(place: InstallTarget) -> Sequence[str]:
    """Return the folders that are connected to this home, each by itself: they would have everything twice."""
    folders = []
    for entries in _all_installed(place).values():
        for entry in entries if isinstance(entries, list) else ():
            named = entry.get("projectPath") if isinstance(entry, dict) else None
            here = replace(place, project=Path(named)) if isinstance(named, str) else place
            if here.project is not None and _State.read(here, _Scope.of(here)).is_ours:
                folders.append(str(named))
    return folders


def _installed(place: InstallTarget, scope: _Scope) -> Mapping[str, object]:
    entries = _all_installed(place).get(plugin_id(place))
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and scope.fits(entry):
            return entry
    return {}


def _all_installed(place: InstallTarget) -> Mapping[str, object]:
    return _inner(_object(_config(place) / "plugins" / "installed_plugins.json"), "plugins")


def _installs(place: InstallTarget, scope: _Scope, program: Path, state: _State) -> Iterator[CommandStep]:
    if not (state.is_known and state.is_ours):
        yield _step(place, scope, program, _ADD, _FORGET)
    if not (state.is_installed and state.is_enabled):
        yield _step(place, scope, program, _INSTALL, _UNINSTALL)
    elif state.version != plugin.version(place):
        yield _step(place, scope, program, _UPDATE)


def _words(place: InstallTarget, scope: _Scope, verb: str) -> tuple[str, ...]:
    at = ("--scope", scope.name)
    match verb:
        case "add":
            return ("plugin", "marketplace", "add", str(plugin.folder(place)), *at)
        case "forget":
            return ("plugin", "marketplace", "remove", marketplace(place), *at)
        case _:
            return ("plugin", verb, plugin_id(place), *at)


def _step(place: InstallTarget, scope: _Scope, program: Path, verb: str, undo: str = "") -> CommandStep:
    return CommandStep(
        argv=_inside(scope, (str(program), *_words(place, scope, verb))),
        undo=_inside(scope, (str(program), *_words(place, scope, undo))) if undo else (),
        why=_WHY[verb],
        environ=_environ(place),
        touches=tuple(_touched(place, scope)),
    )


def _rooted(place: InstallTarget) -> InstallTarget:
    """Return the place with the folder that Claude Code takes for the project: the repository's main checkout."""
    if place.project is None:
        return place
    project = place.project.resolve()
    top = next((folder for folder in (project, *project.parents) if (folder / ".git").exists()), project)
    return replace(place, project=_main_checkout(top))


def _main_checkout(top: Path) -> Path:
    """Return the checkout that a worktree belongs to; itself for any other folder."""
    try:
        own = top / (top / ".git").read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        common = (own / (own / "commondir").read_text(encoding="utf-8").strip()).resolve()
    except (OSError, ValueError):
        return top
    return common.parent if common.name == ".git" else top


def _inside(scope: _Scope, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command that runs in the project: Claude Code takes the folder it is started in for it."""
    if scope.project is None:
        return argv
    return ("/bin/sh", "-c", 'cd "$0" && exec "$@"', str(scope.project), *argv)


def _touched(place: InstallTarget, scope: _Scope) -> Iterator[Path]:
    """Yield all that its plugin commands were seen to write."""
    config = _config(place)
    yield _account(place)
    yield scope.settings
    yield config / "backups"
    plugins = config / "plugins"
    yield from (plugins / "known_marketplaces.json", plugins / "installed_plugins.json")
    yield from (plugins / "cache" / marketplace(place), plugins / "data" / f"{PLUGIN}-{marketplace(place)}")
    if not (plugins / "marketplaces").exists():  # copies of other people's plugins are in it: made by us, it is empty
        yield plugins / "marketplaces"
    if scope.project is not None:
        # It keeps its local settings out of every repository of the person.
        yield Path(place.environ.get("XDG_CONFIG_HOME") or place.user / ".config") / "git" / "ignore"


def _files(place: InstallTarget, *, is_connected: bool = True) -> Iterator[FileEdit]:
    """Yield what changes in the plugin's own files, with a connection or without one."""
    for name, content in plugin.files(place).items():
        path = plugin.folder(place) / name
        before, after = read(path), content if is_connected else None
        if before != after:
            yield FileEdit(path=path, before=before, after=after, why="part of the plugin", is_ours=True)


def _notes(place: InstallTarget, scope: _Scope, asked: Path | None) -> Sequence[str]:
    notes = [
        "Sessions that run already have it after /reload-plugins, and can be woken after /clear.",
        f"Claude Code will not ask before it reads the inbox ({', '.join(UNASKED)}); it asks before `reply`.",
        "Messages arrive between tool calls, with a prompt and at the end of a turn, and wake an idle session.",
        f"Not needed: sessions started with `{_CHANNEL} plugin:{plugin_id(place)}` hear the claude channel too.",
    ]
    if place.has_approvals:
        notes.append("What Claude Code asks before it uses a tool is shown in Harken too, and the first answer counts.")
    if scope.project is not None:
        notes.append(f"Only sessions in {scope.project} are connected, by {scope.settings}, which git does not track.")
    if scope.project != asked:
        notes.append("Claude Code has one such file for a whole repository: all of its folders and worktrees have it.")
    if (before := read(scope.settings)) is not None and before != _as_claude_writes(before):
        notes.append(f"Claude Code writes {scope.settings} in a layout of its own; every setting stays.")
    if SERVER in _inner(_object(_account(place)), "mcpServers"):
        notes.append(f"The MCP server {SERVER!r} that you added by hand is not needed: `claude mcp remove {SERVER}`.")
    return notes


def _as_claude_writes(content: bytes) -> bytes:
    return json.dumps(json.loads(content), indent=2, ensure_ascii=False).encode() + b"\n"


def _listed(place: InstallTarget, scope: _Scope, program: Path) -> CheckFinding:
    what = "Claude Code has the plugin switched on"
    try:
        plugins = json.loads(_said(place, _inside(scope, (str(program), "plugin", "list", "--json"))))
    except ValueError:
        return CheckFinding(what=what, is_good=False, hint=_AGAIN)
    mine = [
        entry
        for entry in (plugins if isinstance(plugins, list) else ())
        if isinstance(entry, dict) and entry.get("id") == plugin_id(place) and scope.fits(entry)
    ]
    errors = [str(error)[:200] for entry in mine for error in entry.get("errors") or ()]
    if errors:
        return CheckFinding(what=what, is_good=False, hint=f"Claude Code says: {'; '.join(errors)}")
    return CheckFinding.of(what, _AGAIN, is_good=any(entry.get("enabled") is True for entry in mine))


def _hears_hooks(place: InstallTarget, scope: _Scope) -> CheckFinding:
    files = dict.fromkeys((_config(place) / "settings.json", scope.settings))
    off = [str(path) for path in files if _object(path).get("disableAllHooks") is True]
    hint = f"Take disableAllHooks out of {', '.join(off)}; until then only Harken's tools work."
    return CheckFinding.of("Claude Code runs hooks", hint, is_good=not off)


def _answers_alone(place: InstallTarget, scope: _Scope) -> CheckFinding:
    """Look for other hooks that answer for the person: of Claude Code's, the first in time counts."""
    files = dict.fromkeys((_config(place) / "settings.json", scope.settings))
    hooks = {path: _object(path).get("hooks") for path in files}
    others = [str(path) for path, own in hooks.items() if isinstance(own, dict) and own.get(ASKS)]
    hint = f"There is another one in {', '.join(others)}: what it answers first counts, before you have looked."
    return CheckFinding.of("no other hook answers what Claude Code asks", hint, is_good=not others)


def _program(place: InstallTarget) -> Path | None:
    found = find_program(place, PROGRAM, place.user / ".local" / "bin")
    return Path(found) if found else None


def _needed(place: InstallTarget) -> Path:
    program = _program(place)
    if program is None:
        raise UserError("Claude Code is not installed here.", "Install it, or put `claude` on your PATH.")
    return program


def _said(place: InstallTarget, argv: tuple[str, ...]) -> str:
    return output_of(argv, _environ(place), is_all=False)


def _environ(place: InstallTarget) -> Mapping[str, str]:
    return {**place.environ, "HOME": str(place.user), **_QUIET}


def _config(place: InstallTarget) -> Path:
    own = place.environ.get("CLAUDE_CONFIG_DIR")
    return Path(own) if own else place.user / ".claude"


def _account(place: InstallTarget) -> Path:
    """Return the file with all that Claude Code remembers besides settings."""
    return (_config(place) if place.environ.get("CLAUDE_CONFIG_DIR") else place.user) / ".claude.json"


def _object(path: Path) -> Mapping[str, object]:
    """Return a settings file as an object, empty when there is none."""
    content = read(path)
    if content is None or not content.strip():
        return {}
    try:
        value = json.loads(content)
    except ValueError as error:
        raise UserError(f"{path} is not JSON.", "Claude Code refuses it too: correct the file.") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} has no settings.", "Claude Code refuses it too: correct the file.")
    return value


def _inner(value: Mapping[str, object], *keys: str) -> Mapping[str, object]:
    for key in keys:
        inner = value.get(key)
        if not isinstance(inner, dict):
            return {}
        value = inner
    return value
