"""Events: the rows that the journal's lines are written from."""

from __future__ import annotations

import sqlite3

import msgspec

from harken.store.contract import Event
from harken.store.sqlite.messages import COLUMNS, MESSAGE_WIDTH, from_row, within_memory
from harken.store.sqlite.transaction import LAST_EVENT, Transaction, from_micros

AFTER = f"""
SELECT {COLUMNS}, e.n, e.at, e.kind, e.data FROM events e LEFT JOIN messages m ON m.id = e.message
WHERE e.n > ? ORDER BY e.n LIMIT ?
"""
RESERVE = "INSERT INTO events (n, at, kind, data) VALUES (?, ?, '', '{}')"


def after(connection: sqlite3.Connection, number: int, limit: int) -> list[Event]:
    """Return the events that follow a number."""
    result = []
    for row in within_memory(connection.execute(AFTER, (number, limit))):
        n, at, kind, data = row[MESSAGE_WIDTH:]
        message = None if row[0] is None else from_row(row)
        result.append(Event(n=n, at=from_micros(at), kind=kind, data=msgspec.json.decode(data), message=message))
    return result


def continue_after(tx: Transaction, number: int) -> None:
    """Use the number that follows, so that the next event follows that."""
    newest = last(tx.connection)
    if newest < number:
        # The row with the number makes SQLite count on from it, and is then replaced by a real event.
        tx.execute(RESERVE, (number, tx.now_micros))
        tx.note("recovered", {"events_lost": number - newest})
        tx.execute("DELETE FROM events WHERE n = ?", (number,))


def last(connection: sqlite3.Connection) -> int:
    """Return the highest event number."""
    return int(connection.execute(LAST_EVENT).fetchone()[0])
