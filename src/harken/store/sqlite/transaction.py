"""One open write transaction: the connection, the time, and what it will announce.

Functions of the noun modules take a `Transaction`, change rows through it and note events; the writer commits it
and announces. Nothing here commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain

from harken.memory import json_bytes
from harken.model import Mailbox, Message
from harken.store.contract.events import RECOVERY, Event

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

INSERT_EVENT = "INSERT INTO events (at, kind, message, data) VALUES (?, ?, ?, ?)"
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


def for_rows(head: str, row: str) -> Mapping[int, str]:
    """Return the statements that insert so many rows at once, up to `MAX_ROWS_AT_ONCE`."""
    return {count: f"{head} VALUES {', '.join([row] * count)}" for count in range(1, MAX_ROWS_AT_ONCE + 1)}


INSERT_RECEIVED = for_rows("INSERT INTO events (n, at, kind, message, data)", _EVENT)


class Transaction:
    """A write in progress. `events` and `grown` are announced after the commit, and only then."""

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        self.connection = connection
        self.now = now
        self.now_micros = to_micros(now)
        self.events: list[Event] = []
        self.grown: set[Mailbox] = set()

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
        cursor = self.execute(
            INSERT_EVENT,
            (self.now_micros, kind, None if message is None else message.id, encode_json(data) if data else "{}"),
        )
        event = Event(n=cursor.lastrowid or 0, at=self.now, kind=kind, data=data, message=message)
        self.events.append(event)
        return event

    def note_received(self, messages: Sequence[tuple[Message, Mapping[str, object]]]) -> None:
        """Add the journal events of new messages, each with what is needed to recover it, all with one statement."""
        if not messages:
            return
        first = 1 + int(self.execute(LAST_EVENT).fetchone()[0])
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
