"""Leases: what one daemon does for all that share the store, with a fence number for each tenure."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from itertools import chain
from typing import Final

from harken.store.contract.leases import LEASES, Lease
from harken.store.sql.transaction import (
    MAX_ROWS_AT_ONCE,
    Readers,
    SqlConnection,
    SqlRow,
    Transaction,
    encode_json,
    for_rows,
    from_micros,
    to_micros,
)
from harken.store.sql.writer import Writer

# The fence of a new row is the one after that which was held, so that it tells a renewal from a new tenure.
# A lease that ends later than any that is made out now was made out by a clock that was set back since: it is over.
TAKE: Final = for_rows(
    "INSERT INTO leases (name, holder, fence, expires_at, machine)",
    "(?, ?, ?, ?, ?)",
    """ON CONFLICT (name) DO UPDATE SET
    fence = iif(leases.holder = excluded.holder AND leases.fence + 1 = excluded.fence, leases.fence, leases.fence + 1),
    holder = excluded.holder, expires_at = excluded.expires_at, machine = excluded.machine
WHERE leases.holder = excluded.holder OR leases.expires_at <= ? OR leases.expires_at > ?""",
)
NAMED: Final = (
    "SELECT name, holder, fence, expires_at, machine FROM leases WHERE name IN (SELECT value FROM json_each(?))"
)
ALL: Final = "SELECT name, holder, fence, expires_at, machine FROM leases ORDER BY name"
# The next fence already: what is still written under this one comes too late.
RESIGN: Final = """
UPDATE leases SET fence = fence + 1, expires_at = ? WHERE name = ? AND holder = ? AND fence = ?
"""


def take(tx: Transaction, names: Collection[str], life: timedelta, held: Collection[Lease]) -> list[Lease]:
    """Take or renew leases for the daemon that has the store open."""
    fences = {lease.name: lease.fence for lease in held}
    until = to_micros(tx.now + life)
    rows = [(name, tx.holder.daemon, fences.get(name, 0) + 1, until, tx.holder.machine) for name in names]
    over = tx.now_micros, to_micros(tx.now + 2 * life)
    for start in range(0, len(rows), MAX_ROWS_AT_ONCE):
        some = rows[start : start + MAX_ROWS_AT_ONCE]
        tx.execute(TAKE[len(some)], (*chain.from_iterable(some), *over))
    found = {lease.name: lease for lease in map(_lease, tx.execute(NAMED, (encode_json(list(names)),)))}
    return [found[name] for name in names]


def resign(tx: Transaction, leases: Collection[Lease]) -> None:
    """Give leases back, and tell the other daemons."""
    for lease in leases:
        if tx.execute(RESIGN, (tx.now_micros, lease.name, lease.holder, lease.fence)).rowcount:
            tx.grown.add(LEASES)


def every(connection: SqlConnection) -> list[Lease]:
    """Return all leases."""
    return [_lease(row) for row in connection.execute(ALL)]


def _lease(row: SqlRow) -> Lease:
    name, holder, fence, expires_at, machine = row
    return Lease(name=name, holder=holder, fence=fence, expires_at=from_micros(expires_at), machine=machine)


class SqlLeases:
    """The contract of `LeaseStore`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def take(self, names: Collection[str], life: timedelta, held: Collection[Lease] = ()) -> list[Lease]:
        """Take or renew leases."""
        # Lost with the power, it is taken again: a fence counts together with its holder.
        return await self._writer.run(lambda tx: take(tx, names, life, held), is_durable=False)

    async def resign(self, leases: Collection[Lease]) -> None:
        """Give leases back."""
        await self._writer.run(lambda tx: resign(tx, leases), is_durable=False)

    async def list(self) -> list[Lease]:
        """Return all leases."""
        return await self._readers.run(every)
