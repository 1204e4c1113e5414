"""Connecting Qwen Code: an MCP server, hooks and leave to read the inbox, all in its settings; a block for agents.

Makes plans from what it finds and writes nothing. Qwen leaves files behind when it runs, so it is only ever asked in a
scratch home, with a copy of the settings. Only current versions pass on what the server says of itself, and those few
words are not enough: who speaks in a message is said in a block in QWEN.md, in a project in AGENTS.md.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.errors import UserError
from harken.hosts.connect.command import UNASKED, find_program, hook_line, mcp_command, output_of, version_numbers
from harken.hosts.connect.edits import json_append, json_remove, json_remove_items, json_set, json_value
from harken.hosts.connect.files import read
from harken.hosts.connect.instructions_block import AGENTS_FILE, context_file, telling_notes, told, untold
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
from harken.hosts.qwen.hooks import EVENTS, IDLE, IDLE_EVENT, NAME
from harken.sessions.events import HookMoment

SERVER: Final = "harken"
HOOK_NAME: Final = "harken"
# Above the 55 seconds that a tool of ours waits, and the time that a daemon needs to start.
TOOL_MILLISECONDS: Final = 90_000
HOOK_SECONDS: Final = 10
_ALLOWED: Final = tuple(f"mcp__{SERVER}__{name}" for name in UNASKED)
_ALLOW: Final = ("permissions", "allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenHookLine:
    """One hook: when it runs, and what."""

    event: str
    line: str
    matcher: str = ""


def hook_lines(place: InstallTarget) -> Sequence[QwenHookLine]:
    """Return the hooks that `connect` writes."""
    idle = QwenHookLine(event=IDLE_EVENT, line=hook_line(place, NAME, HookMoment.STOP), matcher=IDLE)
    return (*(QwenHookLine(event=event, line=_line(place, moment)) for moment, event in EVENTS.items()), idle)


def with_entries(settings: bytes | None, place: InstallTarget, *, file: Path) -> bytes:
    """Return the settings with our server, our hooks, and leave to read the inbox."""
    there = json_value(settings, ("mcpServers", SERVER), file=file)
    own = there if isinstance(there, dict) else {}
    command, *arguments = mcp_command(place)
    server = {
        **own,
        "command": command,
        "args": arguments,
        "timeout": own.get("timeout", TOOL_MILLISECONDS),
        # Otherwise the model is only told that there are tools it could look up.
        "alwaysLoadTools": own.get("alwaysLoadTools", True),
    }
    data = json_set(settings, ("mcpServers", SERVER), server, file=file)
    for tool in _ALLOWED:
        data = json_append(data, _ALLOW, tool, file=file)
    for hook in hook_lines(place):
        index = _index(_groups(data, hook.event, file))
        if index is None:
            data = json_append(data, ("hooks", hook.event), _group(hook), file=file)
        else:
            data = json_set(data, ("hooks", hook.event, index), _group(hook), file=file)
    return data


def without_entries(settings: bytes | None, *, file: Path) -> bytes | None:
    """Return the settings without anything of ours."""
    data = json_remove(settings, ("mcpServers", SERVER), file=file)
    data = json_remove_items(data, _ALLOW, lambda rule: rule in _ALLOWED, file=file)
    hooks = json_value(data, ("hooks",), file=file)
    for event in hooks if isinstance(hooks, dict) else ():
        data = json_remove_items(data, ("hooks", str(event)), _is_ours, file=file)
    return data


def with_stub(settings: bytes | None, *, file: Path) -> bytes | None:
    """Return settings in which our server does nothing: the host tries it when it lists what it knows."""
    if not is_connected(settings, file=file):
        return settings
    return json_set(settings, ("mcpServers", SERVER), {"command": "true"}, file=file)


def is_connected(settings: bytes | None, *, file: Path) -> bool:
    """Whether our server is in the settings."""
    return json_value(settings, ("mcpServers", SERVER), file=file) is not None


def obstacles(settings: bytes | None, *, file: Path) -> Iterator[str]:
    """Return what in the person's own settings keeps ours from working."""
    if json_value(settings, ("disableAllHooks",), file=file) is True:
        yield '"disableAllHooks" is true'
    excluded = json_value(settings, ("mcp", "excluded"), file=file)
    if isinstance(excluded, list) and SERVER in excluded:
        yield '"mcp.excluded" names harken'
    allowed = json_value(settings, ("mcp", "allowed"), file=file)
    if isinstance(allowed, list) and allowed and SERVER not in allowed:
        yield '"mcp.allowed" does not name harken'
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


def _group(hook: QwenHookLine) -> Mapping[str, object]:
    command = {"type": "command", "name": HOOK_NAME, "command": hook.line, "timeout": HOOK_SECONDS}
    return {**({"matcher": hook.matcher} if hook.matcher else {}), "hooks": [command]}


def _groups(data: bytes | None, event: str, file: Path) -> Sequence[object]:
    groups = json_value(data, ("hooks", event), file=file)
    return groups if isinstance(groups, list) else ()


def _index(groups: Sequence[object]) -> int | None:
    return next((number for number, group in enumerate(groups) if _is_ours(group)), None)


def _is_ours(group: object) -> bool:
    """Whether a group's only hook is ours; a group with more is not one of ours."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    hook = hooks[0] if isinstance(hooks, list) and len(hooks) == 1 else None
    return isinstance(hook, dict) and hook.get("name") == HOOK_NAME


PROGRAM: Final = "qwen"
OLDEST: Final = (0, 24)  # the oldest that was seen to do all that is used here
FOLDER: Final = ".qwen"
SETTINGS: Final = "settings.json"
CONTEXT_FILE: Final = "QWEN.md"
ABILITIES: Final = Abilities(tool_prefix=f"mcp__{SERVER}__")

_WOKEN: Final = (
    "An idle session in a terminal is woken by Qwen's own inbox for messages between sessions, which is on unless you "
    "turned it off (agents.crossSessionMessaging). It arrives as the word of a process that Qwen started, never as "
    "yours."
)
_ASKS: Final = (
    "Reading the inbox needs no confirmation (permissions.allow), and only that: whether `reply` may send an answer is "
    "decided by your approval mode, as for any tool."
)
_RESTART: Final = "Sessions that are open now have to be started again."


@dataclass(frozen=True, slots=True)
class QwenConnector:
    """How Qwen Code is connected."""

    name: str = NAME

    @property
    def wakes(self) -> Mapping[str, str]:
        """The ways to be woken that a person may choose: there is one, and it costs nothing."""
        return MappingProxyType({})

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program and its version."""
        program = find_program(place, PROGRAM)
        if program is None:
            return None
        with _scratch(place, {}) as environ:
            words = output_of((program, "--version"), environ, Path(environ["QWEN_HOME"])).split()
        return InstalledProgram(program=Path(program), version=words[-1] if words else "")

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now."""
        if options.wake:
            raise UserError(
                f"Qwen Code has no way to be woken called {options.wake[:40]!r}.",
                "Leave it out: idle sessions in a terminal are woken anyway.",
            )
        own, settings = _own(place), _settings(place)
        if place.project is not None and is_connected(read(own), file=own):
            note = "Qwen Code is connected in every folder already: in this one, every hook would run twice."
            return ConnectPlan(host=NAME, steps=(), notes=(note,))
        before = read(settings)
        after = with_entries(before, place, file=settings)
        context = _context(place)
        block = told(place, NAME, context, ANY_HOST if place.project else ABILITIES)
        return ConnectPlan(
            host=NAME,
            steps=[*_change(settings, before, after), *([block] if block.before != block.after else [])],
            notes=[*_notes(place, settings), *telling_notes(place, context)],
            blocks=[context] if place.can_tell else [],
        )

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take out our entries, wherever they stand now."""
        settings = _settings(place)
        before = read(settings)
        after = without_entries(before, file=settings)
        block = untold(place, NAME, _context(place))
        steps = [*_change(settings, before, after or None), *([block] if block.before != block.after else [])]
        return ConnectPlan(host=NAME, steps=steps)

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Ask Qwen itself whether it understands the settings as they are."""
        found = self.find(place)
        if found is None:
            hint = "Install it, for example with: npm install -g @qwen-code/qwen-code"
            return [CheckFinding(what="Qwen Code is installed", is_good=False, hint=hint)]
        settings = _settings(place)
        before = read(settings)
        is_new = version_numbers(found.version) >= OLDEST
        is_current = with_entries(before, place, file=settings) == before
        again = "Run: harken connect qwen" + (f" --project {place.project}" if place.project else "")
        oldest = ".".join(map(str, OLDEST))
        return [
            CheckFinding(
                what=f"Qwen Code {found.version} is new enough",
                is_good=is_new,
                hint="" if is_new else f"Update it: this was made for {oldest} and later. It needs node 22 or later.",
            ),
            CheckFinding(what="the settings are current", is_good=is_current, hint="" if is_current else again),
            *(
                CheckFinding(what="nothing in your settings is in the way", is_good=False, hint=f"{each}: see {path}.")
                for path in dict.fromkeys((_own(place), settings))
                for each in obstacles(read(path), file=path)
            ),
            _listed(str(found.program), place),
        ]


def _own(place: InstallTarget) -> Path:
    """Return the person's settings, also when a project is connected."""
    own = place.environ.get("QWEN_HOME", "")
    return (Path(own) if own else place.user / FOLDER) / SETTINGS


def _settings(place: InstallTarget) -> Path:
    return place.project / FOLDER / SETTINGS if place.project else _own(place)


def _context(place: InstallTarget) -> Path:
    """Return the file that Qwen gives to its model; of the two that it reads in a project, the one of all hosts."""
    own = _own(place)
    if place.project is None:
        return own.parent / context_file((own,), CONTEXT_FILE, AGENTS_FILE)
    return place.project / context_file((own, _settings(place)), AGENTS_FILE, CONTEXT_FILE)


def _change(path: Path, before: bytes | None, after: bytes | None) -> Sequence[FileEdit]:
    if before == after:
        return ()
    why = "MCP server harken, leave to read the inbox, and hooks: with a prompt, between tools, at the end of a turn"
    return (FileEdit(path=path, before=before, after=after, why=why),)


def _notes(place: InstallTarget, settings: Path) -> Iterator[str]:
    yield _WOKEN
    yield _ASKS
    yield _RESTART
    if place.project is not None:
        yield (
            f"{settings} holds paths of this machine; where git tracks it, keep it out of your commits. Qwen reads it "
            "only in a folder that you trust."
        )


def _listed(program: str, place: InstallTarget) -> CheckFinding:
    what = "Qwen Code lists the MCP server harken"
    path = _settings(place)
    with _scratch(place, {SETTINGS: with_stub(read(path), file=path)}) as environ:
        shown = output_of((program, "mcp", "list"), environ, Path(environ["QWEN_HOME"]))
    is_good = any(f" {SERVER}: " in line for line in shown.splitlines())
    return CheckFinding(what=what, is_good=is_good, hint="" if is_good else "See what it says itself: qwen mcp list")


@contextmanager
def _scratch(place: InstallTarget, copies: Mapping[str, bytes | None]) -> Iterator[Mapping[str, str]]:
    """The environment for one question, with a home of its own that holds copies of some files."""
    with tempfile.TemporaryDirectory(prefix="harken-qwen-", ignore_cleanup_errors=True) as folder:
        for name, data in copies.items():
            if data is not None:
                Path(folder, name).write_bytes(data)
        yield {**place.environ, "QWEN_HOME": folder, "NO_COLOR": "1"}


CONNECTOR: Final[Connector] = QwenConnector()
