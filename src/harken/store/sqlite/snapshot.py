"""Copies of the database file: taken while a daemon writes to it, and looked at before one is used.

A copy is one consistent moment: it is read inside a single read transaction, which a writer in another process neither
waits for nor disturbs. It opens files and nothing else; what is packed around a copy is decided above, and what a copy
must not do again is held back by `restore_guard`.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from harken.errors import UserError
from harken.store.sqlite.connection import connect, migrations
from harken.store.sqlite.errors import damaged, translated
from harken.store.sqlite.events import last

PAGES_AT_ONCE: Final = 2_000
MOST_FAULTS: Final = 1
SCHEMA: Final = "SELECT type, name, sql FROM sqlite_master"
COMMENT: Final = re.compile(r"--[^\n]*")
TEXT_PARTS: Final = "messages_text_"
OWN_PARTS: Final = ("sqlite_autoindex_", "sqlite_stat")  # SQLite's, which nobody else can make

CopyProgress = Callable[[int, int], None]
"""Called with how many pages are still to be copied, and of how many."""


def take(database: Path, target: Path, told: CopyProgress = lambda _left, _total: None) -> int:
    """Copy a database into a new private file, and return the number of the last event in it."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with translated(), closing(connect(f"{database}")) as source, closing(connect(f"{target}")) as copy:
        # The copy is of no use before it is complete: nothing of it has to survive a crash.
        copy.execute("PRAGMA synchronous = OFF")
        # From here on the source stands still for us: else the copy would begin anew with every write of others.
        source.execute("BEGIN")
        number = last(source)
        source.backup(copy, pages=PAGES_AT_ONCE, progress=lambda _status, left, total: told(left, total))
        source.execute("COMMIT")
        # One file without a log beside it; whoever opens it to write turns the log on again.
        copy.execute("PRAGMA journal_mode = DELETE")
    return number


def examine(database: Path) -> int:
    """Return the schema of a database that can be used by this Harken; raises `UserError` for any other."""
    newest = migrations()[-1][0]
    with translated(), closing(connect(f"{database}")) as connection:
        connection.execute("PRAGMA query_only = ON")
        try:
            [[said]] = connection.execute(f"PRAGMA integrity_check({MOST_FAULTS})").fetchall()
            schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.DatabaseError as exc:
            raise damaged(str(exc)) from exc
    if said != "ok":
        raise damaged(str(said))
    if not 0 < schema <= newest:
        raise UserError(
            f"The database has schema {schema}, this Harken knows 1 to {newest}.", "Use the version that wrote it."
        )
    return schema


def refuse_foreign(database: Path) -> None:
    """Raise `UserError` for a copy from elsewhere whose schema is not as ours is: a trigger would act in our name.

    Nothing of what the copy holds is looked at before. One of a version that is not known is left to `examine`.
    """
    with translated(), closing(connect(f"{database}")) as connection, closing(connect(":memory:")) as ours:
        connection.execute("PRAGMA trusted_schema = OFF")
        try:
            schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
            found = _statements(connection)
        except sqlite3.DatabaseError as exc:
            raise damaged(str(exc)) from exc
        known = dict(migrations())
        if schema not in known:
            return
        for number, script in known.items():
            if number <= schema:
                ours.executescript(script)
        if found != _statements(ours):
            raise UserError(
                "The database in it is not as Harken makes it: it has triggers, tables or indexes of its own.",
                "Take a backup that you made yourself; nothing was changed.",
            )


def _statements(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    """Return what a schema holds: its kinds, names and statements, however these are laid out."""
    rows = [(str(kind), str(name), str(sql or "")) for kind, name, sql in connection.execute(SCHEMA)]
    return frozenset(
        # The parts of an index for texts are SQLite's own, and which words make them is its business.
        (kind, name, "" if kind == "table" and name.startswith(TEXT_PARTS) else " ".join(COMMENT.sub("", sql).split()))
        for kind, name, sql in rows
        if not (kind in ("table", "index") and name.startswith(OWN_PARTS))
    )


def last_event(database: Path) -> int:
    """Return the number of the last event in a database."""
    with translated(), closing(connect(f"{database}")) as connection:
        return last(connection)
