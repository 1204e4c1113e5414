"""The journal's file and a disk that takes only a part of what is written: each line once, in order, in the end."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harken.store.contract.events import Event
from harken.store.journal import Journal
from tests.loss.rig import journal_lines

MOMENT = datetime(2026, 1, 5, 9, tzinfo=UTC)


def event(number: int) -> Event:
    """An event of some size."""
    return Event(n=number, at=MOMENT, kind="test", data={"text": "x" * 100})


class MadeEvents:
    """The events of a store."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.rows = list(events)
        self.floor = 0

    async def record(self, kind: str, data: Mapping[str, object]) -> Event:
        """Add an event."""
        self.rows.append(Event(n=await self.last() + 1, at=self.rows[-1].at, kind=kind, data=data))
        return self.rows[-1]

    async def after(self, number: int, limit: int) -> list[Event]:
        """Return events with `n > number`, in order."""
        return [row for row in self.rows if row.n > number][:limit]

    async def own_after(self, number: int, limit: int) -> list[Event]:
        """Return the same: there is one daemon."""
        return await self.after(number, limit)

    async def last(self) -> int:
        """Return the highest event number."""
        return self.rows[-1].n if self.rows else self.floor

    async def continue_after(self, number: int) -> None:
        """Number the next event higher than this."""
        self.floor = number


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.anyio
@pytest.mark.parametrize("extra", [1, 200, 400, 500])
async def test_write_that_was_cut_short_is_not_repeated_in_part(tmp_path: Path, extra: int) -> None:
    """Whole lines of a write that failed half-way are on disk already: catching up must not write them twice."""
    journal = Journal(tmp_path / "journal")
    (tmp_path / "journal").mkdir()
    await journal.recover(MadeEvents([]))
    rows = MadeEvents([event(number) for number in range(1, 6)])
    journal.observe(rows.rows[:1])
    (file,) = (tmp_path / "journal").iterdir()
    with at_most(file.stat().st_size + extra):
        journal.observe(rows.rows[1:])
        assert journal.problem
        assert await journal.catch_up(rows) == 0
    assert await journal.catch_up(rows) == 4
    assert journal.problem == ""
    assert [line["n"] for line in journal_lines(tmp_path)] == [1, 2, 3, 4, 5]
    journal.close()


def moved(file: Path) -> None:
    """Move the file to an archive."""
    file.rename(file.with_name("archive"))


def deleted(file: Path) -> None:
    """Remove the file."""
    file.unlink()


def cut(file: Path) -> None:
    """Cut the file off in the middle of a line."""
    os.truncate(file, file.stat().st_size - 50)


def emptied(file: Path) -> None:
    """Leave nothing in the file."""
    os.truncate(file, 0)


def folder_deleted(file: Path) -> None:
    """Remove the folder with everything in it."""
    shutil.rmtree(file.parent)


@pytest.mark.anyio
@pytest.mark.parametrize("lose", [moved, deleted, cut, emptied, folder_deleted])
async def test_file_that_somebody_touched_is_written_again(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    """A journal that lacks lines is of no use when the database goes: it takes them from the store, in order.

    Whoever moved the file to an archive must not take the next lines with it either, unseen.
    """
    journal = Journal(tmp_path / "journal")
    (tmp_path / "journal").mkdir()
    await journal.recover(MadeEvents([]))
    rows = MadeEvents([event(number) for number in range(1, 6)])
    journal.observe(rows.rows[:3])
    (file,) = (tmp_path / "journal").iterdir()
    lose(file)
    journal.observe(rows.rows[3:])
    assert "moved, deleted or changed" in journal.problem
    await journal.catch_up(rows)
    assert journal.problem == ""
    assert [line["n"] for line in journal_lines(tmp_path)] == [1, 2, 3, 4, 5]
    if lose is moved:
        assert file.with_name("archive").read_bytes().count(b"\n") == 3
    journal.close()


@pytest.mark.anyio
@pytest.mark.parametrize("lose", [moved, deleted, cut, emptied, folder_deleted])
async def test_file_that_was_touched_before_the_next_look_is_written_again(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    """The name of the file is looked at a few times a second, not for each line; what is cut off is seen at once."""
    journal = Journal(tmp_path / "journal", look_seconds=3600)
    (tmp_path / "journal").mkdir()
    await journal.recover(MadeEvents([]))
    rows = MadeEvents([event(number) for number in range(1, 7)])
    journal.observe(rows.rows[:3])
    (file,) = (tmp_path / "journal").iterdir()
    lose(file)
    journal.observe(rows.rows[3:5])
    journal.observe(rows.rows[5:])
    while await journal.catch_up(rows) or journal.problem:
        pass
    assert [line["n"] for line in journal_lines(tmp_path)] == [1, 2, 3, 4, 5, 6]
    journal.close()


@pytest.mark.anyio
async def test_file_that_goes_while_nothing_happens_is_missed(tmp_path: Path) -> None:
    """The next event may be a day away, and the database may go before."""
    journal = Journal(tmp_path / "journal")
    (tmp_path / "journal").mkdir()
    rows = MadeEvents([event(1), event(2)])
    assert await journal.recover(rows) == 2
    (file,) = (tmp_path / "journal").iterdir()
    file.unlink()
    assert await journal.catch_up(rows) == 2
    assert (journal.problem, len(journal_lines(tmp_path))) == ("", 2)
    assert await journal.catch_up(rows) == 0
    journal.close()


@pytest.mark.anyio
async def test_older_database_goes_on_above_the_journal(tmp_path: Path) -> None:
    """A database restored from a backup knows fewer events: a number must not come to stand for two of them."""
    (tmp_path / "journal").mkdir()
    journal = Journal(tmp_path / "journal")
    journal.observe([event(number) for number in range(1, 6)])
    journal.close()
    rows = MadeEvents([event(1), event(2)])
    journal = Journal(tmp_path / "journal")
    assert await journal.recover(rows) == 0
    assert rows.floor == 5
    journal.observe([event(6)])
    assert [line["n"] for line in journal_lines(tmp_path)] == [1, 2, 3, 4, 5, 6]
    journal.close()


class SyncedFiles:
    """Notes what was synced, and how long it was then."""

    def __init__(self) -> None:
        self.sizes: list[tuple[str, int]] = []

    def __call__(self, file: int) -> None:
        """Sync a file."""
        path = Path(f"/proc/self/fd/{file}").readlink()
        if path.is_file():
            self.sizes.append((path.name, path.stat().st_size))
        os.fsync(file)


def test_lines_are_synced_when_asked_at_the_end_of_a_day_and_at_the_end(tmp_path: Path) -> None:
    """What recovery needs must be on disk soon; and a sync with nothing new would only hold up the store's."""
    synced = SyncedFiles()
    journal = Journal(tmp_path, sync=synced)
    first, second = tmp_path / "2026-01-05.jsonl", tmp_path / "2026-01-06.jsonl"
    journal.observe([event(1)])
    assert synced.sizes == []
    journal.sync()
    journal.sync()
    assert synced.sizes == [(first.name, first.stat().st_size)]
    journal.observe([event(2)])
    journal.observe([replace(event(3), at=MOMENT + timedelta(days=1))])
    assert synced.sizes[1:] == [(first.name, first.stat().st_size)]
    journal.close()
    assert synced.sizes[2:] == [(second.name, second.stat().st_size)]
