"""How a consumer begins to read a mailbox: its first cursor, and what it is not given.

What is left out is counted before the transaction, in a survey that holds up no writer: a mailbox may hold a million
messages. The transaction looks only at what was stored since.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime

from harken.model import Consumer, Mailbox, Reader
from harken.store.contract.deliveries import Omission
from harken.store.sql.offers import CURSOR, advance
from harken.store.sql.transaction import HEAD, SqlConnection, Transaction, encode_json, to_micros

LAST_OVER = "SELECT seq FROM messages WHERE mailbox = ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
FIRST_YOUNG = "SELECT min(seq) FROM messages WHERE mailbox = ? AND seq > ? AND received_at >= ?"
STORED_ABOVE = "SELECT count(*) FROM messages WHERE mailbox = ? AND seq > ?"
NEWEST = "SELECT seq FROM messages WHERE mailbox = ? ORDER BY seq DESC LIMIT 1"
LAST_GAP = """
SELECT m.seq - 1 FROM messages m WHERE m.mailbox = :mailbox AND m.seq > :after AND NOT EXISTS (
    SELECT 1 FROM messages p WHERE p.mailbox = m.mailbox AND p.seq = m.seq - 1)
ORDER BY m.seq DESC LIMIT 1
"""
STORED_UP_TO = "SELECT count(*) FROM messages WHERE mailbox = ? AND seq <= ?"
# By the index of times, which holds all that is asked for: row numbers follow each other as numbers in a mailbox do.
YOUNG_UP_TO = """
SELECT count(*) FROM messages INDEXED BY messages_by_time WHERE received_at >= :since AND mailbox = :mailbox
    AND n < coalesce((SELECT n FROM messages WHERE mailbox = :mailbox AND seq > :up_to ORDER BY seq LIMIT 1), n + 1)
"""
BETWEEN = """
SELECT count(*) FILTER (WHERE received_at < :since), count(*) FILTER (WHERE received_at >= :since)
FROM messages WHERE mailbox = :mailbox AND seq > :after AND seq <= :up_to
"""
# By the accounts of the others, which are in order: asking for each message who has seen it would cost more.
SEEN_ELSEWHERE = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers,
    offered_at, lease_until, reason)
SELECT :consumer, d.mailbox, d.seq, 'd-' || lower(hex(randomblob(8))), d.message, 'expired', '', '', '', 0,
    :now, 0, 'seen by ' || d.consumer || ' before this reader began'
FROM cursors c CROSS JOIN deliveries d ON d.consumer = c.consumer AND d.mailbox = c.mailbox
WHERE c.mailbox = :mailbox AND c.consumer NOT IN ('watch', 'rules') AND d.seq > :cursor
    AND d.state IN ('seen', 'answered')
ON CONFLICT DO NOTHING
"""
BEGIN = """
INSERT INTO cursors (consumer, mailbox, seq, left_out_older, left_out_surplus, left_out_up_to)
VALUES (?, ?, ?, ?, ?, ?)
"""
LEFT_OUT = """
SELECT mailbox, left_out_older, left_out_surplus, left_out_up_to FROM cursors
WHERE consumer = ? AND mailbox IN (SELECT value FROM json_each(?)) AND left_out_older + left_out_surplus > 0
"""


@dataclass(frozen=True, slots=True)
class Survey:
    """Where a consumer would begin, and what of the stored it would not be given."""

    begins_after: int = 0
    left_out: Omission = field(default_factory=Omission)


def survey(
    connection: SqlConnection, consumer: Consumer, mailbox: Mailbox, since: datetime, most: int | None
) -> Survey | None:
    """Count what a new consumer would not be given; None for one that is not new."""
    if connection.execute(CURSOR, (consumer, mailbox)).fetchone() is not None:
        return None
    start = _start(connection, mailbox, since, most)
    start = _start(connection, mailbox, since, most, _last_gap(connection, mailbox, start))
    named = {"mailbox": mailbox, "since": to_micros(since), "up_to": start}
    stored = int(connection.execute(STORED_UP_TO, (mailbox, start)).fetchone()[0])
    surplus = int(connection.execute(YOUNG_UP_TO, named).fetchone()[0]) if stored else 0
    return Survey(start, Omission(older=stored - surplus, surplus=surplus, up_to=start if stored else 0))


def enroll(
    tx: Transaction,
    consumer: Consumer,
    mailbox: Mailbox,
    since: datetime,
    *,
    most: int | None = None,
    surveyed: Survey | None = None,
) -> bool:
    """Give a consumer its first cursor."""
    if tx.execute(CURSOR, (consumer, mailbox)).fetchone() is not None:
        return False
    earlier = surveyed or Survey()
    start = _start(tx.connection, mailbox, since, most, earlier.begins_after)
    left_out = _with_later(tx.connection, mailbox, since, earlier, start)
    tx.execute(BEGIN, (consumer, mailbox, start, left_out.older, left_out.surplus, left_out.up_to))
    named = {"consumer": consumer, "mailbox": mailbox, "cursor": start, "now": tx.now_micros}
    tx.connection.execute(SEEN_ELSEWHERE, named)
    advance(tx, consumer, mailbox)
    begun = {"consumer": consumer, "mailbox": mailbox, "begins_after": start, "left_out": asdict(left_out)}
    tx.note("consumer", begun)
    return True


def omissions(connection: SqlConnection, reader: Reader) -> dict[Mailbox, Omission]:
    """Return what a reader was not given when it began."""
    rows = connection.execute(LEFT_OUT, (reader.consumer, encode_json(reader.mailboxes)))
    return {Mailbox(row[0]): Omission(older=row[1], surplus=row[2], up_to=row[3]) for row in rows}


def _start(connection: SqlConnection, mailbox: str, since: datetime, most: int | None, at_least: int = 0) -> int:
    """Return the number before the first message that is recent and among the newest `most`.

    The first that is recent, not the last that is older: a clock that was wrong for one message must not hide those
    around it.
    """
    over = None if most is None else connection.execute(LAST_OVER, (mailbox, most)).fetchone()
    earliest = max(at_least, int(over[0]) if over else 0)
    young = connection.execute(FIRST_YOUNG, (mailbox, earliest, to_micros(since))).fetchone()[0]
    if young is not None:
        return int(young) - 1
    return _head(connection, mailbox)


def _last_gap(connection: SqlConnection, mailbox: str, after: int) -> int:
    """Return the last number above another that retention has removed; that other one when there is none.

    What is still stored below has outlived the limits because something needs it. It is not for a new consumer: its
    unread are the numbers above its cursor, so there may be no gap among them.
    """
    head = _head(connection, mailbox)
    if connection.execute(STORED_ABOVE, (mailbox, after)).fetchone()[0] == head - after:
        return after
    newest = connection.execute(NEWEST, (mailbox,)).fetchone()
    if newest is None or newest[0] < head:
        return head
    gap = connection.execute(LAST_GAP, {"mailbox": mailbox, "after": after}).fetchone()
    return int(gap[0]) if gap else after


def _head(connection: SqlConnection, mailbox: str) -> int:
    row = connection.execute(HEAD, (mailbox,)).fetchone()
    return int(row[0]) if row else 0


def _with_later(connection: SqlConnection, mailbox: str, since: datetime, earlier: Survey, start: int) -> Omission:
    """Return what is left out in all, when a survey counted the most of it."""
    named = {"mailbox": mailbox, "since": to_micros(since), "after": earlier.begins_after, "up_to": start}
    older, surplus = connection.execute(BETWEEN, named).fetchone()
    before = earlier.left_out
    if older + surplus == 0:
        return before
    return Omission(older=before.older + older, surplus=before.surplus + surplus, up_to=start)
