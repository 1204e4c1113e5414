"""The verb `uninstall`: disconnect every agent, of tasks too, remove the service, stop the daemon, say what is left.

Nothing that was received is deleted unless that is said, twice: by a flag, and by typing the home's name. Then only
what Harken knows to be its own goes; a file of somebody else's keeps its place. How a host is disconnected is in
`connecting.py` and `hosts/apply.py`, what becomes of the folders of tasks in `uninstall_seeds.py`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from harken.cli.agree import agree, agree_by_word
from harken.cli.backup import human
from harken.cli.lifecycle import stop_all
from harken.cli.output import note_to_person
from harken.cli.service import remove_service
from harken.cli.verbs import Invocation, verb
from harken.config.home import Home, disk_error, write_private
from harken.config.lock import is_locked
from harken.control.client import Result
from harken.control.start import is_reachable
from harken.display import one_line
from harken.errors import HarkenError
from harken.hosts.names import short
from harken.setup.service import Service, installed, service_of, written

if TYPE_CHECKING:  # it brings what reads and writes settings of hosts, and `--help` names this verb too
    from harken.cli.connecting import Target
    from harken.cli.uninstall_seeds import Planned

NEEDS_FIXING: Final = 1  # the exit code when something could not be taken back
OWN: Final = (
    *("config.toml", "triggers.json", "harken.db", "harken.db-wal", "harken.db-shm", "harken.db.new", "token", "env"),
    *("store.json", "reserve", "reserve.new", "signed-out", "page-sessions.json"),
    *("journal", "logs", "run", "runs", "workdirs", "trial", "connected", "seeded", "plugins"),
    *("sign-ins", "secrets", "parked-config.toml", "parked-triggers.json", "parked-decisions.json"),
)
"""What Harken keeps in a home. Anything else there is somebody else's."""


@dataclass(slots=True, kw_only=True)
class _Done:
    """What was taken back."""

    seeds: list[Result] = field(default_factory=list[Result])
    hosts: list[Result] = field(default_factory=list[Result])


@dataclass(slots=True, kw_only=True)
class _Found:
    """What there is to take back."""

    seeds: Sequence[Planned]
    hosts: Sequence[Target]  # apart from those
    service: Service | None
    is_running: bool
    problems: list[str] = field(default_factory=list[str])

    @property
    def is_todo(self) -> bool:
        return bool(self.seeds or self.hosts or self.service or self.is_running)


@verb("uninstall")
@click.option("--delete-data", is_flag=True, help="Delete messages, settings and sign-ins too. Asks for a word.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
def uninstall(asked: Invocation, *, delete_data: bool, dry_run: bool, yes: bool) -> None:
    """Disconnect every agent, remove the service, stop the daemon, and say what is left.

    What was written into the folders of tasks goes too; worktrees and branches stay. What was received stays, unless
    you say --delete-data. Exits with 1 when something could not be taken back.
    """
    from harken.cli.authority import refuse_agent

    refuse_agent(asked, "uninstall Harken")
    found = _look(asked)
    if not asked.as_json:
        _show(asked, found, will_delete=delete_data)
    done = _Done()
    if dry_run:
        found.problems += [each.problem for each in found.seeds if each.problem]
    else:
        if found.is_todo:
            agree(asked, "Uninstall?", is_agreed=yes)
        if delete_data and asked.home.path.exists():
            name = asked.home.path.name
            question = f"This deletes everything that was received. Type the home's name to do it [{name}]"
            agree_by_word(asked, question, name, is_agreed=yes)
        done = _undo(asked, found)
        if delete_data and not found.problems:
            _delete(asked.home)
    left = leftovers(asked.home)
    if asked.as_json:
        asked.print_json(_record(asked.home, found, done, left, is_dry=dry_run))
    else:
        _tell(asked, found, done, left, is_dry=dry_run)
    if found.problems and not dry_run:
        click.get_current_context().exit(NEEDS_FIXING)


def leftovers(home: Home) -> dict[str, int]:
    """Return what is in a home, with sizes."""
    try:
        return {path.name: _size(path) for path in sorted(home.path.iterdir())}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as exc:
        raise disk_error("read", home.path, exc) from exc


def _look(asked: Invocation) -> _Found:
    problems: list[str] = []
    service: Service | None = None
    if installed(asked.home, os.environ) is not None:
        try:
            service = service_of(asked.home, os.environ)
            written(service)
        except HarkenError as exc:
            service = None
            problems.append(f"{exc.message} {exc.hint}")
    planned = _look_at_seeds(asked, problems)
    seeded = {each.key for each in planned}
    hosts = _look_at_hosts(asked, problems) if asked.home.path.is_dir() else []
    hosts = [each for each in hosts if (each.connector.name, str(each.place.project)) not in seeded]
    is_running = is_reachable(asked.home) or is_locked(asked.home.lock_file)
    return _Found(seeds=planned, hosts=hosts, service=service, is_running=is_running, problems=problems)


def _look_at_hosts(asked: Invocation, problems: list[str]) -> list[Target]:
    """Return every connection that is recorded; one that cannot be looked at is a problem of its own."""
    from harken.cli.connecting import targets
    from harken.hosts.record import FOLDER, records

    found: list[Target] = []
    try:
        known = records(asked.home.path)
    except HarkenError as exc:
        problems.append(f"{exc.message} {exc.hint}")
        return found
    for each in known:
        try:
            found += targets(asked, [each.host], Path(each.project) if each.project else None, is_looking=False)
        except HarkenError as exc:
            file = asked.home.path / FOLDER / f"{each.key}.json"
            problems.append(f"What {file} is about stays connected: {exc.message} {exc.hint}")
    return found


def _look_at_seeds(asked: Invocation, problems: list[str]) -> list[Planned]:
    from harken.cli.uninstall_seeds import plan_seeds
    from harken.workspaces.seeding import seeds

    try:
        return plan_seeds(asked.home.path, seeds(asked.home.path))
    except HarkenError as exc:
        problems.append(f"{exc.message} {exc.hint}")
        return []


def _undo(asked: Invocation, found: _Found) -> _Done:
    """Take everything back; what fails does not stop the rest."""
    from harken.cli.uninstall_seeds import take_back

    home = asked.home
    done = _Done(seeds=take_back(asked, found.problems) if found.seeds else [])
    done.hosts = [_disconnected(target, found.problems) for target in found.hosts]
    if home.run_dir.is_dir():
        # Agents that are still open are not to start it again.
        _try(lambda: write_private(home.down_file, ""), found.problems)
    if found.service is not None:
        service = found.service
        _try(lambda: remove_service(service), found.problems)
    _try(lambda: stop_all(home), found.problems)
    return done


def _disconnected(target: Target, problems: list[str]) -> Result:
    from harken.hosts.apply import undo

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


def _delete(home: Home) -> None:
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


def _show(asked: Invocation, found: _Found, *, will_delete: bool) -> None:
    rows = [row for planned in found.seeds for row in planned.rows]
    rows += [("disconnect", target.name) for target in found.hosts]
    rows += [("remove", short(found.service.file))] if found.service else []
    rows += [("stop", f"the daemon of {asked.home.path}")] if found.is_running else []
    rows += [("delete", str(asked.home.path))] if will_delete and asked.home.path.exists() else []
    if rows:
        asked.screen.table(rows)
    else:
        asked.screen.line("No agent is connected, no service is installed and no daemon runs.")


def _tell(asked: Invocation, found: _Found, done: _Done, left: dict[str, int], *, is_dry: bool) -> None:
    from harken.workspaces.seeding import written_since

    screen = asked.screen
    for name in dict.fromkeys(name for each in done.seeds for name in each["kept"]):
        screen.line(one_line(written_since(name)))
    for problem in found.problems:
        note_to_person(problem)
    if is_dry:
        return
    if found.problems and left:
        note_to_person("Nothing was deleted: what could not be taken back is recorded there.")
    if not left:
        screen.line(f"Nothing is left in {asked.home.path}.")
    else:
        screen.line(f"What is left in {asked.home.path}:")
        screen.table([(name, human(size)) for name, size in left.items()])
        screen.text("Delete it: harken uninstall --delete-data")
    screen.text(f"A sign-in that is locked with the keyring has its key there. The program itself: {_program()}")


def _program() -> str:
    return f"{sys.executable} -m pip uninstall harken"


def _record(home: Home, found: _Found, done: _Done, left: dict[str, int], *, is_dry: bool) -> Result:
    planned: list[Result] = [
        {
            "host": target.connector.name,
            "project": str(target.place.project) if target.place.project else None,
            "state": "planned",
            "notes": [],
        }
        for target in found.hosts
    ]
    return {
        "state": "planned" if is_dry else "failed" if found.problems else "uninstalled",
        "home": str(home.path),
        "seeds": [each.record for each in found.seeds] if is_dry else done.seeds,
        "hosts": planned if is_dry else done.hosts,
        "service": found.service.name if found.service else None,
        "was_running": found.is_running,
        "left": left,
        "problems": found.problems,
    }
