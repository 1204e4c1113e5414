"""The store's own state: whether it can be written, which one it is, how much is in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from harken.store.contract.health import StoreIdentity
from harken.store.sqlite.errors import moved
from harken.store.sqlite.identity import identity_of
from harken.store.sqlite.readers import Readers
from harken.store.sqlite.search import lag
from harken.store.sqlite.transaction import Transaction
from harken.store.sqlite.writer import Writer

TOUCH = "INSERT INTO progress (name, value) VALUES ('written', ?) ON CONFLICT (name) DO UPDATE SET value = value + 1"


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
