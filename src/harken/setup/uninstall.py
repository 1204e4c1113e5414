"""What there is to uninstall, and taking it back: hosts, seeds of tasks, the service, the daemon, and the data.

Only what Harken knows to be its own is deleted; a file of others stays.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from harken.config.home import Home, disk_error, is_locked, write_private
from harken.control.client import Result
from harken.control.start import is_reachable
from harken.control.stop import stop_all
from harken.errors import HarkenError
from harken.hosts.connect.apply import FileOutcome, file_outcomes, undo
from harken.hosts.connect.files import glance
from harken.hosts.connect.plan import InstallTarget, local_place
from harken.hosts.connect.record import FOLDER, load, records
from harken.hosts.connect.targets import ConnectTarget, targets
from harken.hosts.registry import short, title_of
from harken.setup.service import Service, installed, remove, service_of, written
from harken.workspaces.seeding import Seed, host_of, refuse_moved, seeds, still_connected, unseed_all

OWN: Final = (
    *("config.toml", "triggers.json", "harken.db", "harken.db-wal", "harken.db-shm", "harken.db.new", "token", "env"),
    *("store.json", "harken.db.moving", "daemon-id", "reserve", "reserve.new", "signed-out", "page-sessions.json"),
    *("phone-sessions.json", "phone-push.json"),
    *("journal", "logs", "run", "runs", "workdirs", "trial", "connected", "seeded", "plugins"),
    *("sign-ins", "secrets", "parked-config.toml", "parked-triggers.json", "parked-decisions.json"),
)
"""What Harken keeps in a home. Anything else there is somebody else's."""


INSTALLERS: Final = (("uv-receipt.toml", "uv tool uninstall harken"), ("pipx_metadata.json", "pipx uninstall harken"))
"""What an installer leaves in the environment that it makes, and how it takes that back."""

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


@dataclass(slots=True, kw_only=True)
class Removal:
    """What was taken back."""

    seeds: list[Result] = field(default_factory=list[Result])
    hosts: list[Result] = field(default_factory=list[Result])


@dataclass(slots=True, kw_only=True)
class Installation:
    """What there is to take back."""

    seeds: Sequence[SeedRemoval]
    hosts: Sequence[ConnectTarget]  # apart from those
    service: Service | None
    is_running: bool
    problems: list[str] = field(default_factory=list[str])

    @property
    def is_todo(self) -> bool:
        """Whether there is anything."""
        return bool(self.seeds or self.hosts or self.service or self.is_running)


def leftovers(home: Home) -> dict[str, int]:
    """Return what is in a home, with sizes."""
    try:
        return {path.name: _size(path) for path in sorted(home.path.iterdir())}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as exc:
        raise disk_error("read", home.path, exc) from exc


def find_installation(home: Home) -> Installation:
    """Look what there is to take back; what cannot be looked at is among the problems."""
    problems: list[str] = []
    service: Service | None = None
    if installed(home, os.environ) is not None:
        try:
            service = service_of(home, os.environ)
            written(service)
        except HarkenError as exc:
            service = None
            problems.append(f"{exc.message} {exc.hint}")
    planned = _look_at_seeds(home, problems)
    seeded = {each.key for each in planned}
    hosts = _look_at_hosts(home, problems) if home.path.is_dir() else []
    hosts = [each for each in hosts if (each.connector.name, str(each.place.project)) not in seeded]
    is_running = is_reachable(home) or is_locked(home.lock_file)
    return Installation(seeds=planned, hosts=hosts, service=service, is_running=is_running, problems=problems)


def _look_at_hosts(home: Home, problems: list[str]) -> list[ConnectTarget]:
    """Return every connection that is recorded; one that cannot be looked at is a problem of its own."""
    found: list[ConnectTarget] = []
    try:
        known = records(home.path)
    except HarkenError as exc:
        problems.append(f"{exc.message} {exc.hint}")
        return found
    for each in known:
        try:
            found += targets(home.path, [each.host], Path(each.project) if each.project else None, is_looking=False)
        except HarkenError as exc:
            file = home.path / FOLDER / f"{each.key}.json"
            problems.append(f"What {file} is about stays connected: {exc.message} {exc.hint}")
    return found


def _look_at_seeds(home: Home, problems: list[str]) -> list[SeedRemoval]:

    try:
        return plan_seeds(home.path, seeds(home.path))
    except HarkenError as exc:
        problems.append(f"{exc.message} {exc.hint}")
        return []


def undo_installation(home: Home, found: Installation) -> Removal:
    """Take everything back; what fails does not stop the rest."""
    done = Removal(seeds=take_back(local_place(home.path), found.problems) if found.seeds else [])
    done.hosts = [_disconnected(target, found.problems) for target in found.hosts]
    if home.run_dir.is_dir():
        # Agents that are still open are not to start it again.
        _try(lambda: write_private(home.down_file, ""), found.problems)
    if found.service is not None:
        service = found.service
        _try(lambda: remove(service), found.problems)
    _try(lambda: stop_all(home), found.problems)
    return done


def _disconnected(target: ConnectTarget, problems: list[str]) -> Result:

    project = str(target.place.project) if target.place.project else None
    said: Result = {"host": target.connector.name, "project": project, "state": "disconnected", "notes": []}
    try:
        said["notes"] = list(undo(target.connector, target.place).notes)
    except HarkenError as exc:
        said |= {"state": "failed", "notes": [exc.message]}
    except OSError as exc:  # a host's module looks at paths, too
        said |= {"state": "failed", "notes": [f"{exc.filename}: {exc.strerror}."]}
    problems += [f"{target.name}: {note}" for note in said["notes"]]
    return said


def _try(work: Callable[[], object], problems: list[str]) -> None:
    try:
        work()
    except HarkenError as exc:
        problems.append(f"{exc.message} {exc.hint}")


def delete_home(home: Home) -> None:
    """Delete what is Harken's own in a home, and the home when nothing else is in it."""
    for path in [*(home.path / name for name in OWN), *home.path.glob("harken.db.lost-*")]:
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as exc:
            raise disk_error("remove", path, exc) from exc
    if not leftovers(home) and home.path.is_dir() and not home.path.is_symlink():
        home.path.rmdir()


def _size(path: Path) -> int:
    """Return how much is in a file or folder; what cannot be looked at counts nothing."""
    total = 0
    for place in [path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())]:
        try:
            total += 0 if place.is_dir() else place.lstat().st_size
        except OSError:
            continue
    return total


def program_removal(environment: Path, python: Path) -> str:
    """Return how the program is removed: by whatever installed it."""
    for mark, command in INSTALLERS:
        if (environment / mark).is_file():
            return command
    clone = environment.parent
    if (clone / "src/harken").is_dir():
        return f"delete the clone in {clone}"
    return f"{shlex.quote(str(python))} -m pip uninstall harken"


def has_sign_ins(home: Home) -> bool:
    """Whether somebody has signed in to a service here: the key may be in the keyring."""
    return (home.path / "sign-ins").is_dir()
