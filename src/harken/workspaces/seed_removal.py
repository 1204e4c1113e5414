"""What `uninstall` does about tasks: what was seeded into their folders is taken back, and said file by file.

What somebody wrote into since keeps what they wrote, and is named. Worktrees and branches are not touched: they hold
work. How a seed is taken back is in `seeding.py`; this decides nothing but how it is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harken.errors import HarkenError
from harken.hosts.connect.apply import FileOutcome, file_outcomes
from harken.hosts.connect.files import glance
from harken.hosts.connect.plan import InstallTarget
from harken.hosts.connect.record import load
from harken.hosts.names import short, title_of
from harken.workspaces.seeding import Seed, host_of, refuse_moved, still_connected, unseed_all

SeedRecord = dict[str, Any]
"""What became of a seed, as `uninstall` tells it: JSON, documented in the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRemoval:
    """A seed, and what taking it back would make of its files."""

    seed: Seed
    file_outcomes: Mapping[Path, FileOutcome] = field(default_factory=dict[Path, FileOutcome])
    problem: str = ""  # why nobody can say what would become of them

    @property
    def key(self) -> tuple[str, str]:
        """The connection that it is: a host, and the folder."""
        return self.seed.host, self.seed.project

    @property
    def rows(self) -> Iterator[tuple[str, str]]:
        """What would be done, for people."""
        why = f"({title_of(self.seed.host)}, task {self.seed.task})"
        for path, outcome in self.file_outcomes.items():
            yield "take back", f"{short(path)}: {outcome.value} {why}"

    @property
    def record(self) -> SeedRecord:
        """What would be done, for programs."""
        files = [str(path) for path, outcome in self.file_outcomes.items() if outcome is not FileOutcome.CLEANED]
        kept = [str(path) for path, outcome in self.file_outcomes.items() if outcome is FileOutcome.CLEANED]
        return _record(self.seed, "planned", files, [name for name in kept if name != self.seed.exclude])


def plan_seeds(harken: Path, every: Sequence[Seed]) -> list[SeedRemoval]:
    """Return what taking everything back would do, each file once; what cannot be looked at is told. Writes nothing."""
    found = [_planned(harken, each) for each in reversed(every)]
    told: dict[Path, FileOutcome] = {}
    for each in found:
        for path, outcome in each.file_outcomes.items():
            # One that only shares a file does not know that nobody else wrote in it.
            told[path] = outcome if told.get(path, FileOutcome.CLEANED) is FileOutcome.CLEANED else told[path]
    return [
        replace(each, file_outcomes={path: told.pop(path) for path in each.file_outcomes if path in told})
        for each in found
    ]


def _planned(harken: Path, seed: Seed) -> SeedRemoval:
    try:
        return SeedRemoval(seed=seed, file_outcomes=_fates(harken, seed))
    except HarkenError as exc:
        return SeedRemoval(seed=seed, problem=still_connected(seed, exc))


def _fates(harken: Path, seed: Seed) -> dict[Path, FileOutcome]:
    host_of(seed, harken)
    record = load(harken, seed.host, Path(seed.project))
    if record is not None:
        refuse_moved(seed)
    found = dict(file_outcomes(record)) if record is not None else {}
    found |= {Path(seed.exclude): FileOutcome.CLEANED} if seed.exclude else {}
    # What is written in Harken's own home is nobody's concern.
    outside = {path: outcome for path, outcome in found.items() if not path.is_relative_to(harken)}
    return {path: outcome for path, outcome in outside.items() if outcome is FileOutcome.RESTORED or glance([path])}


def take_back(place: InstallTarget, problems: list[str]) -> list[SeedRecord]:
    """Take back what was seeded for every task; what could not be is added to the problems."""
    try:
        done = unseed_all(place)
    except HarkenError as exc:
        problems.append(f"{exc.message} {exc.hint}")
        return []
    results: list[SeedRecord] = []
    for seed, seeded in done:
        problems += seeded.notes
        state = "failed" if seeded.notes else "unseeded"
        results.append({**_record(seed, state, seeded.files, seeded.kept), "notes": list(seeded.notes)})
    return results


def _record(seed: Seed, state: str, files: Sequence[str], kept: Sequence[str]) -> SeedRecord:
    return {
        "task": seed.task,
        "host": seed.host,
        "project": seed.project,
        "state": state,
        "files": list(files),
        "kept": list(kept),
        "notes": [],
    }
