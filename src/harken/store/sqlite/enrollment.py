"""How a consumer begins to read a mailbox: its first cursor, and what is not for it any more."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from harken.model import Consumer, Mailbox
from harken.store.sqlite.deliveries import CURSOR, advance
from harken.store.sqlite.messages import HEAD, NEW_CURSOR
from harken.store.sqlite.transaction import Transaction, to_micros

MOST_FOR_A_NEW_CONSUMER = 10_000

SEEN_ELSEWHERE = """
INSERT OR IGNORE INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers,
    offered_at, lease_until, reason)
SELECT DISTINCT :consumer, d.mailbox, d.seq, 'd-' || lower(hex(randomblob(8))), d.message, 'expired', '', '', '', 0,
    :now, 0, 'seen by ' || d.consumer || ' before this reader began'
FROM messages m JOIN deliveries d ON d.message = m.id
WHERE m.mailbox = :mailbox AND m.seq > :cursor AND d.state IN ('seen', 'answered')
    AND d.consumer NOT IN ('watch', 'rules')
GROUP BY d.seq
"""


def enroll(tx: Transaction, consumer: Consumer, mailbox: Mailbox, since: datetime) -> bool:
    """Give a consumer its first cursor."""
    if tx.execute(CURSOR, (consumer, mailbox)).fetchone() is not None:
        return False
    head = tx.execute(HEAD, (mailbox,)).fetchone()
    # Bounded, because it looks at every one of them while everyone else waits to write.
    earliest = max(0, (int(head[0]) if head else 0) - MOST_FOR_A_NEW_CONSUMER)
    start = before_young(tx.connection, mailbox, to_micros(since), earliest)
    tx.execute(NEW_CURSOR, (consumer, mailbox, start))
    named = {"consumer": consumer, "mailbox": mailbox, "cursor": start, "now": tx.now_micros}
    tx.connection.execute(SEEN_ELSEWHERE, named)
    advance(tx, consumer, mailbox)
    tx.note("consumer", {"consumer": consumer, "mailbox": mailbox, "begins_after": start})
    return True


def before_young(connection: sqlite3.Connection, mailbox: str, moment_micros: int, earliest: int) -> int:
    """Return the sequence number before the first message above `earliest` that was received since a moment.

    The first, not the last that is older: a clock that was wrong for one message must not hide those around it.
    """
    row = connection.execute(
        "SELECT min(seq) - 1 FROM messages WHERE mailbox = ? AND seq > ? AND received_at >= ?",
        (mailbox, earliest, moment_micros),
    ).fetchone()
    if row[0] is not None:
        return int(row[0])
    head = connection.execute(HEAD, (mailbox,)).fetchone()
    return int(head[0]) if head else 0
