"""Taking a backup into a file, and restoring one into an empty home. What a backup holds is in `archive.py`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp, mkstemp
from typing import IO, Final

from harken.config.home import Home, disk_error, ensure, write_private
from harken.config.lock import single_instance
from harken.errors import Conflict
from harken.setup.archive import BackupHeader, unpack
from harken.setup.restore_powers import Power, park, powers_in
from harken.store.identity import identity_text
from harken.store.sqlite.health import begin_epoch
from harken.store.sqlite.rules import disown
from harken.store.sqlite.snapshot import HeldWork, hold

WORKING: Final = ".restore-"
DATABASE: Final = "harken.db"
MAY_BE_THERE: Final = frozenset({"run", "logs", "reserve"})  # what a daemon leaves, and nobody would miss


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """What a backup was about, and what became of what could act."""

    about: BackupHeader
    files: int
    held: HeldWork
    powers: Sequence[Power]
    parked: Sequence[str]


@contextmanager
def backup_target(path: Path | None) -> Iterator[tuple[IO[bytes], Path]]:
    """Open stdout, or a private file that appears under its name only when it is complete; and a folder to work in."""
    if path is None:
        with TemporaryDirectory(prefix="harken-backup-") as work:
            yield sys.stdout.buffer, Path(work)
            sys.stdout.buffer.flush()
        return
    try:
        with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as work:
            descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")
            temporary = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    yield stream, Path(work)
                    stream.flush()
                    os.fsync(stream.fileno())
                temporary.replace(path)
            finally:
                with suppress(FileNotFoundError):
                    temporary.unlink()
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise disk_error("write", path, exc) from exc


def restore(home: Home, stream: IO[bytes], takes: Callable[[Sequence[Power]], bool]) -> RestoreReport:
    """Unpack a backup into an empty home; `takes` says whether its settings that could act are put in force."""
    ensure(home)
    with single_instance(home.lock_file):
        refuse_used(home)
        work = Path(mkdtemp(prefix=WORKING, dir=home.path))
        try:
            about, count = unpack(stream, work)
            held = hold(work / DATABASE)
            powers = powers_in(work, DATABASE)
            parked = [] if not powers or takes(powers) else park(work, DATABASE)
            disown(work / DATABASE, Home(work).journal_dir)
            write_private(Home(work).identity_file, identity_text(begin_epoch(work / DATABASE)))
            _move(work, home)
        except OSError as exc:
            raise disk_error("write", home.path, exc) from exc
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return RestoreReport(about=about, files=count, held=held, powers=powers, parked=parked)


def refuse_used(home: Home) -> None:
    """Refuse a home in which anything is: a backup never mixes with it."""
    try:
        found = sorted(home.path.iterdir())
    except FileNotFoundError:
        return
    except OSError as exc:
        raise disk_error("read", home.path, exc) from exc
    used = [path for path in found if path.name not in MAY_BE_THERE and not _is_bare(path)]
    if used:
        raise Conflict(
            f"{home.path} is not empty: {used[0].name} is there.",
            "Restore into a new home with --home, or move this one away.",
        )


def _is_bare(path: Path) -> bool:
    """Whether there is nothing in it: an empty folder, or what a restore that was killed had not moved yet."""
    return path.is_dir() and not path.is_symlink() and (path.name.startswith(WORKING) or not any(path.iterdir()))


def _move(work: Path, home: Home) -> None:
    """Let the files be the home's. The database comes last: a home without it is seen to be incomplete."""
    for path in sorted(work.iterdir(), key=lambda each: each.name == DATABASE):
        place = home.path / path.name
        if path.is_dir() and place.is_dir():
            place.rmdir()  # empty: that was looked at
        path.rename(place)
