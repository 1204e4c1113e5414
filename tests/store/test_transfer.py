"""A store comes to the other backend whole, whatever is in it and wherever a move is cut short."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from harken.config.home import Home, ensure
from harken.errors import Conflict, UserError
from harken.setup.store import COPIED, MARKED, OPENED, move
from harken.store.contract.messages import Filter
from harken.store.identity import refusal
from harken.store.postgres.connection import PostgresTarget, connect
from harken.store.postgres.store import open_store as open_schema
from harken.store.sqlite import open_store
from harken.store.sqlite.connection import prepare_file
from harken.store.sqlite.snapshot import look
from harken.store.sqlite.transfer import SqliteEnd
from harken.testing import FakeClock
from tests.contracts.store_suite import LEASE_SECONDS, READER, fill, new_message, texts
from tests.store.conftest import Storyteller
from tests.store.move_child import moving
from tests.store.postgres_server import SchemaPool, fresh, schemas

__all__ = ["fresh", "schemas"]  # fixtures

KILLED = -9
INSERT = "INSERT INTO {} VALUES ({})"
ROWS = 5
HOSTILE = (
    "",
    "NUL \x00 and \U0010ffff and \U0010ffff0",
    "'; -- \\u0000 \\N \t\n\\.",
    "Ü\u202e\U0001f600",
    "x" * 65_536,
)
ALONE = {"identity", "rule_state"}  # one row
ENDS = ("channels", "messages", "tasks", COPIED, MARKED, OPENED)
MANY, AT_ONCE = 100_000, 500

Contents = dict[str, list[tuple[object, ...]]]


def fill_every_table(database: Path, rows: int = ROWS) -> None:
    """Let each table have rows with everything that its columns can hold, also the tables that come later."""
    prepare_file(database)
    with closing(sqlite3.connect(database)) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        for table in SqliteEnd(connection).tables():
            kinds = {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({table.name})")}
            marks = ", ".join("?" * len(kinds))
            for number in range(0 if table.name in ALONE else rows):
                values = [_value(kind, number) for kind in kinds.values()]
                connection.execute(INSERT.format(table.name, marks), values)
        connection.commit()


def _value(kind: str, number: int) -> object:
    if kind == "INTEGER":
        return (1 << 53) + number
    return bytes([0, number % 256, number >> 8]) if kind == "BLOB" else f"{number} {HOSTILE[number % len(HOSTILE)]}"


def contents(database: Path) -> Contents:
    """Return the rows of every table, but for where the store is and how far it was indexed."""
    with closing(sqlite3.connect(database)) as connection:
        found = {
            table.name: sorted(connection.execute(table.select_for("")).fetchall(), key=repr)
            for table in SqliteEnd(connection).tables()
        }
    found["identity"] = [row[:3] for row in found["identity"]]
    found["progress"] = [row for row in found["progress"] if row[0] != "indexed"]
    return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home without anything."""
    home = Home(tmp_path / "home")
    ensure(home)
    home.daemon_id_file.write_text("d1")
    return home


@pytest.fixture
def target(fresh: SchemaPool, tmp_path: Path) -> Iterator[PostgresTarget]:
    """A schema that is not there yet."""
    target = replace(fresh.target_of(tmp_path), schema=f"{fresh.target_of(tmp_path).schema}_moved")
    yield target
    with closing(connect(target)) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {target.schema} CASCADE")


def move_out(home: Home, target: PostgresTarget) -> None:
    """Move the store of a home into PostgreSQL."""
    move(moving(home.path, target, is_to_file=False))


def move_back(home: Home, target: PostgresTarget) -> None:
    """Move it into the home."""
    move(moving(home.path, target, is_to_file=True))


@pytest.mark.parametrize("rows", [0, ROWS])
def test_every_row_of_every_table_comes_there_and_back(home: Home, target: PostgresTarget, rows: int) -> None:
    """What a move leaves behind is lost as soon as the old store is removed."""
    fill_every_table(home.database, rows)
    before = contents(home.database)
    move_out(home, target)
    home.database.unlink()
    move_back(home, target)
    assert contents(home.database) == before


async def test_a_store_goes_on_where_it_was(home: Home, target: PostgresTarget) -> None:
    """Numbers go on, what was read stays read, words are found, and no daemon opens the copy that was left."""
    clock = FakeClock()
    until = clock.now() + timedelta(seconds=LEASE_SECONDS)
    async with open_store(home.database, clock) as store:
        await fill(store, "one", "two")
        identity = await store.health.identity()
        await store.deliveries.offer(READER, 1, surface="pull", carrier="1", lease_until=until)
        await store.daemons.report(machine="m", version="1", started_at=clock.now(), sessions="", gone_after=None)
    move_out(home, target)
    async with open_schema(target, clock, daemon="d1") as store:
        assert await store.health.identity() == identity
        assert not await store.daemons.list()  # none has opened this one yet
        # What was on its way to a session of this home is offered again when that is gone.
        assert await store.deliveries.release_except(()) == 1
        assert [each.message.seq for each in await store.messages.append([new_message("three")])] == [3]
        while await store.messages.index(100):
            pass
        assert [each.text for each in await store.messages.search("two", Filter(), 5)] == ["two"]
    with pytest.raises(UserError, match="not in use"):
        raise refusal(look(home.database, home.journal_dir, home.identity_file)) or AssertionError
    move_back(home, target)
    async with open_store(home.database, clock) as store:
        assert await texts(store) == ["one", "two", "three"]
    with pytest.raises(UserError, match="not in use"):
        async with open_schema(target, clock, daemon="d1"):
            pass


async def fill_many(home: Home) -> None:
    """Let a store have many messages, each read by nobody."""
    async with open_store(home.database, FakeClock()) as store:
        for start in range(0, MANY, AT_ONCE):
            await fill(store, *(f"message {number}" for number in range(start, start + AT_ONCE)))


@pytest.mark.soak
async def test_a_hundred_thousand_messages_are_moved_there_and_back(
    home: Home, target: PostgresTarget, storyteller: Storyteller
) -> None:
    """A store is moved when it has become big: it may take minutes, and a machine is turned off in less."""
    await fill_many(home)
    before = contents(home.database)
    for direction, again in (("postgres", move_out), ("file", move_back)):
        code, _ = storyteller("move", home.path, target.url, target.schema, direction, f"messages {MANY // 2}")
        assert code == KILLED
        again(home, target)
    assert contents(home.database)["messages"] == before["messages"]


@pytest.mark.parametrize(("direction", "end"), [*product(("postgres", "file"), ENDS)])
def test_a_move_that_is_killed_is_finished_by_the_next(
    home: Home, target: PostgresTarget, storyteller: Storyteller, direction: str, end: str
) -> None:
    """Until the copy is whole the old store is as it was; after that one of the two is the store, never both."""
    fill_every_table(home.database)
    if direction == "file":
        move_out(home, target)
    before = contents(home.database)
    code, _ = storyteller("move", home.path, target.url, target.schema, direction, end)
    assert code == KILLED
    is_marked = end in {MARKED, OPENED}
    if direction == "postgres":
        assert contents(home.database) == before
        assert bool(look(home.database, home.journal_dir, home.identity_file).moved_to) is is_marked
    else:
        with closing(connect(target)) as connection:
            assert bool(connection.execute("SELECT moved_to FROM identity").fetchall()[0][0]) is is_marked
    (move_out if direction == "postgres" else move_back)(home, target)
    if direction == "postgres":
        move_back(home, target)
    assert contents(home.database) == before or direction == "postgres"


async def test_a_store_of_others_is_not_written_over(home: Home, target: PostgresTarget, tmp_path: Path) -> None:
    """Two people who name the same schema by mistake would otherwise have one inbox less."""
    clock, other = FakeClock(), Home(tmp_path / "other")
    ensure(other)
    for each, text in ((home, "mine"), (other, "theirs")):
        async with open_store(each.database, clock) as store:
            await fill(store, text)
    move_out(other, target)
    with pytest.raises(Conflict, match="There is a store"):
        move_out(home, target)
    async with open_schema(target, clock, daemon="d1") as store:
        assert await texts(store) == ["theirs"]
    assert not look(home.database, home.journal_dir, home.identity_file).moved_to
    # The file in the home is another store's, too.
    with pytest.raises(Conflict, match="There is a store"):
        move_back(home, target)


async def test_a_daemon_on_another_machine_writes_no_more_into_what_was_moved(
    home: Home, target: PostgresTarget
) -> None:
    """It need not know of the move: what it stored there would never be seen."""
    prepare_file(home.database)
    move_out(home, target)
    async with open_schema(target, FakeClock(), daemon="d2") as store:
        await fill(store, "before")
        move_back(home, target)
        with pytest.raises(UserError, match="not in use: the store is in"):
            await fill(store, "after")


@pytest.mark.parametrize("change", [1, -1])
def test_a_store_of_another_version_is_refused(home: Home, target: PostgresTarget, change: int) -> None:
    """What it has that this version does not know would be left behind."""
    prepare_file(home.database)
    move_out(home, target)
    with closing(connect(target)) as connection:
        connection.execute("UPDATE schema_version SET version = version + $1", (change,))
    with pytest.raises(UserError, match="has schema"):
        move_back(home, target)
    with closing(sqlite3.connect(home.database)) as database:
        [[version]] = database.execute("PRAGMA user_version")
        database.execute(f"PRAGMA user_version = {version + change}")
    with pytest.raises(UserError, match="has schema"):
        move_out(home, target)
