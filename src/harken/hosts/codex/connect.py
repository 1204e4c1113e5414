"""Connecting Codex: its MCP server and hooks as entries in its own files, with Codex's own trust in these hooks.

The plan is made of file changes only, so it can be shown, and undone to the byte. How Codex counts the hash that it
trusts is left to Codex: it is asked in a scratch home, where it can change nothing. What the server says of itself
does not reach every model of Codex's, so agents are told by a block in AGENTS.md.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from harken.errors import Unavailable, UserError
from harken.hosts.codex.approvals import MARK, mark_text
from harken.hosts.codex.appserver import hooks_of, private_server
from harken.hosts.codex.hooks import EVENTS, NAME
from harken.hosts.connect.command import SERVER, TOOL_SECONDS, find_program, hook_line, mcp_command, output_of
from harken.hosts.connect.edits import (
    json_put_item,
    json_remove_items,
    json_value,
    toml_remove,
    toml_set,
    toml_value,
)
from harken.hosts.connect.files import read
from harken.hosts.connect.instructions_block import AGENTS_FILE, telling_notes, told, untold
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
)
from harken.hosts.connect.remote import SettingsEntry
from harken.hosts.instructions import ANY_HOST, Abilities
from harken.sessions.turns import HookMoment

_SERVERS: Final = "mcp_servers"
_HOOK_SECONDS: Final = 10
# Codex gives these no more, and says so at every start when more is asked for.
_LAST_SECONDS: Final = 3
_OURS: Final = re.compile(r"/edge/hook\.py'? --home .+ codex [a-z]+(?: --in-task)?$", re.DOTALL)
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")

_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")

PROGRAM: Final = "codex"
ASKS: Final = "PermissionRequest"  # the event of a hook that answers before the dialog
CONFIG: Final = "config.toml"
HOOKS_FILE: Final = "hooks.json"
TOOL_PREFIX: Final = f"mcp__{SERVER}__"
# Where this one is not empty, Codex reads it and not AGENTS.md.
OVERRIDE_FILE: Final = "AGENTS.override.md"
# Without this there is no queue, and no other way to start a turn in an idle session.
FIRST_WITH_WAKE: Final = (0, 149)

_TRUST: Final = (
    "Codex runs no hook that it was not told to trust. The [hooks.state] entries trust these five commands of Harken "
    "and nothing else; whenever one of them changes, Codex asks again."
)
# Reading needs no approval, by what our server says of its tools; whatever leaves the machine stays the person's word.
_REPLY: Final = (
    "Codex asks you before `reply` sends an answer, and refuses it where nobody can be asked (codex exec). To allow it "
    "for good, choose `Always allow` when it asks."
)
_UNTRUSTED: Final = (
    "Codex could not be asked to trust the hooks. At its next start it says that hooks need a review: choose to trust "
    "the five of Harken."
)
_ASKED: Final = (
    "What Codex asks before it runs a command is asked in Harken too, and the first answer counts. Harken hears it at "
    "the server that Codex's terminals share, so not of `codex --no-daemon` and `codex exec`."
)
_NO_REASON: Final = "A refusal reaches Codex's agent without your reason."
_FIRST: Final = "A session is known from its first prompt on; before that it cannot be woken."
_OPEN: Final = "Conversations that are open now keep their settings: start a new one (/new) to have the inbox in it."


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
        hooks = json_put_item(hooks, ("hooks", event), _is_ours, _group(place, moment), file=file)
    return hooks


def without_hooks(hooks: bytes | None, *, file: Path) -> bytes | None:
    """Return the hooks without ours; None when nothing is left."""
    for event in EVENTS.values():
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


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedHook:
    """One hook as Codex sees it."""

    place: str  # what follows the path of the file in its key: event, group, hook
    source: str  # path of the file
    command: str
    hash: str
    is_enabled: bool
    is_trusted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexInspector:
    """An installed Codex, to be asked about settings."""

    program: Path
    path: str  # where programs are found: Codex may be a script of another one

    def version(self) -> str:
        """Return its version; empty when it does not say one."""
        with _scratch({}) as home:
            found = _VERSION.search(self._said(home, home, "--version"))
        return found[0] if found else ""

    def hooks(
        self, files: Mapping[str, bytes | None], *, home: Path, cwd: Path | None = None
    ) -> Sequence[InspectedHook]:
        """Return the hooks in force with these files in place of those in `home`; raises `Unavailable`."""
        with _scratch(files) as scratch:
            _move_keys(scratch, home)
            return anyio.run(self._hooks, scratch, home, cwd or scratch)

    def server(self, files: Mapping[str, bytes | None], name: str, *, cwd: Path | None = None) -> Mapping[str, object]:
        """Return how it would start an MCP server; empty when it knows none of that name."""
        with _scratch(files) as scratch:
            try:
                value = json.loads(self._said(scratch, cwd or scratch, "mcp", "get", name, "--json"))
            except ValueError:
                return {}
        return value if isinstance(value, dict) else {}

    async def _hooks(self, scratch: Path, home: Path, cwd: Path) -> Sequence[InspectedHook]:
        async with private_server(str(self.program), cwd=str(cwd), env=self._environ(scratch)) as server:
            listing = await server.call("hooks/list", {"cwds": [str(cwd)]})
        return [_judged(hook, scratch, home) for hook in hooks_of(listing)]

    def _said(self, scratch: Path, cwd: Path, *arguments: str) -> str:
        return output_of((str(self.program), *arguments), self._environ(scratch), cwd, is_all=False)

    def _environ(self, scratch: Path) -> dict[str, str]:
        return {"HOME": str(scratch), "CODEX_HOME": str(scratch), "PATH": self.path, "LANG": "C.UTF-8"}


@contextmanager
def _scratch(files: Mapping[str, bytes | None]) -> Iterator[Path]:
    try:
        # Codex may still write its last lines when it has been answered.
        with TemporaryDirectory(prefix="harken-codex-", ignore_cleanup_errors=True) as name:
            folder = Path(name).resolve()
            for file, data in files.items():
                if data is not None:
                    (folder / file).write_bytes(data)
            yield folder
    except OSError as exc:
        raise Unavailable(f"A scratch folder cannot be used: {exc.strerror}.") from exc


def _move_keys(scratch: Path, home: Path) -> None:
    """Trust is noted by the path of the file: let what was said of the real one hold for its copy."""
    config = scratch / "config.toml"
    if config.exists():
        there, here = f"{home / 'hooks.json'}:".encode(), f"{scratch / 'hooks.json'}:".encode()
        config.write_bytes(config.read_bytes().replace(there, here))


def _judged(hook: Mapping[str, object], scratch: Path, home: Path) -> InspectedHook:
    source = str(hook.get("sourcePath", ""))
    return InspectedHook(
        place=str(hook.get("key", "")).removeprefix(source).removeprefix(":"),
        source=str(home / "hooks.json") if source == str(scratch / "hooks.json") else source,
        command=str(hook.get("command", "")),
        hash=str(hook.get("currentHash", "")),
        is_enabled=hook.get("enabled") is True,
        is_trusted=hook.get("trustStatus") in {"trusted", "managed"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CodexFiles:
    """The files in question. Trust is always in the person's own settings."""

    home: Path
    config: Path
    hooks: Path
    trust: Path
    told: tuple[Path, Path]  # where agents may be told: the first where it has something in it

    @classmethod
    def of(cls, place: InstallTarget, project: Path | None) -> _CodexFiles:
        own = place.environ.get("CODEX_HOME", "")
        # Codex resolves the one, not the other; the path is part of the name that trust is kept under.
        home = Path(own).resolve() if own else place.user / ".codex"
        folder = project / ".codex" if project else home
        told_in = project or home
        return cls(
            home=home,
            config=folder / CONFIG,
            hooks=folder / HOOKS_FILE,
            trust=home / CONFIG,
            told=(told_in / OVERRIDE_FILE, told_in / AGENTS_FILE),
        )


class CodexConnector(Connector):
    """How Codex is connected. It has one way to be woken, which costs nothing."""

    name = NAME

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program and its version."""
        inspector = _inspector(place)
        return InstalledProgram(program=inspector.program, version=inspector.version()) if inspector else None

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now."""
        if options.wake:
            raise UserError(
                f"Codex has no way to be woken called {options.wake[:40]!r}.",
                "Leave it out: idle sessions in a terminal are woken anyway.",
            )
        if place.has_approvals and place.project is not None:
            raise UserError(
                "What Codex asks can be answered elsewhere for all folders, not for one.",
                "Its terminals share one server. Run: harken connect codex --approvals",
            )
        project = place.project.resolve() if place.project else None
        files = _CodexFiles.of(place, project)
        if project is not None and _is_everywhere(place):
            note = "Codex is connected in every folder already: in this one, every hook would run twice."
            return ConnectPlan(host=NAME, steps=(), notes=(note,))
        inspector = _inspector(place)
        hooks = with_hooks(read(files.hooks), place, file=files.hooks)
        hashes = _hashes(inspector, files, hooks)
        changed: dict[Path, bytes | None] = {files.hooks: hooks}
        if not place.is_for_tasks:
            changed = {files.config: with_server(read(files.config), place, file=files.config), **changed}
        before = changed.get(files.trust, read(files.trust))
        changed[files.trust] = with_trust(before, files.hooks, hashes, file=files.trust)
        block = _told(place, files)
        return ConnectPlan(
            host=NAME,
            steps=[*_changes(files, changed), *_mark(place, files), *block],
            notes=[
                *((_ASKED, _NO_REASON) if place.has_approvals else ()),
                *_notes(inspector, files, project, is_trusted=bool(hashes)),
                *(note for change in block for note in telling_notes(place, change.path)),
            ],
            blocks=[change.path for change in block],
        )

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take out our entries, wherever they stand now."""
        files = _CodexFiles.of(place, place.project.resolve() if place.project else None)
        hooks = read(files.hooks)
        changed = {files.hooks: without_hooks(hooks, file=files.hooks) if _has_hooks(files) else hooks}
        if not place.is_for_tasks:
            changed = {files.config: without_server(read(files.config), file=files.config), **changed}
        before = changed.get(files.trust, read(files.trust))
        changed[files.trust] = without_trust(before, files.hooks, hooks, file=files.trust)
        # A file in which nothing is left was made by us.
        steps = _changes(files, {path: data or None for path, data in changed.items()})
        blocks = () if place.is_for_tasks else (untold(place, NAME, path) for path in files.told)
        return ConnectPlan(host=NAME, steps=[*steps, *_mark(replace(place, has_approvals=False), files), *blocks])

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Ask Codex what it makes of the files as they are."""
        inspector = _inspector(place)
        if inspector is None:
            hint = "Install it, for example with: npm install -g @openai/codex"
            return [CheckFinding(what="Codex is installed", is_good=False, hint=hint)]
        project = place.project.resolve() if place.project else None
        files = _CodexFiles.of(place, project)
        server = [] if place.is_for_tasks else [_server(inspector, files, project, place)]
        alone = [answers_alone(read(files.hooks), files.hooks)] if place.has_approvals else []
        return [*server, *_hooks(inspector, files, project), *alone]


def _inspector(place: InstallTarget) -> CodexInspector | None:
    program = find_program(place, PROGRAM)
    return CodexInspector(program=Path(program), path=place.environ.get("PATH", os.defpath)) if program else None


def _told(place: InstallTarget, files: _CodexFiles) -> Sequence[FileEdit]:
    """Return the file that Codex reads to its model; a main checkout is not read in its worktrees."""
    if place.is_for_tasks or not place.can_tell:
        return ()
    override, usual = files.told
    path = override if (read(override) or b"").strip() else usual
    return (told(place, NAME, path, ANY_HOST if place.project else Abilities(tool_prefix=TOOL_PREFIX)),)


def _mark(place: InstallTarget, files: _CodexFiles) -> Iterator[FileEdit]:
    """Yield what tells the daemon to listen to what Codex asks; of a project none, its terminals share one server."""
    path, mine = files.home / MARK, mark_text(str(place.harken))
    before = read(path)
    after = mine if place.has_approvals else None if before == mine else before
    if place.project is None:
        yield FileEdit(path=path, before=before, after=after, why="what Codex asks is shown in Harken", is_ours=True)


def _has_hooks(files: _CodexFiles) -> bool:
    return bool(places(read(files.hooks), file=files.hooks))


def _is_everywhere(place: InstallTarget) -> bool:
    return _has_hooks(_CodexFiles.of(place, None))


def _hashes(inspector: CodexInspector | None, files: _CodexFiles, hooks: bytes | None) -> Mapping[str, str]:
    """Return what Codex has to trust, by the place in the file; empty when it cannot be asked."""
    if inspector is None:
        return {}
    try:
        judged = inspector.hooks({HOOKS_FILE: hooks}, home=files.home)
    except Unavailable:
        return {}
    hashes = {(hook.place, hook.command): hook.hash for hook in judged if hook.hash}
    ours = places(hooks, file=files.hooks)
    return {place: hashes[place, command] for place, command in ours.items() if (place, command) in hashes}


def _changes(files: _CodexFiles, changed: Mapping[Path, bytes | None]) -> Iterator[FileEdit]:
    whys = {
        files.trust: "trust in Harken's hooks",
        files.hooks: "hooks: what waits, with a prompt, after a tool, at the end of a turn",
        files.config: "MCP server harken" + (", and trust in its hooks" if files.config == files.trust else ""),
    }
    for path, after in changed.items():
        yield FileEdit(path=path, before=read(path), after=after, why=whys[path])


def _notes(
    inspector: CodexInspector | None, files: _CodexFiles, project: Path | None, *, is_trusted: bool
) -> Iterator[str]:
    yield _TRUST if is_trusted else _UNTRUSTED
    yield _REPLY
    yield _OPEN
    yield _FIRST
    version = inspector.version() if inspector else ""
    if version and tuple(int(part) for part in version.split(".")[:2]) < FIRST_WITH_WAKE:
        yield f"Codex {version} cannot be woken when it is idle; 0.149 and later can."
    if project is not None and not trusts_project(read(files.trust), project, file=files.trust):
        yield f"Codex reads {project / '.codex'} only once you trust the folder: start `codex` there and say so."


def _server(inspector: CodexInspector, files: _CodexFiles, project: Path | None, place: InstallTarget) -> CheckFinding:
    what = "Codex knows the MCP server harken"
    command, *arguments = mcp_command(place)
    seen = inspector.server({CONFIG: read(files.trust)}, SERVER, cwd=project)
    transport = seen.get("transport")
    if not isinstance(transport, dict):
        is_there = has_server(read(files.config), file=files.config)
        hint = "It does not read the folder: is it trusted?" if is_there else "Run: harken connect codex"
        return CheckFinding(what=what, is_good=False, hint=hint)
    is_same = transport.get("command") == command and transport.get("args") == arguments
    if seen.get("enabled") is not True:
        return CheckFinding(what=what, is_good=False, hint=f"It is disabled in {files.config}.")
    return CheckFinding.of(what, "It is another one. Run: harken connect codex", is_good=is_same)


def answers_alone(hooks: bytes | None, file: Path) -> CheckFinding:
    """Look for hooks that answer for the person: while one runs, Codex shows no dialog, and Harken hears nothing.

    Ours only tells that Codex asks.
    """
    others = [group for group in _groups(hooks, ASKS, file) if not _is_ours(group)]
    hint = f"There is one in {file}: what it answers is not asked in Harken, and a refusal of any hook counts."
    return CheckFinding.of("no hook answers what Codex asks", hint, is_good=not others)


def _hooks(inspector: CodexInspector, files: _CodexFiles, project: Path | None) -> Iterator[CheckFinding]:
    config, hooks = read(files.trust), read(files.hooks)
    if not runs_hooks(config, file=files.trust):
        hint = f"Remove `hooks = false` under [features] in {files.trust}."
        yield CheckFinding(what="Codex runs hooks", is_good=False, hint=hint)
    own = {CONFIG: config} if project else {CONFIG: config, HOOKS_FILE: hooks}
    try:
        judged = inspector.hooks(own, home=files.home, cwd=project)
    except Unavailable as exc:
        yield CheckFinding(what="Codex trusts the hooks", is_good=False, hint=f"It could not be asked. {exc}")
        return
    seen = {hook.place: hook for hook in judged if hook.source == str(files.hooks)}
    ours = places(hooks, file=files.hooks)
    if not ours:
        yield CheckFinding(what="Codex has the hooks", is_good=False, hint="Run: harken connect codex")
    for place in ours:
        event = place.partition(":")[0]
        hook = seen.get(place)
        if hook is None:
            hint = "It does not see the file" + (": is the folder trusted?" if project else ".")
            yield CheckFinding(what=f"Codex has the hook {event}", is_good=False, hint=hint)
        else:
            is_good = hook.is_trusted and hook.is_enabled
            hint = "Start codex and choose to trust it, or run: harken connect codex"
            yield CheckFinding.of(f"Codex trusts the hook {event}", hint, is_good=is_good)


CONNECTOR: Final[Connector] = CodexConnector()


def _remote_server(inbox: RemoteInbox) -> Mapping[str, object]:
    return {
        "url": inbox.url,
        "bearer_token_env_var": inbox.variable,
        "tool_timeout_sec": TOOL_SECONDS,
        "omit_tools_from": ["deferred"],
    }


REMOTE: Final[RemoteEntry] = SettingsEntry(
    file=lambda place: _CodexFiles.of(place, place.project.resolve() if place.project else None).config,
    keys=(_SERVERS, SERVER),
    value=_remote_server,
    authority="SSL_CERT_FILE",
)
