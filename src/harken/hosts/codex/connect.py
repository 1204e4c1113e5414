"""Connecting Codex: its MCP server and hooks as entries in its own files, with Codex's own trust in these hooks.

The plan is made of file changes only, so it can be shown, and undone to the byte. How Codex counts the hash that it
trusts is left to Codex: it is asked in a scratch home, where it can change nothing. What the server says of itself
does not reach every model of Codex's, so agents are told by a block in AGENTS.md.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.errors import Unavailable
from harken.hosts.codex import entries
from harken.hosts.codex.hooks import NAME
from harken.hosts.codex.inspection import CodexInspector
from harken.hosts.connect.command import mcp_command
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
)
from harken.hosts.instructions import ANY_HOST, Abilities

PROGRAM: Final = "codex"
CONFIG: Final = "config.toml"
HOOKS_FILE: Final = "hooks.json"
TOOL_PREFIX: Final = f"mcp__{entries.SERVER}__"
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
_FIRST: Final = "A session is known from its first prompt on; before that it cannot be woken."
_OPEN: Final = "Conversations that are open now keep their settings: start a new one (/new) to have the inbox in it."


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


@dataclass(frozen=True, slots=True)
class CodexConnector:
    """How Codex is connected."""

    name: str = NAME

    @property
    def wakes(self) -> Mapping[str, str]:
        """The ways to be woken that a person may choose: there is one, and it costs nothing."""
        return MappingProxyType({})

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program and its version."""
        inspector = _inspector(place)
        return InstalledProgram(program=inspector.program, version=inspector.version()) if inspector else None

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now."""
        del options
        project = place.project.resolve() if place.project else None
        files = _CodexFiles.of(place, project)
        if project is not None and _is_everywhere(place):
            note = "Codex is connected in every folder already: in this one, every hook would run twice."
            return ConnectPlan(host=NAME, steps=(), notes=(note,))
        inspector = _inspector(place)
        hooks = entries.with_hooks(read(files.hooks), place, file=files.hooks)
        hashes = _hashes(inspector, files, hooks)
        changed: dict[Path, bytes | None] = {files.hooks: hooks}
        if not place.is_for_tasks:
            changed = {files.config: entries.with_server(read(files.config), place, file=files.config), **changed}
        before = changed.get(files.trust, read(files.trust))
        changed[files.trust] = entries.with_trust(before, files.hooks, hashes, file=files.trust)
        block = _told(place, files)
        return ConnectPlan(
            host=NAME,
            steps=[*_changes(files, changed), *(change for change in block if change.before != change.after)],
            notes=[
                *_notes(inspector, files, project, is_trusted=bool(hashes)),
                *(note for change in block for note in telling_notes(place, change.path)),
            ],
            blocks=[change.path for change in block],
        )

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take out our entries, wherever they stand now."""
        files = _CodexFiles.of(place, place.project.resolve() if place.project else None)
        hooks = read(files.hooks)
        changed = {files.hooks: entries.without_hooks(hooks, file=files.hooks) if _has_hooks(files) else hooks}
        if not place.is_for_tasks:
            changed = {files.config: entries.without_server(read(files.config), file=files.config), **changed}
        before = changed.get(files.trust, read(files.trust))
        changed[files.trust] = entries.without_trust(before, files.hooks, hooks, file=files.trust)
        # A file in which nothing is left was made by us.
        steps = list(_changes(files, {path: data or None for path, data in changed.items()}))
        blocks = () if place.is_for_tasks else (untold(place, NAME, path) for path in files.told)
        return ConnectPlan(host=NAME, steps=[*steps, *(change for change in blocks if change.before != change.after)])

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Ask Codex what it makes of the files as they are."""
        inspector = _inspector(place)
        if inspector is None:
            hint = "Install it, for example with: npm install -g @openai/codex"
            return [CheckFinding(what="Codex is installed", is_good=False, hint=hint)]
        project = place.project.resolve() if place.project else None
        files = _CodexFiles.of(place, project)
        server = [] if place.is_for_tasks else [_server(inspector, files, project, place)]
        return [*server, *_hooks(inspector, files, project)]


def _inspector(place: InstallTarget) -> CodexInspector | None:
    path = place.environ.get("PATH", os.defpath)
    program = shutil.which(PROGRAM, path=path)
    return CodexInspector(program=Path(program), path=path) if program else None


def _told(place: InstallTarget, files: _CodexFiles) -> Sequence[FileEdit]:
    """Return the file that Codex reads to its model; a main checkout is not read in its worktrees."""
    if place.is_for_tasks or not place.can_tell:
        return ()
    override, usual = files.told
    path = override if (read(override) or b"").strip() else usual
    return (told(place, NAME, path, ANY_HOST if place.project else Abilities(tool_prefix=TOOL_PREFIX)),)


def _has_hooks(files: _CodexFiles) -> bool:
    return bool(entries.places(read(files.hooks), file=files.hooks))


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
    ours = entries.places(hooks, file=files.hooks)
    return {place: hashes[place, command] for place, command in ours.items() if (place, command) in hashes}


def _changes(files: _CodexFiles, changed: Mapping[Path, bytes | None]) -> Iterator[FileEdit]:
    whys = {
        files.trust: "trust in Harken's hooks",
        files.hooks: "hooks: what waits, with a prompt, after a tool, at the end of a turn",
        files.config: "MCP server harken" + (", and trust in its hooks" if files.config == files.trust else ""),
    }
    for path, after in changed.items():
        before = read(path)
        if before != after:
            yield FileEdit(path=path, before=before, after=after, why=whys[path])


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
    if project is not None and not entries.trusts_project(read(files.trust), project, file=files.trust):
        yield f"Codex reads {project / '.codex'} only once you trust the folder: start `codex` there and say so."


def _server(inspector: CodexInspector, files: _CodexFiles, project: Path | None, place: InstallTarget) -> CheckFinding:
    what = "Codex knows the MCP server harken"
    command, *arguments = mcp_command(place)
    seen = inspector.server({CONFIG: read(files.trust)}, entries.SERVER, cwd=project)
    transport = seen.get("transport")
    if not isinstance(transport, dict):
        is_there = entries.has_server(read(files.config), file=files.config)
        hint = "It does not read the folder: is it trusted?" if is_there else "Run: harken connect codex"
        return CheckFinding(what=what, is_good=False, hint=hint)
    is_same = transport.get("command") == command and transport.get("args") == arguments
    if seen.get("enabled") is not True:
        return CheckFinding(what=what, is_good=False, hint=f"It is disabled in {files.config}.")
    return CheckFinding(
        what=what, is_good=is_same, hint="" if is_same else "It is another one. Run: harken connect codex"
    )


def _hooks(inspector: CodexInspector, files: _CodexFiles, project: Path | None) -> Iterator[CheckFinding]:
    config, hooks = read(files.trust), read(files.hooks)
    if not entries.runs_hooks(config, file=files.trust):
        hint = f"Remove `hooks = false` under [features] in {files.trust}."
        yield CheckFinding(what="Codex runs hooks", is_good=False, hint=hint)
    own = {CONFIG: config} if project else {CONFIG: config, HOOKS_FILE: hooks}
    try:
        judged = inspector.hooks(own, home=files.home, cwd=project)
    except Unavailable as exc:
        yield CheckFinding(what="Codex trusts the hooks", is_good=False, hint=f"It could not be asked. {exc}")
        return
    seen = {hook.place: hook for hook in judged if hook.source == str(files.hooks)}
    ours = entries.places(hooks, file=files.hooks)
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
            hint = "" if is_good else "Start codex and choose to trust it, or run: harken connect codex"
            yield CheckFinding(what=f"Codex trusts the hook {event}", is_good=is_good, hint=hint)


CONNECTOR: Final[Connector] = CodexConnector()
