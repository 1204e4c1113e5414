"""The store's own state: whether it can be written, which one it is, how much is in it.

The identity is also read from a file that no process has open, and raised by a restore or a recovery. Looking changes
nothing, also not the write-ahead log: what is found may be all that is left.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from harken.store.contract.health import StoreIdentity
from harken.store.identity import StoreTraces, read_identity
from harken.store.journal_reader import count_synced, find_end
from harken.store.sqlite.connection import connect, log_of, refuse_damaged
from harken.store.sqlite.events import last
from harken.store.sqlite.messages import lag
from harken.store.sqlite.transaction import Readers, Transaction, moved, translated
from harken.store.sqlite.writer import Writer

TOUCH = """
INSERT INTO progress (name, value) VALUES ('written', ?) ON CONFLICT (name) DO UPDATE SET value = progress.value + 1
"""


class SqliteHealth:
    """The contract of `HealthStore`."""

    def __init__(self, writer: Writer, readers: Readers, path: Path) -> None:
        self._writer = writer
        self._readers = readers
        self._path = path

    async def check_writable(self) -> None:
        """Write one row."""
        # Not durable: a full disk refuses the write itself, and the sync would cost whoever writes meanwhile.
        await self._writer.run(_touch, is_durable=False, needs_room=True)

    async def identity(self) -> StoreIdentity:
        """Return which store this is."""
        return await self._readers.run(identity_of)

    async def stats(self) -> Mapping[str, int]:
        """Return counts for people."""
        return await self._readers.run(lambda db: stats(db, self._path))


def _touch(tx: Transaction) -> None:
    tx.execute(TOUCH, (1,))


def stats(connection: sqlite3.Connection, path: Path) -> dict[str, int]:
    """Return counts for people."""
    tables = ("messages", "deliveries", "mailboxes", "events", "actions", "runs")
    counts = {name: int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]) for name in tables}
    try:
        size = path.stat().st_size
    except FileNotFoundError as exc:
        raise moved(path) from exc
    return {**counts, "bytes": size, "not_indexed": lag(connection)}


HAS_IDENTITY: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'identity'"
IDENTITY: Final = "SELECT id, epoch FROM identity"
RAISE: Final = "UPDATE identity SET epoch = epoch + 1"


def look(database: Path, journal: Path, identity_file: Path) -> StoreTraces:
    """Return what lies in a home; raises `UserError` for a database that is damaged."""
    with translated():
        end = find_end(journal)
        home = read_identity(identity_file)
        log = log_of(database)
        has_log = log.exists() and log.stat().st_size > 0
        if not database.exists():
            return StoreTraces(
                has_database=False, has_log=has_log, home=home, journal=end.store, journal_end=end.number
            )
        refuse_damaged(database)
        own, newest = _read(database)
        events, messages = count_synced(journal, newest) if end.number > newest else (0, 0)
    return StoreTraces(
        has_database=True,
        has_log=has_log,
        database=own,
        home=home,
        journal=end.store,
        journal_end=end.number,
        unknown_events=events,
        unknown_messages=messages,
    )


def identity_of(connection: sqlite3.Connection) -> StoreIdentity:
    """Return the identity of an open database."""
    name, epoch = connection.execute(IDENTITY).fetchone()
    return StoreIdentity(name, epoch)


def begin_epoch(database: Path) -> StoreIdentity:
    """Let a copy that is put to use be a later epoch of its store: it goes other ways from here."""
    with translated(), closing(connect(f"{database}")) as connection:
        connection.execute(RAISE)
        return identity_of(connection)


def _read(database: Path) -> tuple[StoreIdentity | None, int]:
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        has_one = connection.execute(HAS_IDENTITY).fetchone() is not None
        return identity_of(connection) if has_one else None, last(connection)
