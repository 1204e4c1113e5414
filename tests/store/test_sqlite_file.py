"""What the SQLite store does to its file, and what it does when the file or the disk is not as it should be."""

from __future__ import annotations

import os
import resource
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from harken.errors import Unavailable, UserError
from harken.model import INBOX, DeliveryState
from harken.store.contract.deliveries import OfferFilter
from harken.store.contract.messages import Checkpoint
from harken.store.files import DiskReserve
from harken.store.sqlite import open_store
from harken.store.sqlite.connection import connect, migrations
from harken.testing import FakeClock
from tests.contracts.store_suite import (
    AGENT,
    EVERYTHING,
    READER,
    WAIT_SECONDS,
    fill,
    new_message,
    offer,
    offered_texts,
    texts,
)

PERMISSION_CHILD = Path(__file__).with_name("permission_child.py")
ROOT = Path(__file__).parents[2]

Damage = Callable[[bytes], bytes]


class FailingConnection(sqlite3.Connection):
    """A connection whose disk fails once, at a chosen statement."""

    countdown = 0

    def execute(self, sql: str, parameters: sqlite3._Parameters = (), /) -> sqlite3.Cursor:
        """Run a statement, or fail in its place."""
        if self.countdown and sql != "ROLLBACK":
            self.countdown -= 1
            if not self.countdown:
                raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, parameters)


def open_failing(path: str) -> FailingConnection:
    """Open a connection that fails when told to."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=FailingConnection)


@contextmanager
def file_size_limit(max_bytes: int) -> Iterator[None]:
    """Let every write beyond a size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents(path: Path) -> bytes:
    """Return the bytes of a file."""
    return path.read_bytes()


def rewrite(path: Path, change: Damage) -> None:
    """Change the bytes of a file."""
    path.write_bytes(change(path.read_bytes()))


def file_modes(folder: Path) -> dict[str, int]:
    """Return who may do what with each file."""
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def largest_file(folder: Path) -> int:
    """Return the size of the largest file."""
    return max(file.stat().st_size for file in folder.iterdir())


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A closed store with a few messages, large enough to have several pages."""
    path = tmp_path / "harken.db"
    async with open_store(path, FakeClock()) as store:
        await fill(store, "one", "two" * 5000, "three")
    return path


async def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    """Mail is private, whatever the umask of whoever started the daemon."""
    before = os.umask(0)
    try:
        async with open_store(tmp_path / "harken.db", FakeClock()) as store:
            await fill(store, "one")
            modes = file_modes(tmp_path)
    finally:
        os.umask(before)
    assert modes == {"harken.db": 0o600, "harken.db-wal": 0o600, "harken.db-shm": 0o600}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda _: b"", id="zero bytes"),
        pytest.param(lambda whole: whole[:50], id="half a header"),
        pytest.param(lambda whole: whole[:4096], id="one page"),
        pytest.param(lambda whole: whole[: len(whole) // 2], id="half"),
        pytest.param(lambda whole: whole[:-1], id="one byte short"),
        pytest.param(lambda whole: b"not a database\n" * (len(whole) // 15), id="text"),
        pytest.param(lambda whole: whole[:16] + b"\xff" * (len(whole) - 16), id="garbage behind the first bytes"),
        pytest.param(lambda whole: whole[:100] + b"\xff" * (len(whole) - 100), id="garbage behind the header"),
    ],
)
async def test_damaged_file_is_refused_and_left_alone(path: Path, damage: Damage) -> None:
    """Whoever repairs or restores needs the file as it was; starting over would hide the loss."""
    rewrite(path, damage)
    before = contents(path)
    with pytest.raises(UserError) as caught:
        async with open_store(path, FakeClock()) as store:
            await texts(store)
    assert caught.value.hint
    assert contents(path) == before


async def test_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    """An older Harken that writes into a newer database would break it for good."""
    newest = migrations()[-1][0]
    with closing(connect(str(path))) as connection:
        connection.execute(f"PRAGMA user_version = {newest + 1}")
    before = contents(path)
    with pytest.raises(UserError, match=str(newest + 1)):
        async with open_store(path, FakeClock()):
            pass
    assert contents(path) == before


@pytest.mark.parametrize("version", [number for number, _ in migrations()])
async def test_every_earlier_schema_becomes_the_newest(tmp_path: Path, version: int) -> None:
    """People skip releases: from wherever they come, the result must equal a database made today."""
    old, fresh = tmp_path / "old.db", tmp_path / "fresh.db"
    with closing(connect(str(old))) as connection:
        for number, script in migrations():
            if number <= version:
                connection.executescript(script)
        connection.execute(f"PRAGMA user_version = {version}")
    for path in (old, fresh):
        async with open_store(path, FakeClock()) as store:
            await fill(store, "works")
    assert schema(old) == schema(fresh)
    assert len(schema(fresh)) > 1


def schema(path: Path) -> list[tuple[str, ...]]:
    """Return everything that is declared in a database, and its version."""
    with closing(connect(str(path))) as connection:
        declared = connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master ORDER BY 1, 2")
        return [*declared.fetchall(), (str(connection.execute("PRAGMA user_version").fetchone()[0]),)]


def test_migrations_are_numbered_without_gaps() -> None:
    """A number that is missing or used twice would be skipped on some machines."""
    numbers = [number for number, _ in migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_interrupted_creation_is_begun_anew(tmp_path: Path) -> None:
    """A crash in the very first second must not need a person."""
    for leftover in ("", "-journal", "-wal", "-shm"):
        (tmp_path / f"harken.db.new{leftover}").write_bytes(b"left over " * 1000)
    async with open_store(tmp_path / "harken.db", FakeClock()) as store:
        await fill(store, "one")
    async with open_store(tmp_path / "harken.db", FakeClock()) as store:
        assert await texts(store) == ["one"]


async def test_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    """A mistake in the configuration is told in our words."""
    with pytest.raises((UserError, Unavailable)):
        async with open_store(tmp_path, FakeClock()):
            pass


@pytest.mark.parametrize("name", ["new.db", "harken.db"])
async def test_folder_that_cannot_be_written_is_unavailable(path: Path, name: str) -> None:
    """Wrong permissions are mended outside of Harken, and are no damage of the database."""
    command = [sys.executable, str(PERMISSION_CHILD), name, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with anyio.fail_after(WAIT_SECONDS):
        done = await anyio.run_process(command, check=False, env=environment)
    assert (done.returncode, done.stdout.decode()) == (0, "unavailable\n"), done.stderr.decode()


async def test_full_database_refuses_and_recovers(tmp_path: Path) -> None:
    """What does not fit is not accepted, whole; what was accepted stays; with space again, writing goes on."""
    opened = list[sqlite3.Connection]()

    def opener(path: str) -> sqlite3.Connection:
        opened.append(connect(path))
        return opened[0]

    async with open_store(tmp_path / "harken.db", FakeClock(), opener=opener) as store:
        await fill(store, "before")
        pages = opened[0].execute("PRAGMA page_count").fetchone()[0]
        opened[0].execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(Unavailable) as caught:
            await store.messages.append(
                [new_message("small"), new_message("x" * 100_000)], Checkpoint("teams", "chat", "p")
            )
        assert caught.value.retry_after > 0
        assert await texts(store) == ["before"]
        assert await store.checkpoints.get("teams", "chat") == ""
        opened[0].execute("PRAGMA max_page_count = 1000000")
        [appended] = await store.messages.append([new_message("after")])
        assert (appended.message.seq, await store.events.last()) == (2, 2)


class FullDisk(sqlite3.Connection):
    """A connection with whose next commit the disk is full."""

    is_full = False

    def execute(self, sql: str, parameters: sqlite3._Parameters = (), /) -> sqlite3.Cursor:
        """Run a statement, or find no room for it."""
        if self.is_full and sql == "COMMIT":
            self.is_full = False
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        return super().execute(sql, parameters)


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_offer_that_is_made_in_the_reserve_stands(tmp_path: Path, *, is_waiting: bool) -> None:
    """Withdrawn, it would come again without the mark, and a call that follows would prove nothing."""
    opened, clock = list[FullDisk](), FakeClock()

    def opener(path: str) -> FullDisk:
        opened.append(sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=FullDisk))
        return opened[-1]

    reserve = DiskReserve(tmp_path / "reserve", 1_000)
    reserve.begin()
    async with open_store(tmp_path / "harken.db", clock, opener=opener, reserve=reserve) as store:
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        await fill(store, "hello")
        opened[0].is_full = True
        if is_waiting:
            given = await store.deliveries.offer_when_ready(
                READER,
                10,
                surface="wait",
                carrier="call-1",
                lease=timedelta(minutes=1),
                rank=lambda: 0.0,
                where=OfferFilter,
                seconds=WAIT_SECONDS,
            )
            offers = list(given.whole)
        else:
            offers = await offer(store, clock)
        assert (offered_texts(offers), reserve.is_used) == (["hello"], True)
        [seen] = await store.deliveries.prove([each.delivery_id for each in offers], "later call")
        assert seen.state is DeliveryState.SEEN


async def test_failing_write_to_the_disk_refuses_and_recovers(path: Path) -> None:
    """The commit itself may fail; then nothing was accepted, and every caller of that commit is told."""
    refused, begun = list[int](), anyio.Event()

    async with open_store(path, FakeClock()) as store:
        await fill(store, "before")
        last = await store.events.last()
        used = largest_file(path.parent)

        async def append(number: int) -> None:
            begun.set()
            with pytest.raises(Unavailable):
                await store.messages.append([new_message("y" * 200_000)], Checkpoint("teams", "chat", str(number)))
            refused.append(number)

        with anyio.fail_after(WAIT_SECONDS), file_size_limit(used + 50_000):
            async with anyio.create_task_group() as group:
                for number in range(5):
                    group.start_soon(append, number)
        assert begun.is_set()
        assert len(refused) == 5
        assert await store.events.last() == last
        assert await store.checkpoints.get("teams", "chat") == ""
        [appended] = await store.messages.append([new_message("after")])
        assert appended.message.seq == 5
    async with open_store(path, FakeClock()) as store:
        assert (await texts(store))[3:] == ["before", "after"]


async def test_transaction_is_whole_whichever_statement_fails(tmp_path: Path) -> None:
    """There is no statement after which half of a transaction could stay."""
    connections = list[FailingConnection]()

    def opener(path: str) -> FailingConnection:
        connections.append(open_failing(path))
        return connections[0]

    failures = 0
    async with open_store(tmp_path / "harken.db", FakeClock(), opener=opener) as store:
        await store.deliveries.enroll(AGENT, INBOX, FakeClock().now())
        for statement in range(1, 100):
            before = (
                await store.messages.page(EVERYTHING, 1000),
                await store.events.last(),
                await store.checkpoints.get("s", "f"),
            )
            connections[0].countdown = statement
            batch = [new_message("a", key=b"%d" % statement), new_message("b")]
            try:
                await store.messages.append(batch, Checkpoint("s", "f", str(statement)), dropped=1)
            except Unavailable:
                failures += 1
                after = (
                    await store.messages.page(EVERYTHING, 1000),
                    await store.events.last(),
                    await store.checkpoints.get("s", "f"),
                )
                assert after == before
                continue
            break
        connections[0].countdown = 0
        assert [message.seq for message in await store.messages.page(EVERYTHING, 10)] == [1, 2]
    assert failures >= 8, "the failures were not in the middle of anything"


async def test_store_that_does_not_open_leaves_no_connection_open(tmp_path: Path) -> None:
    """Opening is tried again and again while a disk fails: each try would keep the file, and its locks."""
    opened: list[FailingConnection] = []

    def opener(path: str) -> FailingConnection:
        opened.append(open_failing(path))
        opened[-1].countdown = 2
        return opened[-1]

    with pytest.raises(Unavailable):
        async with open_store(tmp_path / "harken.db", FakeClock(), opener=opener):
            pass
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")
