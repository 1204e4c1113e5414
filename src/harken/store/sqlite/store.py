"""Opening the embedded store: one file, one connection that writes, an index of texts by FTS5."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from harken.clock import Clock
from harken.errors import HarkenError
from harken.model import Mailbox
from harken.store.contract.events import AfterCommit, BeforeCommit
from harken.store.contract.messages import Filter
from harken.store.files import DiskReserve, OpenFiles
from harken.store.sql.deliveries import withdraw
from harken.store.sql.messages import words_of
from harken.store.sql.offers import WaitingReaders
from harken.store.sql.store import SqlStore
from harken.store.sql.transaction import COLUMNS, WHERE, Readers, SqlConnection, SqlRows, Transaction, parameters
from harken.store.sql.writer import LocalChanges, Writer, nothing_after, nothing_before
from harken.store.sqlite.connection import (
    Connect,
    connect,
    files_of,
    is_full,
    moved,
    open_reader,
    open_writer,
    prepare_file,
    translate,
    translated,
)

ADD: Final = """
INSERT INTO messages_text (rowid, text, sender_name, channel)
SELECT n, text, sender_name, channel FROM messages WHERE n > ? AND n <= ? ORDER BY n
"""
REMOVE: Final = """
INSERT INTO messages_text (messages_text, rowid, text, sender_name, channel) VALUES ('delete', ?, ?, ?, ?)
"""
SEARCH: Final = f"""
SELECT {COLUMNS} FROM messages_text t JOIN messages m ON m.n = t.rowid
WHERE messages_text MATCH :query AND {WHERE} ORDER BY t.rowid DESC LIMIT :limit
"""


class SqliteDatabase:
    """The file and its one writing connection. Nothing is written when a file is not the one that was opened."""

    errors: type[Exception] = sqlite3.Error

    def __init__(self, connection: sqlite3.Connection, files: OpenFiles, *, may_use_loop: bool = False) -> None:
        self.connection = connection
        self.may_use_loop = may_use_loop
        self._files = files
        self._is_synced = True

    def begin(self, *, is_durable: bool) -> None:
        """Begin a transaction."""
        self._refuse_moved()
        if is_durable != self._is_synced:
            self.connection.execute("PRAGMA synchronous = FULL" if is_durable else "PRAGMA synchronous = NORMAL")
            self._is_synced = is_durable
        self.connection.execute("BEGIN IMMEDIATE")

    def commit(self, _grown: Collection[Mailbox]) -> None:
        """Commit; no other daemon has this file."""
        self.connection.execute("COMMIT")
        # A moment ago is not now: what went into a file that has no name any more is not accepted.
        self._refuse_moved()

    def roll_back(self) -> None:
        """Undo what is open."""
        # SQLite ends the transaction by itself on some errors (a full disk), not on others.
        if self.connection.in_transaction:
            with suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")

    def translate(self, error: Exception) -> HarkenError:
        """Return the error of ours."""
        return translate(error)

    def is_full(self, error: BaseException) -> bool:
        """Whether there was no room to write."""
        return is_full(error)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _refuse_moved(self) -> None:
        if (path := self._files.missing()) is not None:
            raise moved(path)


class FullTexts:
    """The index of texts by FTS5, asked newest first.

    Ranking by relevance over a common word costs seconds at a million messages; newest first costs microseconds and is
    what people look for in an inbox.
    """

    def add(self, tx: Transaction, after: int, up_to: int) -> None:
        """Make messages searchable."""
        # One statement: the texts need not come through here, where they would hold up whoever accepts more.
        tx.execute(ADD, (after, up_to))

    def remove(self, tx: Transaction, rows: Sequence[Sequence[Any]]) -> None:
        """Forget messages."""
        for row in rows:
            tx.execute(REMOVE, tuple(row))

    def find(self, connection: SqlConnection, words: Sequence[str], where: Filter, limit: int) -> SqlRows:
        """Return rows of messages that contain all the words."""
        query = as_query(words)
        if where.channel and (channel := words_of(where.channel)):
            # The filter alone would have to look at every message with a common word.
            query = f"({query}) AND channel : ({as_query(channel)})"
        return connection.execute(SEARCH, {**parameters(where), "query": query, "limit": limit})


def as_query(words: Sequence[str]) -> str:
    """Return an FTS5 query for all of some words, none of them an operator."""
    return " ".join('"' + word.replace('"', '""') + '"' for word in words)


@asynccontextmanager
async def open_store(
    path: Path,
    clock: Clock,
    *,
    after_commit: AfterCommit = nothing_after,
    before_commit: BeforeCommit = nothing_before,
    opener: Connect = connect,
    watched: Collection[Path] = (),
    reserve: DiskReserve | None = None,
    may_use_loop: bool = False,
) -> AsyncIterator[SqlStore]:
    """Open the store at `path`, creating it when there is none; close it with every write finished.

    On a full disk, what agents are given is still written into the `reserve`, if there is one, and new mail is refused.
    Nothing is written any more when one of its files, or of those that are `watched`, is not the one that was opened.
    Where it may use the event loop, quick jobs are committed there as long as the disk is quick.
    """
    changes = LocalChanges()
    with translated():
        await anyio.to_thread.run_sync(prepare_file, path)
        connection = await anyio.to_thread.run_sync(open_writer, path, opener)
        files = OpenFiles(*files_of(path), *watched)
        files.remember()
        waiting = WaitingReaders(withdraw)
        writer = Writer(
            SqliteDatabase(connection, files, may_use_loop=may_use_loop),
            clock,
            waiting,
            reserve=reserve,
            after_commit=after_commit,
            before_commit=before_commit,
            changes=changes,
        )
        readers = Readers(partial(open_reader, path), sqlite3.Error, translate)
        readers.start()
    writer.start()
    try:
        yield SqlStore(
            clock,
            writer=writer,
            readers=readers,
            changes=changes,
            waiting=waiting,
            texts=FullTexts(),
            measure=lambda _connection: _size_of(path),
        )
    finally:
        with anyio.CancelScope(shield=True):
            writer.refuse()
            await anyio.to_thread.run_sync(writer.join)
            readers.stop()


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError as exc:
        raise moved(path) from exc
