"""Connecting Gemini CLI: an MCP server and hooks in its settings, a rules file of our own, a block in GEMINI.md.

Makes plans from what it finds and writes nothing. Gemini leaves files behind whenever it runs, even for its version, so
it is only ever asked in a scratch home, with a copy of the settings. It passes on the few words that the server says of
itself; the block says who speaks in a message.
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
from harken.hosts.connect.instructions_block import context_file, telling_notes, told, untold
from harken.hosts.connect.plan import (
    CheckFinding,
    ConnectOptions,
    Connector,
    ConnectPlan,
    FileEdit,
    InstalledProgram,
    InstallTarget,
)
from harken.hosts.connect.record import key_of, records
from harken.hosts.gemini.hooks import CLEARED, EVENTS, NAME
from harken.hosts.instructions import ANY_HOST, Abilities
from harken.sessions.events import HookMoment

SERVER: Final = "harken"
# Above the 55 seconds that a tool of ours waits, and the time that a daemon needs to start.
TOOL_MILLISECONDS: Final = 90_000
HOOK_MILLISECONDS: Final = 10_000
_NAMES: Final = frozenset({"harken", "harken subagent"})
RULES: Final = f"""\
# Written by `harken connect gemini`, removed by `harken disconnect gemini`.
# Reading the inbox needs no confirmation, so these tools exist in headless runs too. Answering people (reply) does.
[[rule]]
mcpName = "{SERVER}"
toolName = [{", ".join(f'"{name}"' for name in UNASKED)}]
decision = "allow"
priority = 100
""".encode()


def with_entries(settings: bytes | None, place: InstallTarget, *, file: Path) -> bytes:
    """Return the settings with our server and our hooks."""
    there = json_value(settings, ("mcpServers", SERVER), file=file)
    own = there if isinstance(there, dict) else {}
    command, *arguments = mcp_command(place)
    server = {**own, "command": command, "args": arguments, "timeout": own.get("timeout", TOOL_MILLISECONDS)}
    data = json_set(settings, ("mcpServers", SERVER), server, file=file)
    for hook in hook_lines(place):
        index = _index(_groups(data, hook.event, file), hook.name)
        group = _group(hook)
        if index is None:
            data = json_append(data, ("hooks", hook.event), group, file=file)
        else:
            data = json_set(data, ("hooks", hook.event, index), group, file=file)
    return data


def without_entries(settings: bytes | None, *, file: Path) -> bytes | None:
    """Return the settings without anything of ours."""
    data = json_remove(settings, ("mcpServers", SERVER), file=file)
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


def obstacles(settings: bytes | None, *, file: Path) -> Sequence[str]:
    """Return what in the person's own settings keeps ours from working."""
    found = []
    if json_value(settings, ("hooksConfig", "enabled"), file=file) is False:
        found.append('"hooksConfig.enabled" is false')
    disabled = json_value(settings, ("hooksConfig", "disabled"), file=file)
    if isinstance(disabled, list) and _NAMES & {str(name) for name in disabled}:
        found.append('"hooksConfig.disabled" names hooks of Harken')
    excluded = json_value(settings, ("mcp", "excluded"), file=file)
    if isinstance(excluded, list) and SERVER in excluded:
        found.append('"mcp.excluded" names harken')
    allowed = json_value(settings, ("mcp", "allowed"), file=file)
    if isinstance(allowed, list) and allowed and SERVER not in allowed:
        found.append('"mcp.allowed" does not name harken')
    return found


def _group(hook: GeminiHookLine) -> Mapping[str, object]:
    command = {"type": "command", "name": hook.name, "command": hook.line, "timeout": HOOK_MILLISECONDS}
    return {**({"matcher": hook.matcher} if hook.matcher else {}), "hooks": [command]}


def _groups(data: bytes | None, event: str, file: Path) -> Sequence[object]:
    groups = json_value(data, ("hooks", event), file=file)
    return groups if isinstance(groups, list) else ()


def _index(groups: Sequence[object], name: str) -> int | None:
    return next((number for number, group in enumerate(groups) if _name(group) == name), None)


def _is_ours(group: object) -> bool:
    return _name(group) in _NAMES


def _name(group: object) -> str:
    """Return the name of a group's only hook; a group with more is not one of ours."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    hook = hooks[0] if isinstance(hooks, list) and len(hooks) == 1 else None
    return str(hook.get("name", "")) if isinstance(hook, dict) else ""


SUBAGENT_TOOL: Final = "invoke_agent"
MARK_EVENT: Final = "BeforeTool"
_ITS_OWN: Final = f"^{SUBAGENT_TOOL}$"
_OTHERS: Final = f"^(?!{SUBAGENT_TOOL}$)"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiHookLine:
    """One hook: when it runs, and what."""

    event: str
    name: str  # unique among ours in its event: how it is found again
    line: str
    matcher: str = ""


def hook_lines(place: InstallTarget) -> Sequence[GeminiHookLine]:
    """Return the hooks that `connect` writes."""
    marks = shlex.quote(str(place.harken / "run" / "subagents")) + "/$PPID."
    run = shlex.quote(str(place.harken / "run"))
    folder = shlex.quote(str(place.harken / "run" / "subagents"))
    mark = f"[ -d {run} ] || exit 0; mkdir -p {folder} 2>/dev/null && : >{marks}$$; exit 0"
    unmark = f'for mark in {marks}*; do rm "$mark" 2>/dev/null && break; done; '
    forget = f"rm -f {marks}* 2>/dev/null; "
    quiet = f'for mark in {marks}*; do [ -e "$mark" ] && exit 0; done; '
    tool = hook_line(place, NAME, HookMoment.TOOL)
    return (
        GeminiHookLine(
            event=EVENTS[HookMoment.START], name="harken", line=forget + hook_line(place, NAME, HookMoment.START)
        ),
        GeminiHookLine(
            event=EVENTS[HookMoment.PROMPT], name="harken", line=forget + hook_line(place, NAME, HookMoment.PROMPT)
        ),
        GeminiHookLine(event=MARK_EVENT, name="harken subagent", line=mark, matcher=_ITS_OWN),
        GeminiHookLine(event=EVENTS[HookMoment.TOOL], name="harken", line=quiet + tool, matcher=_OTHERS),
        GeminiHookLine(
            event=EVENTS[HookMoment.TOOL], name="harken subagent", line=unmark + quiet + tool, matcher=_ITS_OWN
        ),
        GeminiHookLine(event=EVENTS[HookMoment.STOP], name="harken", line=hook_line(place, NAME, HookMoment.STOP)),
        # At an exit Gemini would show lines about it to the person; that the process is gone is seen without.
        GeminiHookLine(
            event=EVENTS[HookMoment.END],
            name="harken",
            line=forget + hook_line(place, NAME, HookMoment.END),
            matcher=CLEARED,
        ),
    )


PROGRAM: Final = "gemini"
OLDEST: Final = (0, 61)  # the oldest that was seen to do all that is used here
FOLDER: Final = ".gemini"
SETTINGS: Final = "settings.json"
CONTEXT_FILE: Final = "GEMINI.md"
ABILITIES: Final = Abilities(tool_prefix=f"mcp_{SERVER}_", can_be_woken=False)

_ASLEEP: Final = (
    "Gemini CLI has no way to be woken. A message for an idle session waits and comes with your next prompt; while "
    "Gemini works, it comes after the current tool or at the end of the turn."
)
_ASKS: Final = (
    "Reading the inbox is allowed by policies/harken.toml, and only that: Gemini asks you before `reply` sends an "
    "answer. In headless runs (gemini -p) nobody can be asked, so there `reply` does not exist."
)
_TRUST: Final = "In a folder that you have not told Gemini to trust, it starts no MCP server and runs no hook."
_RESTART: Final = "Sessions that are open now have to be started again."


@dataclass(frozen=True, slots=True, kw_only=True)
class _GeminiFiles:
    """The files in question. Gemini reads rules from the person's own folder only."""

    settings: Path
    own: Path  # the person's settings, also when a project is connected
    rules: Path

    @classmethod
    def of(cls, place: InstallTarget) -> _GeminiFiles:
        folder = Path(place.environ.get("GEMINI_CLI_HOME") or place.user) / FOLDER
        settings = place.project / FOLDER if place.project else folder
        return cls(
            settings=settings / SETTINGS,
            own=folder / SETTINGS,
            rules=folder / "policies" / "harken.toml",
        )


@dataclass(frozen=True, slots=True)
class GeminiConnector:
    """How Gemini CLI is connected."""

    name: str = NAME

    @property
    def wakes(self) -> Mapping[str, str]:
        """The ways to be woken that a person may choose: there is none."""
        return MappingProxyType({})

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program and its version."""
        program = find_program(place, PROGRAM)
        if program is None:
            return None
        with _scratch(place, {}) as environ:
            words = output_of((program, "--version"), environ, Path(environ["GEMINI_CLI_HOME"])).split()
        return InstalledProgram(program=Path(program), version=words[-1] if words else "")

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now."""
        if options.wake:
            raise UserError(
                f"Gemini CLI cannot be woken, by {options.wake[:40]!r} or otherwise.",
                "Leave the option out: messages come with the next prompt.",
            )
        files = _GeminiFiles.of(place)
        if place.project is not None and is_connected(read(files.own), file=files.own):
            note = "Gemini CLI is connected in every folder already: in this one, every hook would run twice."
            return ConnectPlan(host=NAME, steps=(), notes=(note,))
        before = read(files.settings)
        steps = _changes(
            files,
            (before, with_entries(before, place, file=files.settings)),
            (read(files.rules), RULES),
        )
        context = _context(place, files)
        block = told(place, NAME, context, ANY_HOST if place.project else ABILITIES)
        return ConnectPlan(
            host=NAME,
            steps=[*steps, *([block] if block.before != block.after else [])],
            notes=[*_notes(place, files), *telling_notes(place, context)],
            blocks=[context] if place.can_tell else [],
        )

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take out our entries, wherever they stand now."""
        files = _GeminiFiles.of(place)
        before, rules = read(files.settings), read(files.rules)
        # The rules serve every folder; they stay while the person's own settings name our server, or another folder's.
        is_needed = place.project is not None and is_connected(read(files.own), file=files.own)
        own = key_of(NAME, place.project)
        is_needed = is_needed or any(each.host == NAME and each.key != own for each in records(place.harken))
        after = without_entries(before, file=files.settings)
        steps = _changes(files, (before, after), (rules, rules if is_needed else None))
        block = untold(place, NAME, _context(place, files))
        return ConnectPlan(host=NAME, steps=[*steps, *([block] if block.before != block.after else [])])

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Ask Gemini itself whether it understands the settings as they are."""
        found, files = self.find(place), _GeminiFiles.of(place)
        if found is None:
            hint = "Install it, for example with: npm install -g @google/gemini-cli"
            return [CheckFinding(what="Gemini CLI is installed", is_good=False, hint=hint)]
        before = read(files.settings)
        is_current = with_entries(before, place, file=files.settings) == before and read(files.rules) == RULES
        again = "Run: harken connect gemini" + (f" --project {place.project}" if place.project else "")
        is_new = version_numbers(found.version) >= OLDEST
        oldest = ".".join(map(str, OLDEST))
        return [
            CheckFinding(
                what=f"Gemini CLI {found.version} is new enough",
                is_good=is_new,
                hint="" if is_new else f"Update it: this was made for {oldest} and later. It needs node 20 or later.",
            ),
            CheckFinding(what="the settings are current", is_good=is_current, hint="" if is_current else again),
            *(
                CheckFinding(what="nothing in your settings is in the way", is_good=False, hint=f"{each} in {path}.")
                for path in dict.fromkeys((files.own, files.settings))
                for each in obstacles(read(path), file=path)
            ),
            _listed(str(found.program), place, files),
        ]


def _context(place: InstallTarget, files: _GeminiFiles) -> Path:
    """Return the file that Gemini gives to its model."""
    name = context_file((files.own, files.settings), CONTEXT_FILE)
    return (place.project or files.own.parent) / name


def _changes(
    files: _GeminiFiles, settings: tuple[bytes | None, bytes | None], rules: tuple[bytes | None, bytes | None]
) -> Iterator[FileEdit]:
    if settings[0] != settings[1]:
        why = "MCP server harken, and hooks: what waits, with a prompt, after a tool, at the end of a turn"
        yield FileEdit(path=files.settings, before=settings[0], after=settings[1] or None, why=why)
    if rules[0] != rules[1]:
        why = "reading the inbox needs no confirmation"
        yield FileEdit(path=files.rules, before=rules[0], after=rules[1], why=why)


def _notes(place: InstallTarget, files: _GeminiFiles) -> Iterator[str]:
    yield _ASLEEP
    yield _ASKS
    yield _TRUST
    yield _RESTART
    if place.project is not None:
        yield (f"{files.settings} holds paths of this machine; where git tracks it, keep it out of your commits.")


def _listed(program: str, place: InstallTarget, files: _GeminiFiles) -> CheckFinding:
    what = "Gemini CLI lists the MCP server harken"
    settings = with_stub(read(files.settings), file=files.settings)
    with _scratch(place, {SETTINGS: settings}) as environ:
        shown = output_of((program, "mcp", "list"), environ, Path(environ["GEMINI_CLI_HOME"]))
    is_good = any(f" {SERVER}: " in line for line in shown.splitlines())
    return CheckFinding(what=what, is_good=is_good, hint="" if is_good else "See what it says itself: gemini mcp list")


@contextmanager
def _scratch(place: InstallTarget, copies: Mapping[str, bytes | None]) -> Iterator[Mapping[str, str]]:
    """The environment for one question, with a home of its own that holds copies of some files."""
    with tempfile.TemporaryDirectory(prefix="harken-gemini-", ignore_cleanup_errors=True) as folder:
        Path(folder, FOLDER).mkdir()
        for name, data in copies.items():
            if data is not None:
                Path(folder, FOLDER, name).write_bytes(data)
        # Without the third, it first starts itself once more.
        own = {"GEMINI_CLI_HOME": folder, "GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
        yield {**place.environ, **own, "NO_COLOR": "1"}


CONNECTOR: Final[Connector] = GeminiConnector()
