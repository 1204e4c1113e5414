"""What happens to the files of a home around a kill: one mishap a round, and never to both halves of what is kept.

The database and the journal each hold everything that was accepted. A round loses a part of one of them; when it is
over, both are whole again, or the next round could take what only the other one had.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from tests.cli.rig import Rig
from tests.loss.rig import Chance
from tests.loss.test_moved_files import strip

PAGE: Final = 4096
CHUNK: Final = 1 << 20
NOBODY: Final = 65_534


class Touched(Enum):
    """Which half of what is kept a mishap damages."""

    DATABASE = "database"
    JOURNAL = "journal"
    NOTHING = "nothing"


class FillableDisk(Protocol):
    """A disk that can be filled up."""

    def fill(self) -> None:
        """Let nothing more be written."""
        ...

    def free(self) -> None:
        """Let things be written again."""
        ...


@dataclass(slots=True)
class Place:
    """A home, the disk that it is on, and how a person would undo what happened there."""

    home: Path
    disk: FillableDisk
    chance: Chance
    older: Path  # a copy of the database that was taken before
    put_back: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])

    @property
    def database(self) -> Path:
        """The database."""
        return self.home / "harken.db"

    @property
    def log(self) -> Path:
        """What is not in the database yet."""
        return self.home / "harken.db-wal"

    @property
    def index(self) -> Path:
        """The index of the log."""
        return self.home / "harken.db-shm"

    @property
    def days(self) -> list[Path]:
        """The files of the journal."""
        return sorted((self.home / "journal").glob("*.jsonl"))


def move(place: Place, path: Path) -> None:
    """Give a file another name, and remember where it was."""
    away = place.home / f"moved-{path.name}"
    if not path.exists():
        return
    path.rename(away)

    def back() -> None:
        if away.exists():
            away.replace(path)

    place.put_back.append(back)


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    with suppress(FileNotFoundError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def cut(place: Place, path: Path) -> None:
    """Cut a file off somewhere."""
    with suppress(FileNotFoundError):
        os.truncate(path, place.chance.randrange(path.stat().st_size + 1))


def overwrite(place: Place) -> None:
    """Write something else over a page of the database."""
    pages = place.database.stat().st_size // PAGE
    data = place.chance.choice((bytes(PAGE), place.chance.randbytes(PAGE)))
    with place.database.open("r+b") as file:
        file.seek(place.chance.randrange(max(1, pages)) * PAGE)
        file.write(data)


def put_older(place: Place) -> None:
    """Put an older copy of the database in its place, as somebody does who has copied it by hand."""
    for path in (place.database, place.log, place.index):
        remove(path)
    shutil.copyfile(place.older, place.database)


def copy_home(place: Place) -> None:
    """Let the home be a copy of itself, as a synchronised folder is."""
    copy = place.home.with_name("copy")
    # What serves is not part of it; a socket cannot be copied.
    shutil.copytree(place.home, copy, ignore=shutil.ignore_patterns("run"))
    shutil.rmtree(place.home)
    copy.rename(place.home)


def take_away(place: Place) -> None:
    """Let the home be another account's, or closed, until somebody undoes it."""
    if os.geteuid() == 0:
        os.chown(place.home, NOBODY, NOBODY)
        place.put_back.append(lambda: os.chown(place.home, 0, 0))
    else:
        place.home.chmod(0o500)
        place.put_back.append(lambda: place.home.chmod(0o700))


def start_second(place: Place) -> None:
    """Let a second daemon start beside the first, which nothing leads to any more."""
    remove(place.home / "run")
    Rig(place.home).run("up")


def fill(place: Place) -> None:
    """Leave no room on the disk."""
    place.disk.fill()
    place.put_back.append(place.disk.free)


def keep_older(place: Place) -> None:
    """Take the copy that is put back later, whole, from a running store."""
    remove(place.older)
    with closing(sqlite3.connect(place.database)) as source, closing(sqlite3.connect(place.older)) as target:
        source.backup(target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """What happens, to which half, and when: while the daemon runs, after it was killed, or either.

    `may_offer_again`: of offers and proofs that were not synced only the line of the journal is left, and they are made
    again, as after a power cut.
    """

    name: str
    do: Callable[[Place], object]
    touches: Touched = Touched.NOTHING
    is_live: bool = False
    may_offer_again: bool = False


def both(name: str, do: Callable[[Place], object], touches: Touched, *, may_offer_again: bool = False) -> list[Mishap]:
    """The same while the daemon runs and after it was killed."""
    return [
        Mishap(
            name=f"{name}, {'while it runs' if live else 'when it is dead'}",
            do=do,
            touches=touches,
            is_live=live,
            may_offer_again=may_offer_again,
        )
        for live in (True, False)
    ]


def _database(place: Place) -> None:
    remove(place.database)


def _all_of_the_database(place: Place) -> None:
    for path in (place.database, place.log, place.index):
        remove(path)


def _files(place: Place) -> None:
    for path in (place.database, place.log, place.index):
        move(place, path)


def _days(place: Place) -> None:
    for day in place.days:
        remove(day)


def _days_moved(place: Place) -> None:
    for day in place.days:
        move(place, day)


def _day_cut(place: Place) -> None:
    for day in place.days[-1:]:
        cut(place, day)


def _no_room_at_all(place: Place) -> None:
    remove(place.home / "reserve")
    fill(place)


DATABASE: Final[Sequence[Mishap]] = (
    *both("database moved", lambda place: move(place, place.database), Touched.DATABASE),
    *both("database deleted", _database, Touched.DATABASE),
    *both("database, log and index deleted", _all_of_the_database, Touched.DATABASE),
    *both("database, log and index moved", _files, Touched.DATABASE),
    *both("database cut off", lambda place: cut(place, place.database), Touched.DATABASE),
    *both("page overwritten", overwrite, Touched.DATABASE),
    *both("log deleted", lambda place: remove(place.log), Touched.DATABASE, may_offer_again=True),
    *both("log moved", lambda place: move(place, place.log), Touched.DATABASE, may_offer_again=True),
    Mishap(
        name="log cut off",
        do=lambda place: cut(place, place.log),
        touches=Touched.DATABASE,
        may_offer_again=True,
    ),
    *both("index of the log deleted", lambda place: remove(place.index), Touched.DATABASE),
    Mishap(name="older copy put back", do=put_older, touches=Touched.DATABASE, may_offer_again=True),
)

JOURNAL: Final[Sequence[Mishap]] = (
    *both("journal deleted", _days, Touched.JOURNAL),
    *both("journal moved away for good", _days_moved, Touched.JOURNAL),
    *both("journal cut off", _day_cut, Touched.JOURNAL),
    *both("folder of the journal deleted", lambda place: remove(place.home / "journal"), Touched.JOURNAL),
)

NEITHER: Final[Sequence[Mishap]] = (
    Mishap(name="nothing else", do=lambda _place: None),
    *both("lock removed", lambda place: remove(place.home / "run" / "lock"), Touched.NOTHING),
    *both("run folder removed", lambda place: remove(place.home / "run"), Touched.NOTHING),
    *both("socket removed", lambda place: remove(place.home / "run" / "harken.sock"), Touched.NOTHING),
    *both("identity removed", lambda place: remove(place.home / "store.json"), Touched.NOTHING),
    *both("disk full", fill, Touched.NOTHING),
    *both("home taken away", take_away, Touched.NOTHING),
    Mishap(name="second daemon started", do=start_second, is_live=True),
    Mishap(name="home copied", do=copy_home),
    Mishap(name="home as the version before left it", do=lambda place: strip(place.home)),
    Mishap(name="reserve removed and disk full", do=_no_room_at_all),
)

MISHAPS: Final[Sequence[Mishap]] = (*DATABASE, *JOURNAL, *NEITHER)
