"""Connecting Qwen Code: an MCP server, hooks and leave to read the inbox, all in its settings; a block for agents.

Makes plans from what it finds and writes nothing. Qwen leaves files behind when it runs, so it is only ever asked in a
scratch home, with a copy of the settings. Only current versions pass on what the server says of itself, and those few
words are not enough: whose word a message is stands in a block in QWEN.md, in a project in AGENTS.md.
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
from harken.hosts.connect.program import find_program, output_of, version_numbers
from harken.hosts.instructions import ANY_HOST, Abilities
from harken.hosts.qwen import entries
from harken.hosts.qwen.hooks import NAME

PROGRAM: Final = "qwen"
OLDEST: Final = (0, 24)  # the oldest that was seen to do all that is used here
FOLDER: Final = ".qwen"
SETTINGS: Final = "settings.json"
CONTEXT_FILE: Final = "QWEN.md"
ABILITIES: Final = Abilities(tool_prefix=f"mcp__{entries.SERVER}__")

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
        if place.project is not None and entries.is_connected(read(own), file=own):
            note = "Qwen Code is connected in every folder already: in this one, every hook would run twice."
            return ConnectPlan(host=NAME, steps=(), notes=(note,))
        before = read(settings)
        after = entries.with_entries(before, place, file=settings)
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
        after = entries.without_entries(before, file=settings)
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
        is_current = entries.with_entries(before, place, file=settings) == before
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
                for each in entries.obstacles(read(path), file=path)
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
    with _scratch(place, {SETTINGS: entries.with_stub(read(path), file=path)}) as environ:
        shown = output_of((program, "mcp", "list"), environ, Path(environ["QWEN_HOME"]))
    is_good = any(f" {entries.SERVER}: " in line for line in shown.splitlines())
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
