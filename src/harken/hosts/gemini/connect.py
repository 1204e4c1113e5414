"""Connecting Gemini CLI: an MCP server and hooks in its settings, a rules file of our own, a block in GEMINI.md.

Makes plans from what it finds and writes nothing. Gemini leaves files behind whenever it runs, even for its version,
so it is only ever asked in a scratch home, with a copy of the settings. It passes on the few words that the server
says of itself; whose word a message is stands in the block.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.errors import UserError
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
from harken.hosts.connect.program import find_program, output_of, version_numbers
from harken.hosts.connect.record import key_of, records
from harken.hosts.gemini import entries
from harken.hosts.gemini.hooks import NAME
from harken.hosts.instructions import ANY_HOST, Abilities

PROGRAM: Final = "gemini"
OLDEST: Final = (0, 61)  # the oldest that was seen to do all that is used here
FOLDER: Final = ".gemini"
SETTINGS: Final = "settings.json"
CONTEXT_FILE: Final = "GEMINI.md"
ABILITIES: Final = Abilities(tool_prefix=f"mcp_{entries.SERVER}_", can_be_woken=False)

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
        if place.project is not None and entries.is_connected(read(files.own), file=files.own):
            note = "Gemini CLI is connected in every folder already: in this one, every hook would run twice."
            return ConnectPlan(host=NAME, steps=(), notes=(note,))
        before = read(files.settings)
        steps = _changes(
            files,
            (before, entries.with_entries(before, place, file=files.settings)),
            (read(files.rules), entries.RULES),
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
        is_needed = place.project is not None and entries.is_connected(read(files.own), file=files.own)
        own = key_of(NAME, place.project)
        is_needed = is_needed or any(each.host == NAME and each.key != own for each in records(place.harken))
        after = entries.without_entries(before, file=files.settings)
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
        is_current = (
            entries.with_entries(before, place, file=files.settings) == before and read(files.rules) == entries.RULES
        )
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
                for each in entries.obstacles(read(path), file=path)
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
    settings = entries.with_stub(read(files.settings), file=files.settings)
    with _scratch(place, {SETTINGS: settings}) as environ:
        shown = output_of((program, "mcp", "list"), environ, Path(environ["GEMINI_CLI_HOME"]))
    is_good = any(f" {entries.SERVER}: " in line for line in shown.splitlines())
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
