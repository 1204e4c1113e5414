"""Retention: what is over the limits first becomes expired for readers that have not seen it, and is deleted later.

One call does a bounded amount, so that it never holds up accepting; the upkeep loop calls it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from harken.clock import Clock
from harken.model import Mailbox, MessageId
from harken.store.contract.retention import Limits, MailboxExcess, RetentionReport
from harken.store.sql.conversations import fill
from harken.store.sql.messages import TextIndex, forget
from harken.store.sql.offers import advance
from harken.store.sql.questions import note_removed
from harken.store.sql.transaction import HEAD, Readers, SqlConnection, Transaction, to_micros
from harken.store.sql.writer import Writer

BATCH = 2_000
_EVENTS_KEPT = 100_000
_REACTIONS_KEPT = 1_000

MAILBOXES = "SELECT name, head FROM mailboxes"
SLOWEST = "SELECT coalesce(min(seq), 0) FROM cursors WHERE mailbox = ?"
OVER = """
SELECT n, text, sender_name, channel, id, seq FROM messages
WHERE mailbox = ? AND seq <= ? AND n < (SELECT max(n) FROM messages)
    AND id NOT IN (SELECT message FROM outbox WHERE state <> 'sent')
    AND id NOT IN (SELECT message FROM actions WHERE state IN ('waiting', 'queued'))
    AND id NOT IN (SELECT message FROM runs WHERE state = 'running')
    AND NOT EXISTS (
        SELECT 1 FROM deliveries d WHERE d.message = messages.id AND d.state = 'expired'
            AND max(d.offered_at, d.lease_until) > ?)
"""
NEXT_OVER = f"{OVER} ORDER BY seq LIMIT ?"
COUNT_OVER = f"SELECT count(*) FROM ({OVER}) found"
STORED = "SELECT count(*), count(*) FILTER (WHERE seq <= ?) FROM messages WHERE mailbox = ?"
# Up to the first that is young enough: a message received with a wrong clock must not take those before it along.
FIRST_YOUNG = "SELECT seq FROM messages WHERE mailbox = ? AND received_at >= ? ORDER BY seq LIMIT 1"
DELETE = "DELETE FROM messages WHERE n = ?"
DELETE_DELIVERIES = "DELETE FROM deliveries WHERE message = ?"
DELETE_OUTBOX = "DELETE FROM outbox WHERE message = ?"
SLOW = "SELECT consumer, seq FROM cursors WHERE mailbox = ? AND seq < ?"
OPEN = """
SELECT m.seq, m.id FROM messages m LEFT JOIN deliveries d
    ON d.consumer = :consumer AND d.mailbox = m.mailbox AND d.seq = m.seq
WHERE m.mailbox = :mailbox AND m.seq > :cursor AND m.seq <= :cutoff AND (d.state IS NULL OR d.state = 'offered')
"""
NEXT_OPEN = f"{OPEN} ORDER BY m.seq LIMIT :limit"
COUNT_OPEN = f"SELECT count(*) FROM ({OPEN}) found"
# What only its author has is unread all the same: no agent has begun to read this mailbox.
UNHEARD = """
SELECT d.consumer, d.seq, d.message FROM cursors c CROSS JOIN deliveries d
    ON d.consumer = c.consumer AND d.mailbox = c.mailbox
WHERE c.mailbox = :mailbox AND d.seq <= :cutoff AND d.surface = 'own' AND d.state = 'seen'
    AND (SELECT count(*) FROM cursors WHERE mailbox = :mailbox) = 1
LIMIT :limit
"""
# When one that was offered expired is when its lease ended: when it was offered stays what it was.
EXPIRE = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until, reason) VALUES (?, ?, ?, 'd-' || lower(hex(randomblob(8))), ?, 'expired', '', '', '', 0, ?, 0, ?)
ON CONFLICT (consumer, mailbox, seq) DO UPDATE SET state = 'expired', reason = excluded.reason,
    lease_until = excluded.offered_at
"""
# Of the oldest, so that a round reads no more than it may delete. What waits or runs stays, however old it is.
OLD_ACTIONS = """
DELETE FROM actions WHERE n IN (
    SELECT n FROM (SELECT n, state, run, created_at FROM actions ORDER BY n LIMIT :batch) a
    WHERE n <= (SELECT max(n) FROM actions) - :kept AND state NOT IN ('waiting', 'queued')
        AND (created_at < :oldest OR n <= (SELECT max(n) FROM actions) - :most)
        AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = a.run))
"""
OLD_RUNS = """
DELETE FROM runs WHERE n IN (
    SELECT n FROM (SELECT n, state, started_at FROM runs ORDER BY n LIMIT :batch) r
    WHERE n <= (SELECT max(n) FROM runs) - :kept AND state <> 'running'
        AND (started_at < :oldest OR n <= (SELECT max(n) FROM runs) - :most))
"""
# What another daemon has committed has its line on another machine.
OLD_EVENTS = """
DELETE FROM events WHERE n <= (SELECT max(n) FROM events) - ? AND (n <= ? OR (? <> 0 AND daemon <> ?))
"""
REASON = "older than what the mailbox keeps"


def prune(tx: Transaction, limits: Limits, texts: TextIndex) -> RetentionReport:
    """Do one bounded round of retention over every mailbox."""
    expired, gone = 0, dict[str, list[int]]()
    oldest = to_micros(tx.now - timedelta(seconds=limits.max_age_seconds))
    recent = to_micros(tx.now - timedelta(seconds=limits.expired_stays_seconds))
    for mailbox, head in tx.execute(MAILBOXES).fetchall():
        cutoff = _cutoff(tx.connection, mailbox, head - limits.max_count, oldest)
        if cutoff <= 0:
            continue
        unheard = _expire_unheard(tx, mailbox, cutoff)
        everyone = int(tx.execute(SLOWEST, (mailbox,)).fetchone()[0])
        if not unheard and (numbers := _delete(tx, texts, mailbox, min(cutoff, everyone), recent)):
            gone[mailbox] = numbers
        expired += unheard
        for consumer, cursor in tx.execute(SLOW, (mailbox, cutoff)).fetchall():
            expired += _expire(tx, consumer, mailbox, cursor, cutoff)
    deleted = sum(map(len, gone.values()))
    if deleted:
        ranges = {mailbox: as_ranges(numbers) for mailbox, numbers in gone.items()}
        tx.note("pruned", {"deleted": deleted, "ranges": ranges})
    over = {"batch": BATCH, "kept": _REACTIONS_KEPT, "most": max(limits.max_count, _REACTIONS_KEPT), "oldest": oldest}
    # An action stays as long as its run: what the run was to do is there.
    tx.connection.execute(OLD_RUNS, over)
    tx.connection.execute(OLD_ACTIONS, over)
    journaled = tx.now_micros if limits.journaled is None else limits.journaled
    tx.execute(OLD_EVENTS, (_EVENTS_KEPT, journaled, tx.holder.known is not None, tx.holder.daemon))
    return RetentionReport(expired, deleted)


def excess(connection: SqlConnection, limits: Limits, now: datetime) -> list[MailboxExcess]:
    """Return what is over the limits, by mailbox."""
    oldest = to_micros(now - timedelta(seconds=limits.max_age_seconds))
    recent = to_micros(now - timedelta(seconds=limits.expired_stays_seconds))
    found = []
    for mailbox, head in connection.execute(f"{MAILBOXES} ORDER BY name").fetchall():
        cutoff = _cutoff(connection, mailbox, head - limits.max_count, oldest)
        stored, over = connection.execute(STORED, (cutoff, mailbox)).fetchone()
        last = min(cutoff, int(connection.execute(SLOWEST, (mailbox,)).fetchone()[0]))
        to_expire = sum(
            _open_of(connection, consumer, mailbox, cursor, cutoff)
            for consumer, cursor in connection.execute(SLOW, (mailbox, cutoff)).fetchall()
        )
        found.append(
            MailboxExcess(
                mailbox=Mailbox(mailbox),
                stored=stored,
                over=over,
                to_expire=to_expire,
                to_delete=int(connection.execute(COUNT_OVER, (mailbox, last, recent)).fetchone()[0]),
            )
        )
    return found


def _open_of(connection: SqlConnection, consumer: str, mailbox: str, cursor: int, cutoff: int) -> int:
    named = {"consumer": consumer, "mailbox": mailbox, "cursor": cursor, "cutoff": cutoff}
    return int(connection.execute(COUNT_OPEN, named).fetchone()[0])


def _cutoff(connection: SqlConnection, mailbox: str, by_count: int, oldest: int) -> int:
    """Return the last number that is over the limits; not above 0 for none."""
    young = connection.execute(FIRST_YOUNG, (mailbox, oldest)).fetchone()
    if young is not None:
        return max(by_count, int(young[0]) - 1)
    return max(by_count, int(connection.execute(HEAD, (mailbox,)).fetchone()[0]))


def as_ranges(ascending: Sequence[int]) -> list[tuple[int, int]]:
    """Return numbers as first and last of each unbroken part."""
    ranges: list[tuple[int, int]] = []
    for number in ascending:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges


def _delete(tx: Transaction, texts: TextIndex, mailbox: str, cutoff: int, recent: int) -> list[int]:
    rows = tx.execute(NEXT_OVER, (mailbox, cutoff, recent, BATCH)).fetchall()
    if rows:
        # What was accepted since is put in first: a conversation that goes on keeps what you did about it.
        fill(tx)
    forget(tx, texts, [row[:4] for row in rows])
    note_removed(tx, [MessageId(row[4]) for row in rows])
    for row in rows:
        tx.execute(DELETE_DELIVERIES, (row[4],))
        tx.execute(DELETE_OUTBOX, (row[4],))
        tx.execute(DELETE, (row[0],))
    return [row[5] for row in rows]


def _expire(tx: Transaction, consumer: str, mailbox: str, cursor: int, cutoff: int) -> int:
    named = {"consumer": consumer, "mailbox": mailbox, "cursor": cursor, "cutoff": cutoff, "limit": BATCH}
    rows = tx.connection.execute(NEXT_OPEN, named).fetchall()
    for seq, message in rows:
        tx.execute(EXPIRE, (consumer, mailbox, seq, message, tx.now_micros, REASON))
    advance(tx, consumer, mailbox)
    if rows:
        ids = [message for _, message in rows]
        tx.note("expired", {"consumer": consumer, "mailbox": mailbox, "count": len(rows), "ids": ids})
    return len(rows)


def _expire_unheard(tx: Transaction, mailbox: str, cutoff: int) -> int:
    """Let what you said to no agent expire, so that it is seen to be unread before it is deleted."""
    named = {"mailbox": mailbox, "cutoff": cutoff, "limit": BATCH}
    rows = tx.connection.execute(UNHEARD, named).fetchall()
    for consumer, seq, message in rows:
        tx.execute(EXPIRE, (consumer, mailbox, seq, message, tx.now_micros, REASON))
    if rows:
        ids = [message for _, _, message in rows]
        tx.note("expired", {"consumer": rows[0][0], "mailbox": mailbox, "count": len(rows), "ids": ids})
    return len(rows)


class SqlRetention:
    """The contract of `RetentionStore`."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock, texts: TextIndex) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock
        self._texts = texts

    async def prune(self, limits: Limits) -> RetentionReport:
        """Do one bounded round of retention."""
        return await self._writer.run(lambda tx: prune(tx, limits, self._texts), is_durable=False, needs_room=True)

    async def excess(self, limits: Limits) -> Sequence[MailboxExcess]:
        """Return what is over the limits."""
        now = self._clock.now()
        return await self._readers.run(lambda db: excess(db, limits, now))
