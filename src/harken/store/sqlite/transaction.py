"""How statements run: in one open write transaction, or in a reading snapshot; and SQLite's errors as ours.

Functions of the noun modules take a `Transaction`, change rows through it and note events; the writer commits it
and announces. Nothing here commits. `Readers` is a small pool of read-only connections, used from worker threads.
Nothing above this package imports sqlite3's exceptions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import anyio
import anyio.to_thread

from harken.errors import HarkenError, Unavailable, UserError
from harken.memory import json_bytes, out_of_memory
from harken.model import Mailbox, Message
from harken.store.contract.events import RECOVERY, Event

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

INSERT_EVENT = "INSERT INTO events (n, at, kind, message, data) VALUES (?, ?, ?, ?, ?)"
MAX_ROWS_AT_ONCE = 32
_EVENT = "(?, ?, 'received', ?, ?)"
LAST_EVENT = "SELECT coalesce(max(n), 0) FROM events"


def to_micros(moment: datetime) -> int:
    """Return microseconds since 1970, exactly (a float of seconds would round)."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(value: int) -> datetime:
    """Return the aware UTC datetime of `to_micros`."""
    return _EPOCH + timedelta(microseconds=value)


def optional_micros(moment: datetime | None) -> int | None:
    """Like `to_micros`, and None stays None."""
    return None if moment is None else to_micros(moment)


def optional_moment(value: int | None) -> datetime | None:
    """Like `from_micros`, and None stays None."""
    return None if value is None else from_micros(value)


def encode_json(value: object) -> str:
    """Return compact JSON text."""
    return json_bytes(value).decode()


def for_rows(head: str, row: str, tail: str = "") -> Mapping[int, str]:
    """Return the statements that insert so many rows at once, up to `MAX_ROWS_AT_ONCE`."""
    return {count: f"{head} VALUES {', '.join([row] * count)} {tail}" for count in range(1, MAX_ROWS_AT_ONCE + 1)}


INSERT_RECEIVED = for_rows("INSERT INTO events (n, at, kind, message, data)", _EVENT)


class Transaction:
    """A write in progress. `events` and `grown` are announced after the commit, and only then."""

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        self.connection = connection
        self.now = now
        self.now_micros = to_micros(now)
        self.events: list[Event] = []
        self.grown: set[Mailbox] = set()
        self._last_event: int | None = None

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        """Run one statement."""
        return self.connection.execute(sql, parameters)

    def insert(self, statements: Mapping[int, str], rows: Sequence[tuple[object, ...]]) -> int:
        """Insert rows with the statements of `for_rows`; return how many were new.

        Not `executemany`: that lets go of the interpreter for every row, and has to wait for the event loop each time.
        For the same reason there is a statement for every number of rows.
        """
        inserted = 0
        for start in range(0, len(rows), MAX_ROWS_AT_ONCE):
            some = rows[start : start + MAX_ROWS_AT_ONCE]
            inserted += self.execute(statements[len(some)], tuple(chain.from_iterable(some))).rowcount
        return inserted

    def note(self, kind: str, data: Mapping[str, object], message: Message | None = None) -> Event:
        """Add a journal event to this transaction."""
        number = self._take_events(1)
        about = None if message is None else message.id
        self.execute(INSERT_EVENT, (number, self.now_micros, kind, about, encode_json(data) if data else "{}"))
        event = Event(n=number, at=self.now, kind=kind, data=data, message=message)
        self.events.append(event)
        return event

    def skip_events(self, number: int) -> None:
        """Let the next event have the number that follows another."""
        self._last_event = number

    def undo(self, events: int, grown: set[Mailbox]) -> None:
        """Forget what was noted since there were so many events and these mailboxes had grown."""
        del self.events[events:]
        self.grown.intersection_update(grown)
        self._last_event = None

    def _take_events(self, count: int) -> int:
        """Return the first of so many numbers that follow those of all events; no other transaction takes any."""
        if self._last_event is None:
            self._last_event = int(self.execute(LAST_EVENT).fetchone()[0])
        first = self._last_event + 1
        self._last_event += count
        return first

    def note_received(self, messages: Sequence[tuple[Message, Mapping[str, object]]]) -> None:
        """Add the journal events of new messages, each with what is needed to recover it, all with one statement."""
        if not messages:
            return
        first = self._take_events(len(messages))
        events = [
            Event(n=n, at=self.now, kind="received", data={RECOVERY: needed} if needed else {}, message=message)
            for n, (message, needed) in enumerate(messages, start=first)
        ]
        self.insert(
            INSERT_RECEIVED,
            [
                (event.n, self.now_micros, message.id, encode_json(event.data) if event.data else "{}")
                for event, (message, _) in zip(events, messages, strict=True)
            ],
        )
        self.events += events


T = TypeVar("T")

POOL_SIZE = 4
_NO_THREAD = "can't start new thread"


class Readers:
    """Runs reading functions, at most `POOL_SIZE` at a time, each in one consistent snapshot."""

    def __init__(self, opener: Callable[[], sqlite3.Connection]) -> None:
        self._opener = opener
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        self._limiter = anyio.CapacityLimiter(POOL_SIZE)

    def start(self) -> None:
        """Open the connections."""
        for _ in range(POOL_SIZE):
            self._idle.put(self._opener())

    def stop(self) -> None:
        """Close the connections. Nothing may be reading any more."""
        while not self._idle.empty():
            self._idle.get().close()

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a reading function in a worker thread."""
        try:
            return await anyio.to_thread.run_sync(self._read, job, limiter=self._limiter)
        except RuntimeError as exc:
            if _NO_THREAD not in str(exc):
                raise
            raise out_of_memory() from exc

    def _read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._idle.get()
        try:
            with translated():
                connection.execute("BEGIN")
                try:
                    return job(connection)
                finally:
                    connection.execute("COMMIT")
        finally:
            self._idle.put(connection)


RETRY_SECONDS = 5.0

_DAMAGED = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})


def translate(error: sqlite3.Error) -> HarkenError:
    """Return the error that tells the caller what to do next."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if any(name.startswith(damaged) for damaged in _DAMAGED):
        return damaged(str(error))
    if is_full(error):
        return full()
    if name.startswith("SQLITE_READONLY"):
        return Unavailable(
            "The database cannot be written.", "Check the permissions of Harken's home.", retry_after=RETRY_SECONDS
        )
    return Unavailable(
        f"The database does not answer ({error}).",
        "Try again; see logs/daemon.log if it stays so.",
        retry_after=RETRY_SECONDS,
    )


def is_full(error: BaseException) -> bool:
    """Whether a write failed because there is no room; the index of the log can only fail for that."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name in {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"}


def full() -> Unavailable:
    """Return the error for a disk without room."""
    return Unavailable(
        "The disk is full.", "Free some space; what was not accepted can be sent again.", retry_after=RETRY_SECONDS
    )


def unspeakable() -> UserError:
    """Return the error for text that is not text: half of a surrogate pair has no UTF-8."""
    return UserError("The text has a character that cannot be stored.", "Leave out the half surrogate pairs (U+D800…).")


def damaged(detail: str) -> UserError:
    """Return the error for a database file that must not be touched further."""
    return UserError(
        f"The database is damaged ({detail}); nothing was changed.",
        "Build it anew from what is left and from the journal: harken recover",
    )


def moved(path: Path) -> Unavailable:
    """Return the error for a file that was taken away from under the store."""
    return Unavailable(
        f"{path.name} was moved, deleted or replaced while Harken had it open; nothing was stored.",
        "Put the file back where it was, or stop Harken and build the database anew: harken down, then harken recover",
        retry_after=RETRY_SECONDS,
    )


@contextmanager
def translated() -> Iterator[None]:
    """Turn SQLite's exceptions into ours."""
    try:
        yield
    except sqlite3.Error as exc:
        raise translate(exc) from exc
    except UnicodeEncodeError as exc:
        raise unspeakable() from exc
    except MemoryError as exc:
        raise out_of_memory() from exc
    except OSError as exc:
        message = f"The database file cannot be used ({exc.strerror})."
        raise Unavailable(message, "Check Harken's home and its permissions.", retry_after=RETRY_SECONDS) from exc
