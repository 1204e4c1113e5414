"""Events: the rows that the journal's lines are written from, and the identity of the store, which lines carry."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from harken.store.contract.events import Event
from harken.store.contract.health import StoreIdentity
from harken.store.sql.transaction import (
    COLUMNS,
    LAST_EVENT,
    MESSAGE_WIDTH,
    Readers,
    SqlConnection,
    StoreHolder,
    Transaction,
    from_micros,
    from_row,
    within_memory,
)
from harken.store.sql.writer import Writer

AFTER = f"""
SELECT {COLUMNS}, e.n, e.at, e.kind, e.data FROM events e LEFT JOIN messages m ON m.id = e.message
WHERE e.n > ? ORDER BY e.n LIMIT ?
"""
OWN_AFTER = f"""
SELECT {COLUMNS}, e.n, e.at, e.kind, e.data FROM events e LEFT JOIN messages m ON m.id = e.message
WHERE e.daemon = ? AND e.n > ? ORDER BY e.n LIMIT ?
"""
IDENTITY = "SELECT id, epoch FROM identity"
MOVED_TO = "SELECT moved_to FROM identity"


def after(connection: SqlConnection, number: int, limit: int, daemon: str | None = None) -> list[Event]:
    """Return the events that follow a number, or only those of a daemon."""
    where = (AFTER, (number, limit)) if daemon is None else (OWN_AFTER, (daemon, number, limit))
    result = []
    for row in within_memory(connection.execute(*where)):
        n, at, kind, data = row[MESSAGE_WIDTH:]
        message = None if row[0] is None else from_row(row)
        result.append(Event(n=n, at=from_micros(at), kind=kind, data=msgspec.json.decode(data), message=message))
    return result


def continue_after(tx: Transaction, number: int) -> None:
    """Use the number that follows, so that the next event follows that."""
    newest = last(tx.connection)
    if newest < number:
        tx.skip_events(number)
        tx.note("recovered", {"events_lost": number - newest})


def last(connection: SqlConnection) -> int:
    """Return the highest event number."""
    return int(connection.execute(LAST_EVENT).fetchone()[0])


def identity_of(connection: SqlConnection) -> StoreIdentity:
    """Return the identity of an open database."""
    name, epoch = connection.execute(IDENTITY).fetchone()
    return StoreIdentity(name, epoch)


class SqlEvents:
    """The contract of `EventStore`."""

    def __init__(self, writer: Writer, readers: Readers, holder: StoreHolder) -> None:
        self._writer = writer
        self._readers = readers
        # Where there is no other daemon, all are its own, also those from before it had a name.
        self._daemon = None if holder.known is None else holder.daemon

    async def record(self, kind: str, data: Mapping[str, object]) -> Event:
        """Add an event that belongs to no message."""
        return await self._writer.run(lambda tx: tx.note(kind, data))

    async def after(self, number: int, limit: int) -> list[Event]:
        """Return the events that follow a number."""
        return await self._readers.run(lambda db: after(db, number, limit))

    async def own_after(self, number: int, limit: int) -> list[Event]:
        """Return the events of this daemon that follow a number."""
        return await self._readers.run(lambda db: after(db, number, limit, self._daemon))

    async def last(self) -> int:
        """Return the highest event number."""
        return await self._readers.run(last)

    async def continue_after(self, number: int) -> None:
        """Let events go on above a number."""
        await self._writer.run(lambda tx: continue_after(tx, number))
