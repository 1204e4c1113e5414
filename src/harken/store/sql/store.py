"""`SqlStore`: the contract over a database. Each noun's class, with its SQL, is in the module of that noun.

A backend opens its connections and puts one together. Here is also the store's own state: whether it can be written,
which one it is, how much is in it, which daemons have it open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from harken.clock import Clock
from harken.store.contract import Changes
from harken.store.contract.health import DAEMONS, DaemonReport, StoreIdentity
from harken.store.sql.actions import SqlActions
from harken.store.sql.approvals import SqlApprovals
from harken.store.sql.conversations import SqlConversations
from harken.store.sql.deliveries import SqlDeliveries, release_gone
from harken.store.sql.events import SqlEvents, identity_of
from harken.store.sql.leases import SqlLeases
from harken.store.sql.messages import SqlCheckpoints, SqlMessages, SqlSchedule, TextIndex, lag
from harken.store.sql.offers import WaitingReaders
from harken.store.sql.outbox import SqlOutbox, SqlSubscriptions
from harken.store.sql.people import SqlPeople
from harken.store.sql.questions import SqlQuestions
from harken.store.sql.retention import SqlRetention
from harken.store.sql.rules import SqlRules
from harken.store.sql.runs import SqlRuns
from harken.store.sql.tasks import SqlTasks
from harken.store.sql.timeline import SqlTimeline
from harken.store.sql.tokens import SqlTokens
from harken.store.sql.transaction import (
    ALONE,
    Readers,
    SqlConnection,
    StoreHolder,
    Transaction,
    from_micros,
    to_micros,
)
from harken.store.sql.writer import Writer

TOUCH: Final = """
INSERT INTO progress (name, value) VALUES ('written', ?) ON CONFLICT (name) DO UPDATE SET value = progress.value + 1
"""
COUNTED: Final = ("messages", "deliveries", "mailboxes", "events", "actions", "runs")

Measure = Callable[[SqlConnection], int]
"""Returns how many bytes a database has."""


class SqlStore:
    """The contract of `Store`, over connections that a backend has opened."""

    def __init__(
        self,
        clock: Clock,
        *,
        writer: Writer,
        readers: Readers,
        changes: Changes,
        waiting: WaitingReaders,
        texts: TextIndex,
        measure: Measure,
        holder: StoreHolder = ALONE,
    ) -> None:
        self.changes = changes
        self.messages = SqlMessages(writer, readers, texts)
        self.checkpoints = SqlCheckpoints(readers, holder)
        self.deliveries = SqlDeliveries(writer, readers, waiting, clock, holder)
        self.people = SqlPeople(writer, readers, clock)
        self.rules = SqlRules(writer, readers)
        self.actions = SqlActions(writer, readers)
        self.runs = SqlRuns(writer, readers, holder)
        self.outbox = SqlOutbox(writer, readers, clock, holder)
        self.questions = SqlQuestions(writer, readers)
        self.approvals = SqlApprovals(writer, readers, holder.daemon)
        self.conversations = SqlConversations(writer, readers)
        self.tasks = SqlTasks(writer, readers, holder)
        self.tokens = SqlTokens(writer, readers)
        self.events = SqlEvents(writer, readers, holder)
        self.subscriptions = SqlSubscriptions(writer, readers)
        self.schedule = SqlSchedule(writer, readers)
        self.timeline = SqlTimeline(writer, readers)
        self.retention = SqlRetention(writer, readers, clock, texts)
        self.leases = SqlLeases(writer, readers)
        self.daemons = SqlDaemons(writer, readers)
        self.health = SqlHealth(writer, readers, measure)


class SqlHealth:
    """The contract of `HealthStore`."""

    def __init__(self, writer: Writer, readers: Readers, measure: Measure) -> None:
        self._writer = writer
        self._readers = readers
        self._measure = measure

    async def check_writable(self) -> None:
        """Write one row."""
        # Not durable: a full disk refuses the write itself, and the sync would cost whoever writes meanwhile.
        await self._writer.run(_touch, is_durable=False, needs_room=True)

    async def identity(self) -> StoreIdentity:
        """Return which store this is."""
        return await self._readers.run(identity_of)

    async def size(self) -> int:
        """Return how many bytes the database has."""
        return await self._readers.run(self._measure)

    async def stats(self) -> Mapping[str, int]:
        """Return counts for people."""
        return await self._readers.run(self._stats)

    def _stats(self, connection: SqlConnection) -> dict[str, int]:
        counts = {name: int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]) for name in COUNTED}
        return {**counts, "bytes": self._measure(connection), "not_indexed": lag(connection)}


def _touch(tx: Transaction) -> None:
    tx.execute(TOUCH, (1,))


REPORT: Final = """
INSERT INTO daemons (id, machine, version, started_at, seen_at, sessions) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET machine = excluded.machine, version = excluded.version,
    started_at = excluded.started_at, seen_at = excluded.seen_at, sessions = excluded.sessions
"""
SAID: Final = "SELECT machine, version, started_at, sessions FROM daemons WHERE id = ?"
# The row stays: the ledger says by it which machine a session was on.
GONE: Final = "UPDATE daemons SET sessions = '' WHERE id <> ? AND seen_at < ? AND sessions <> ''"
LEAVE: Final = "UPDATE daemons SET sessions = '' WHERE id = ? AND sessions <> ''"
FORGET: Final = "DELETE FROM daemons WHERE seen_at < ?"
FORGET_AFTER: Final = timedelta(days=90)
REPORTS: Final = "SELECT id, machine, version, started_at, seen_at, sessions FROM daemons ORDER BY machine, id"


def report(tx: Transaction, said: tuple[str, str, int, str], gone_after: timedelta | None) -> None:
    """Note what this daemon says, and end the leases of those that are gone."""
    own = tx.holder.daemon
    before = tx.execute(SAID, (own,)).fetchone()
    machine, version, started_at, sessions = said
    tx.execute(REPORT, (own, machine, version, started_at, tx.now_micros, sessions))
    if before is None or tuple(before) != said:
        tx.grown.add(DAEMONS)
    if gone_after is not None:
        release_gone(tx, before=tx.now - gone_after)
        if tx.execute(GONE, (own, to_micros(tx.now - gone_after))).rowcount:
            tx.grown.add(DAEMONS)
            tx.execute(FORGET, (to_micros(tx.now - FORGET_AFTER),))


def leave(tx: Transaction) -> None:
    """Forget this daemon."""
    if tx.execute(LEAVE, (tx.holder.daemon,)).rowcount:
        tx.grown.add(DAEMONS)


class SqlDaemons:
    """The contract of `DaemonStore`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def report(
        self, *, machine: str, version: str, started_at: datetime, sessions: str, gone_after: timedelta | None
    ) -> None:
        """Note that this daemon is here."""
        said = machine, version, to_micros(started_at), sessions
        await self._writer.run(lambda tx: report(tx, said, gone_after), is_durable=False)

    async def leave(self) -> None:
        """Forget this daemon."""
        await self._writer.run(leave, is_durable=False)

    async def list(self) -> Sequence[DaemonReport]:
        """Return the daemons that are here, and those that were."""
        rows = await self._readers.run(lambda db: db.execute(REPORTS).fetchall())
        return [
            DaemonReport(
                id=name,
                machine=machine,
                version=version,
                started_at=from_micros(started_at),
                seen_at=from_micros(seen_at),
                sessions=sessions,
            )
            for name, machine, version, started_at, seen_at, sessions in rows
        ]
