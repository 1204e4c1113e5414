"""One end of a copy of a store: the schema of a PostgreSQL, which is read or filled in one transaction.

The other end is a file: `sqlite/transfer.py`, which copies from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from psycopg.conninfo import conninfo_to_dict

from harken.errors import UserError
from harken.store.postgres.connection import (
    BEGIN_READ,
    HAS_VERSION,
    LOCK_SPACE,
    VERSION,
    PostgresTarget,
    ServerConnection,
    connect,
    migrations,
    prepare_schema,
    quoted,
    translated,
)
from harken.store.sql.transaction import SqlConnection
from harken.store.sqlite.transfer import ROWS_AT_ONCE, StoreRow, StoreTable, mark

NUMBERED: Final = "SELECT table_name FROM information_schema.columns WHERE table_schema = $1 AND is_identity = 'YES'"
CONTINUE: Final = "SELECT setval(pg_get_serial_sequence('{0}', 'n'), max(n)) FROM {0} HAVING max(n) IS NOT NULL"
# It may take long, and nobody else may write meanwhile. Whoever is killed loses the connection, and with it the lock.
PATIENCE: Final = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
LOCK: Final = f"SELECT pg_advisory_xact_lock({LOCK_SPACE}, hashtext($1))"


class PostgresEnd:
    """A schema of a PostgreSQL."""

    def __init__(self, connection: ServerConnection, target: PostgresTarget) -> None:
        self._connection = connection
        self.target = target

    @property
    def connection(self) -> SqlConnection:
        """What takes statements, those without values."""
        return self._connection

    def rows(self, select: str) -> Iterator[StoreRow]:
        """Yield what a statement reads."""
        with self._connection.cursor(name="rows") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(select)
            yield from cursor

    def fill(self, table: StoreTable, rows: Iterator[StoreRow]) -> None:
        """Let a table have these rows and no others."""
        self._connection.execute(f"TRUNCATE {table.name}")
        self._connection.execute(f"ALTER TABLE {table.name} DISABLE TRIGGER USER")
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {table.name} ({', '.join(table.columns)}) FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)
        self._connection.execute(f"ALTER TABLE {table.name} ENABLE TRIGGER USER")

    def finish(self) -> None:
        """Let the numbers that the server gives follow those that are there, and forget the words of other rows."""
        for (table,) in self._connection.execute(NUMBERED, (self.target.schema,)).fetchall():
            self._connection.execute(CONTINUE.format(table))
        self._connection.execute("TRUNCATE messages_text")

    def mark_here(self, moved_to: str) -> None:
        """Say where the store is, and commit."""
        mark(self.connection, moved_to)
        self.commit()

    def commit(self) -> None:
        """Commit what was done."""
        self._connection.execute("COMMIT")


@contextmanager
def reading_moment(target: PostgresTarget) -> Iterator[PostgresEnd]:
    """Read a store of which the schema is known as it is at one moment, while daemons go on."""
    with translated(), closing(connect(target)) as connection:
        connection.execute(connection.in_schema(BEGIN_READ), prepare=False)
        connection.execute(PATIENCE, prepare=False)
        refuse_schema(connection, target)
        yield PostgresEnd(connection, target)


@contextmanager
def keeping_writers_out(target: PostgresTarget, *, is_made: bool) -> Iterator[PostgresEnd]:
    """Open a store alone, in one transaction that the caller commits; `is_made`: made first where there is none."""
    with translated(), closing(connect(target)) as connection:
        connection.execute(connection.in_schema("BEGIN"), prepare=False)
        connection.execute(PATIENCE, prepare=False)
        connection.execute(LOCK, (target.schema,))
        if is_made:
            prepare_schema(connection, target)
        refuse_schema(connection, target)
        yield PostgresEnd(connection, target)


def refuse_schema(connection: ServerConnection, target: PostgresTarget) -> None:
    """Raise `UserError` where there is no store, or one of another version."""
    if connection.execute(HAS_VERSION, (target.schema,)).fetchone() is None:
        raise UserError(
            f"There is no store in the schema {quoted(target.schema)} of that database.",
            "See whether store.url and store.schema name it.",
        )
    [[found]] = connection.execute(VERSION).fetchall()
    newest = migrations()[-1][0]
    if found != newest:
        raise UserError(
            f"The database has schema {found}, this Harken supports {newest}.",
            "Let every machine have the same version of Harken, and start it once.",
        )


def place_of(target: PostgresTarget) -> str:
    """Return where a store is, without its password."""
    said = conninfo_to_dict(target.url)
    host, port = said.get("host") or "localhost", said.get("port")
    return f"in PostgreSQL, {said.get('dbname', '')} on {host}{f':{port}' if port else ''}, schema {target.schema}"
