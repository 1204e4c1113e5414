"""Copying a store from a file to PostgreSQL or back: every row of every table, then compared by number and hash.

The tables of both are equal, and which there are is read from the file. The other end is `postgres/transfer.py`.
Nothing is copied that can be made again: the index of texts, and what tells daemons that share a store of commits. A
copy is one transaction, so one that was cut short is not there. Which store goes where is decided above.
"""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from harken.errors import HarkenError, Unavailable
from harken.store.contract.health import StoreIdentity
from harken.store.sql.events import MOVED_TO, identity_of, last
from harken.store.sql.transaction import SqlConnection
from harken.store.sqlite import connection as sqlite

TABLES: Final = """
SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'messages_text%'
ORDER BY name
"""
ROWS_AT_ONCE: Final = 2_000
MARK: Final = "UPDATE identity SET moved_to = '{}'"
NOT_INDEXED: Final = "UPDATE progress SET value = 0 WHERE name = 'indexed'"
# What belonged to the one daemon of a file belongs to that of its home, among several; and the other way round.
HELD: Final = frozenset({"deliveries", "events", "approvals"})
CLAIMED: Final = frozenset({"deliveries", "outbox", "approvals"})
PRESENT: Final = "daemons"  # those that have this store open have not opened the copy
COUNTED: Final = ("messages", "deliveries", "mailboxes", "events", "tasks", "outbox", "actions", "runs")
_MODULUS: Final = 1 << 128

StoreRow: TypeAlias = Sequence[Any]
TransferProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with a table, how many of its rows were copied, and of how many."""


@dataclass(frozen=True, slots=True)
class StoreTable:
    """A table that is copied."""

    name: str
    columns: tuple[str, ...]

    @property
    def select(self) -> str:
        """The statement that reads it as it is."""
        return f"SELECT {', '.join(self.columns)} FROM {self.name}"

    def select_for(self, daemon: str) -> str:
        """Return the statement that reads it for a daemon among several, or for the only one, which has no name."""
        given, where = self.columns, " WHERE 1 = 0" if self.name == PRESENT else ""
        if daemon and self.name in HELD:
            holder = f"CASE daemon WHEN '' THEN '{_literal(daemon)}' ELSE daemon END"
            given = tuple(holder if name == "daemon" else name for name in given)
        elif not daemon and self.name in CLAIMED:
            given = tuple("''" if name == "daemon" else name for name in given)
        return f"SELECT {', '.join(given)} FROM {self.name}{where}"


@dataclass(frozen=True, slots=True)
class StoreContents:
    """What a store says of itself."""

    identity: StoreIdentity
    moved_to: str
    last_event: int
    counts: Mapping[str, int]

    @property
    def is_empty(self) -> bool:
        """Whether nothing ever happened in it."""
        return not (self.counts["messages"] or self.last_event)


@dataclass(slots=True)
class RowSum:
    """How many rows, and a hash of all of them, in whatever order they come."""

    count: int = 0
    hash: int = 0

    def over(self, rows: Iterable[StoreRow]) -> Iterator[StoreRow]:
        """Pass rows on, and count them."""
        for row in rows:
            self.count += 1
            digest = blake2b(msgspec.msgpack.encode(tuple(row)), digest_size=16).digest()
            self.hash = (self.hash + int.from_bytes(digest)) % _MODULUS
            yield row

    def over_all(self, rows: Iterable[StoreRow]) -> RowSum:
        """Count rows, and return the sum."""
        for _ in self.over(rows):
            pass
        return self


class TransferEnd(Protocol):
    """A store that rows are read from, or that they are written to, in an open transaction."""

    def rows(self, select: str) -> Iterator[StoreRow]:
        """Yield what a statement reads."""
        ...

    def fill(self, table: StoreTable, rows: Iterator[StoreRow]) -> None:
        """Let a table have these rows and no others."""
        ...

    def finish(self) -> None:
        """Let what follows from the rows follow from these."""
        ...

    @property
    def connection(self) -> SqlConnection:
        """What takes statements."""
        ...


def transfer(
    source: TransferEnd,
    target: TransferEnd,
    tables: Sequence[StoreTable],
    told: TransferProgress,
    *,
    daemon: str,
    moved_to: str,
) -> dict[str, RowSum]:
    """Copy every table and compare; return what each has. The caller commits.

    The copy is for a `daemon` among several, or for the only one, and it says where the store is meanwhile.
    """
    sums = {}
    for table in tables:
        [total] = source.connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()
        copied = RowSum()
        target.fill(table, _telling(copied.over(source.rows(table.select_for(daemon))), table, total, told))
        if RowSum().over_all(target.rows(table.select)) != copied:
            raise Unavailable(
                f"The rows of {table.name} are not the same after they were copied; nothing was changed.",
                "Try again; if it stays so, the disk or the server cannot be relied on.",
            )
        sums[table.name] = copied
    target.finish()
    target.connection.execute(NOT_INDEXED)
    mark(target.connection, moved_to)
    return sums


def _telling(rows: Iterator[StoreRow], table: StoreTable, total: int, told: TransferProgress) -> Iterator[StoreRow]:
    for number, row in enumerate(rows):
        if number % ROWS_AT_ONCE == 0:
            told(table.name, number, total)
        yield row


def mark(connection: SqlConnection, moved_to: str) -> None:
    """Say where the store is; empty: here."""
    connection.execute(MARK.format(_literal(moved_to)))


def _literal(text: str) -> str:
    return text.replace("'", "''")


def contents_of(connection: SqlConnection) -> StoreContents:
    """Return what a store says of itself."""
    counts = {name: int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]) for name in COUNTED}
    [moved_to] = connection.execute(MOVED_TO).fetchone()
    return StoreContents(identity_of(connection), moved_to, last(connection), counts)


class SqliteEnd:
    """A file of SQLite."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def tables(self) -> list[StoreTable]:
        """Return what is copied."""
        names = [str(row[0]) for row in self.connection.execute(TABLES)]
        # Generated columns are not among these.
        return [
            StoreTable(name, tuple(row[1] for row in self.connection.execute(f"PRAGMA table_info({name})")))
            for name in names
        ]

    def rows(self, select: str) -> Iterator[StoreRow]:
        """Yield what a statement reads."""
        return iter(self.connection.execute(select))

    def fill(self, table: StoreTable, rows: Iterator[StoreRow]) -> None:
        """Let a table have these rows and no others."""
        marks = ", ".join("?" * len(table.columns))
        self.connection.execute(f"DELETE FROM {table.name}")
        insert = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})"
        while some := list(islice(rows, ROWS_AT_ONCE)):
            self.connection.executemany(insert, some)

    def finish(self) -> None:
        """Leave the rest to the daemon: the file is new."""


@contextmanager
def reading_file(database: Path) -> Iterator[SqliteEnd]:
    """Read a file that no daemon has open; nothing is changed."""
    with sqlite.translated(), closing(sqlite.connect(f"{database}")) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        yield SqliteEnd(connection)


def contents_of_file(database: Path) -> StoreContents | None:
    """Return what the store in a file says of itself; None where there is none. One of another version is refused."""
    if not database.exists():
        return None
    sqlite.refuse_other_schema(database)
    with reading_file(database) as end:
        return contents_of(end.connection)


def is_unused(database: Path) -> bool:
    """Whether there is a store in a file in which nothing ever happened."""
    try:
        found = contents_of_file(database)
    except HarkenError:
        return False
    return found is not None and found.is_empty


@contextmanager
def writing_file(database: Path) -> Iterator[SqliteEnd]:
    """Make a new file, and write into it without its triggers; it is there as a whole when the context has ended."""
    for leftover in sqlite.files_of(database):
        leftover.unlink(missing_ok=True)
    with sqlite.translated():
        sqlite.prepare_file(database)
        with closing(sqlite.connect(f"{database}")) as connection:
            # Nothing of it is of use before it is complete.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            yield SqliteEnd(connection)
            for _, statement in triggers:
                connection.execute(statement)
            connection.execute("COMMIT")


def mark_file(database: Path, moved_to: str) -> None:
    """Say in a file where the store is."""
    with sqlite.translated(), closing(sqlite.connect(f"{database}")) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        mark(connection, moved_to)


def place_of_file(database: Path) -> str:
    """Return where a store is."""
    return f"in {database} on {platform.node()}"
