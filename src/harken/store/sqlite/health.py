"""Which store a file is: its identity is read while no process has it open, and raised by a restore or a recovery.

Looking changes nothing, also not the write-ahead log: what is found may be all that is left.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from harken.store.contract.health import StoreIdentity
from harken.store.identity import StoreTraces, read_identity
from harken.store.journal_reader import count_synced, find_end
from harken.store.sql.events import identity_of, last
from harken.store.sqlite.connection import connect, log_of, refuse_damaged, translated

HAS_IDENTITY: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'identity'"
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


def begin_epoch(database: Path) -> StoreIdentity:
    """Let a copy that is put to use be a later epoch of its store: it goes other ways from here."""
    with translated(), closing(connect(f"{database}")) as connection:
        connection.execute(RAISE)
        return identity_of(connection)


def _read(database: Path) -> tuple[StoreIdentity | None, int]:
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        has_one = connection.execute(HAS_IDENTITY).fetchone() is not None
        return identity_of(connection) if has_one else None, last(connection)
