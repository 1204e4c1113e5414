"""The shared store: one writer per daemon, one of them at a time by a lock of the server, and what tells the others.

A notification is a hint: what was sent while a daemon did not listen is lost. So every commit that lets mailboxes grow
also notes its number with them, and a listener reads on from the last number that it knows, whenever it has connected
and every few seconds. Where notifications do not come through, as behind a pooler, it reads on every second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
import psycopg

from harken.clock import Clock
from harken.errors import HarkenError
from harken.model import Mailbox
from harken.store.contract.events import AfterCommit, BeforeCommit
from harken.store.contract.messages import Filter
from harken.store.identity import not_in_use
from harken.store.postgres.connection import (
    BEGIN_READ,
    LOCK_SPACE,
    SIZE,
    PostgresConnection,
    PostgresTarget,
    ServerConnection,
    as_literal,
    connect,
    migrations,
    quoted,
    too_new,
    translate,
    translated,
)
from harken.store.sql.deliveries import withdraw
from harken.store.sql.offers import WaitingReaders
from harken.store.sql.store import SqlStore
from harken.store.sql.transaction import (
    COLUMNS,
    WHERE,
    Readers,
    SqlConnection,
    SqlRows,
    StoreHolder,
    Transaction,
    encode_json,
    from_micros,
    parameters,
)
from harken.store.sql.writer import LocalChanges, Writer, nothing_after, nothing_before

CHANNEL: Final = "harken"
POLL_SECONDS: Final = 5.0
POLL_ALONE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 5.0
LAST: Final = "SELECT coalesce(max(n), 0) FROM changes"
READ_ON: Final = "SELECT mailbox, n FROM changes WHERE n > $1 ORDER BY n"
MAX_APART: Final = 10_000  # numbers of changes: a notification that is further away is nobody's
DOUBT_SECONDS: Final = 10.0
DOUBT_PAUSE_SECONDS: Final = 0.2
# Every commit waits for the disk of the server: an offer that a crash of it undid would be made again without the mark.
BEGIN: Final = """
BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on;
SELECT pg_advisory_xact_lock({space}, hashtext({schema}));
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, moved_to, version,
    coalesce((SELECT max(n) FROM events), 0) FROM identity, schema_version
"""
# A mark of our own tells whether a commit without an answer happened: after a crash the server gives the numbers of
# transactions that it lost to others.
MARK: Final = """
INSERT INTO commits (opening, n, at) VALUES (?, ?, ?)
ON CONFLICT (opening) DO UPDATE SET n = excluded.n, at = excluded.at
"""
MARKED: Final = "SELECT 1 FROM commits WHERE opening = ? AND n = ?"
FORGET_MARKS: Final = "DELETE FROM commits WHERE at < ?"
MARK_STAYS_MICROS: Final = 86_400 * 1_000_000
ANNOUNCE: Final = "SELECT announce(?, ?, ?)"
MAX_INDEXED_CHARS: Final = 200_000  # of a text, and of its words, which may be longer: more are too many for the server
ADD: Final = f"""
INSERT INTO messages_text (n, words)
SELECT n, to_tsvector('simple', left(words(left(text, {MAX_INDEXED_CHARS})), {MAX_INDEXED_CHARS})) ||
    to_tsvector('simple', words(sender_name)) || to_tsvector('simple', words(channel))
FROM messages WHERE n > ? AND n <= ? ON CONFLICT DO NOTHING
"""
SEARCH: Final = f"""
SELECT {COLUMNS} FROM messages_text t JOIN messages m ON m.n = t.n
WHERE t.words @@ words_query(:query) AND {WHERE} ORDER BY t.n DESC LIMIT :limit
"""


_log = logging.getLogger("harken.store")


class PostgresDatabase:
    """The writing connection of one daemon. A transaction begins with the lock that all writers of the store take."""

    errors: type[Exception] = psycopg.Error
    may_use_loop = False  # the server may be far away, and another daemon may have the lock

    def __init__(
        self,
        target: PostgresTarget,
        opening: str,
        observe: Callable[[datetime], None] | None = None,
        doubt_seconds: float = DOUBT_SECONDS,
    ) -> None:
        self.connection = PostgresConnection(target)
        self._opening = opening
        self._channel = channel_of(target)
        self._observe = observe
        self._doubt_seconds = doubt_seconds
        self._number = 0
        self._version = migrations()[-1][0]
        self._begin = BEGIN.format(space=LOCK_SPACE, schema=as_literal(target.schema))

    def begin(self, *, is_durable: bool) -> int:
        """Begin a transaction when no other daemon writes; return the number of the last event."""
        del is_durable  # here everything is
        [[micros, moved_to, version, last]] = self.connection.begin(self._begin).fetchall()
        if moved_to:
            raise not_in_use(moved_to)
        if version != self._version:
            raise too_new(version, self._version)
        if self._observe is not None:
            self._observe(from_micros(micros))
        if not self._number:
            self.connection.execute(FORGET_MARKS, (micros - MARK_STAYS_MICROS,))
        self._number += 1
        self.connection.execute(MARK, (self._opening, self._number, micros))
        return int(last)

    def commit(self, grown: Collection[Mailbox]) -> None:
        """Commit; the other daemons are told what has grown."""
        told = (self._channel, self._opening, encode_json(sorted(grown)))
        try:
            # In one trip, with all that was only to be written: the lock is held so much shorter.
            self.connection.run_at_once(*([(ANNOUNCE, told)] if grown else ()), ("COMMIT", ()))
        except psycopg.OperationalError as exc:
            if self.connection.is_open or not self._has_happened(exc):
                raise

    def roll_back(self) -> None:
        """Undo what is open; a connection that cannot do that is closed, which undoes it too."""
        try:
            self.connection.drop_waiting()
            if self.connection.is_open:
                self.connection.run("ROLLBACK")
        except psycopg.Error:
            with suppress(psycopg.Error):
                self.connection.close()

    def translate(self, error: Exception) -> HarkenError:
        """Return the error of ours."""
        return translate(error)

    def is_full(self, _error: BaseException) -> bool:
        """Whether there was no room to write; on the server no reserve of ours helps."""
        return False

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _has_happened(self, lost: psycopg.OperationalError) -> bool:
        """Find out whether a commit happened that was sent and has no answer."""
        end = time.monotonic() + self._doubt_seconds
        while time.monotonic() < end:
            with suppress(psycopg.OperationalError):
                # With the lock of the writers: the transaction in question has ended, one way or the other.
                self.connection.begin(self._begin)
                is_marked = self.connection.execute(MARKED, (self._opening, self._number)).fetchone() is not None
                self.connection.run("ROLLBACK")
                return is_marked
            time.sleep(DOUBT_PAUSE_SECONDS)
        raise psycopg.OperationalError("it went away during a commit, which may have happened") from lost


class ChangeHint(msgspec.Struct):
    """What a notification carries; without mailboxes they were too many, and are read."""

    n: int
    by: str
    mailboxes: tuple[str, ...] = ()


def _hint_of(payload: str) -> ChangeHint | None:
    """Return what a notification carries, None for one that no daemon has made: any account may notify."""
    try:
        return msgspec.json.decode(payload, type=ChangeHint)
    except (msgspec.DecodeError, RecursionError):
        return None


class PostgresChanges(LocalChanges):
    """Rings for commits of this daemon as they happen, and for those of others as they are heard of."""

    def __init__(self, target: PostgresTarget, opening: str) -> None:
        super().__init__()
        self._target = target
        self._opening = opening
        self._serve: Callable[[Collection[Mailbox]], None] | None = None
        self._known = 0
        self._is_deaf = False
        self._is_stopped = False
        self._loop = asyncio.get_running_loop()
        self._thread: threading.Thread | None = None

    def start(self, serve: Callable[[Collection[Mailbox]], None]) -> None:
        """Begin to listen; `serve` is called in the event loop with what others let grow, before listeners are."""
        self._serve = serve
        connection = self._connected()
        self._stopping, self._stop = socket.socketpair()
        # What was before is read when the store is opened.
        with connection.reading():
            [[self._known]] = connection.execute(LAST).fetchall()
        self._thread = threading.Thread(target=self._work, args=(connection,), name="harken-changes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more. Blocks; call it off the loop."""
        self._is_stopped = True
        self._stop.send(b".")
        if self._thread is not None:
            self._thread.join()
        self._stop.close()
        self._stopping.close()

    def _connected(self) -> ServerConnection:
        connection = connect(self._target)
        try:
            connection.execute(f"LISTEN {quoted(channel_of(self._target))}")
            self._is_deaf = False
        except psycopg.Error as exc:
            if connection.closed:
                raise
            # A pooler may forbid it, and others let it through and lose what comes.
            _log.warning("the changes of other daemons are asked for every second: %s", exc)
            self._is_deaf = True
        return connection

    def _work(self, first: ServerConnection) -> None:
        connection: ServerConnection | None = first
        while not self._is_stopped:
            try:
                connection = connection or self._connected()
                with closing(connection):
                    self._listen(connection)
            except psycopg.Error as exc:
                _log.info("the changes of other daemons cannot be heard: %s", exc)
                select.select([self._stopping], [], [], RETRY_SECONDS)
            connection = None

    def _listen(self, connection: ServerConnection) -> None:
        self._read_on(connection)
        while not self._is_stopped:
            pause = POLL_ALONE_SECONDS if self._is_deaf else POLL_SECONDS
            ready, _, _ = select.select([connection.fileno(), self._stopping.fileno()], [], [], pause)
            if not ready:
                # What was not told of before: notifications do not come through, as long as none does.
                self._is_deaf |= self._read_on(connection)
            elif connection.fileno() in ready:
                hints = [_hint_of(each.payload) for each in connection.notifies(timeout=0)]
                self._is_deaf &= not any(hints)
                self._take(connection, hints)

    def _take(self, connection: ServerConnection, hints: Collection[ChangeHint | None]) -> None:
        said = [hint for hint in hints if hint is not None and abs(hint.n - self._known) <= MAX_APART]
        if len(said) < len(hints) or any(not hint.mailboxes for hint in said if hint.by != self._opening):
            self._read_on(connection)
            return
        self._tell({Mailbox(name) for hint in said if hint.by != self._opening for name in hint.mailboxes})
        self._known = max((hint.n for hint in said), default=self._known)

    def _read_on(self, connection: ServerConnection) -> bool:
        """Tell of what has grown since the last that is known; return whether anything has."""
        with _bounded(connection), connection.reading():
            rows = connection.execute(READ_ON, (self._known,)).fetchall()
        if rows:
            self._known = rows[-1][1]
            self._tell({Mailbox(row[0]) for row in rows})
        return bool(rows)

    def _tell(self, grown: Collection[Mailbox]) -> None:
        if grown:
            # When the loop is closed nobody is left to be told.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ring_for, grown)

    def _ring_for(self, grown: Collection[Mailbox]) -> None:
        if self._serve is not None:
            self._serve(grown)
        self.ring(grown)


@contextmanager
def _bounded(connection: ServerConnection) -> Iterator[None]:
    """Cut a connection that gives no answer in time: what is between may take all that is sent, for ever."""

    def cut() -> None:
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as sock:
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(ANSWER_SECONDS, cut)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def channel_of(target: PostgresTarget) -> str:
    """Return the channel of a store: one for each, whatever changes in it."""
    return f"{CHANNEL}:{target.schema}"[:63]


class PostgresTexts:
    """The index of texts: words as they are written, without marks, newest first."""

    def add(self, tx: Transaction, after: int, up_to: int) -> None:
        """Make messages searchable."""
        tx.execute(ADD, (after, up_to))

    def remove(self, _tx: Transaction, _rows: Sequence[Sequence[Any]]) -> None:
        """Forget messages: a trigger does it."""

    def find(self, connection: SqlConnection, words: Sequence[str], where: Filter, limit: int) -> SqlRows:
        """Return rows of messages that contain all the words."""
        return connection.execute(SEARCH, {**parameters(where), "query": encode_json(list(words)), "limit": limit})


@asynccontextmanager
async def open_store(
    target: PostgresTarget,
    clock: Clock,
    *,
    daemon: str,
    machine: str = "",
    after_commit: AfterCommit = nothing_after,
    before_commit: BeforeCommit = nothing_before,
    observe: Callable[[datetime], None] | None = None,
    doubt_seconds: float = DOUBT_SECONDS,
) -> AsyncIterator[SqlStore]:
    """Open the store, creating it when there is none; close it with every write finished.

    `daemon` is who opens it, by the id of its home, on a `machine` of this name. `observe` is told the time by the
    clock of the server, with every transaction: by that clock all daemons agree. A server that goes away in the middle
    of a commit has some seconds to say what became of it.
    """
    opening, held = secrets.token_hex(8), StoreHolder(daemon, {}, machine)
    waiting = WaitingReaders(withdraw)
    with translated():
        database = PostgresDatabase(target, opening, observe, doubt_seconds)
        changes = PostgresChanges(target, opening)
        writer = Writer(
            database,
            clock,
            waiting,
            reserve=None,
            after_commit=after_commit,
            before_commit=before_commit,
            changes=changes,
            holder=held,
        )
        readers = Readers(partial(PostgresConnection, target), psycopg.Error, translate, BEGIN_READ)
        readers.start()
        await anyio.to_thread.run_sync(_open, database, changes, writer)
    writer.start()
    try:
        yield SqlStore(
            clock,
            writer=writer,
            readers=readers,
            changes=changes,
            waiting=waiting,
            texts=PostgresTexts(),
            measure=lambda connection: int(connection.execute(SIZE).fetchone()[0]),
            holder=held,
        )
    finally:
        with anyio.CancelScope(shield=True):
            writer.refuse()
            await anyio.to_thread.run_sync(writer.join)
            await anyio.to_thread.run_sync(changes.stop)
            readers.stop()


def _open(database: PostgresDatabase, changes: PostgresChanges, writer: Writer) -> None:
    """Open the first connections: the one that writes, and the one that listens."""
    try:
        database.connection.prepare()
        # What time it is must be known before the first lease is made out.
        database.begin(is_durable=False)
        database.roll_back()
        changes.start(writer.hear)
    except (psycopg.Error, HarkenError):
        database.close()
        raise
