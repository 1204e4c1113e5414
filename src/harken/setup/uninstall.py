"""What there is to uninstall, and taking it back: hosts, seeds of tasks, the service, the daemon, and the data.

Only what Harken knows to be its own is deleted; a file of somebody else's keeps its place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harken.config.home import Home, disk_error, write_private
from harken.config.lock import is_locked
from harken.control.client import Result
from harken.control.start import is_reachable
from harken.control.stop import stop_all
from harken.errors import HarkenError
from harken.hosts.connect.apply import undo
from harken.hosts.connect.record import FOLDER, records
from harken.hosts.place import local_place
from harken.setup.connect import ConnectTarget, targets
from harken.setup.service import Service, installed, remove, service_of, written
from harken.workspaces.seed_removal import SeedRemoval, plan_seeds, take_back
from harken.workspaces.seeding import seeds

OWN: Final = (
    *("config.toml", "triggers.json", "harken.db", "harken.db-wal", "harken.db-shm", "harken.db.new", "token", "env"),
    *("store.json", "reserve", "reserve.new", "signed-out", "page-sessions.json"),
    *("journal", "logs", "run", "runs", "workdirs", "trial", "connected", "seeded", "plugins"),
    *("sign-ins", "secrets", "parked-config.toml", "parked-triggers.json", "parked-decisions.json"),
)
"""What Harken keeps in a home. Anything else there is somebody else's."""


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
