"""The part of `SqliteStore` about its own state: the contract of `store/contract/health.py`."""

from __future__ import annotations

from harken.store.identity import StoreIdentity
from harken.store.sqlite.identity import identity_of
from harken.store.sqlite.readers import Readers
from harken.store.sqlite.transaction import Transaction
from harken.store.sqlite.writer import Writer

TOUCH = "INSERT INTO progress (name, value) VALUES ('written', ?) ON CONFLICT (name) DO UPDATE SET value = value + 1"


class VitalSigns:
    """Whether it can be written, and how much waits in it."""

    _writer: Writer
    _readers: Readers

    async def check_writable(self) -> None:
        """Write one row."""
        # Not durable: a full disk refuses the write itself, and the sync would cost whoever writes meanwhile.
        await self._writer.run(_touch, is_durable=False, needs_room=True)

    async def identity(self) -> StoreIdentity:
        """Return which store this is."""
        return await self._readers.run(identity_of)


def _touch(tx: Transaction) -> None:
    tx.execute(TOUCH, (1,))
