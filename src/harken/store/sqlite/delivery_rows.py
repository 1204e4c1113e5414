"""Rows of deliveries and cursors: what several nouns do with them. What the contract promises is in `deliveries`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from harken.model import (
    Consumer,
    Delivery,
    DeliveryId,
    DeliveryState,
    Message,
    MessageId,
    SessionKey,
    fresh_id,
)
from harken.store.sqlite.message_rows import HEAD
from harken.store.sqlite.transaction import Transaction, from_micros, optional_moment

FINAL = "('seen', 'answered', 'expired', 'refused', 'failed')"
CURSOR = "SELECT seq FROM cursors WHERE consumer = ? AND mailbox = ?"
INSERT = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until) VALUES (?, ?, ?, ?, ?, 'offered', ?, ?, ?, 1, ?, ?)
"""
DELIVERY = (
    "SELECT id, message, consumer, state, surface, session, offered_at, offers, seen_at, evidence, answered_at, "
    "reason, mailbox FROM deliveries"
)
OF_CONSUMER = f"{DELIVERY} WHERE consumer = ? AND mailbox = ? AND seq = ?"
OWN = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until, seen_at, evidence) VALUES (?, ?, ?, ?, ?, 'seen', 'own', '', '', 0, ?, 0, ?, 'own')
"""
FINALS_FROM = f"""
SELECT seq FROM deliveries WHERE consumer = ? AND mailbox = ? AND seq > ? AND state IN {FINAL} ORDER BY seq LIMIT 1000
"""
NEXT_STORED = "SELECT seq FROM messages WHERE mailbox = ? AND seq > ? ORDER BY seq LIMIT 1"
MOVE = "UPDATE cursors SET seq = ? WHERE consumer = ? AND mailbox = ?"


def cursor_of(connection: sqlite3.Connection, consumer: str, mailbox: str) -> int:
    """Return a consumer's cursor, 0 when it has none."""
    row = connection.execute(CURSOR, (consumer, mailbox)).fetchone()
    return int(row[0]) if row else 0


def own(tx: Transaction, author: Consumer, message: Message) -> None:
    """Let what a reader said be seen by that reader. Not journaled: the message itself says who said it."""
    if tx.execute(CURSOR, (author, message.mailbox)).fetchone() is not None:
        place = (author, message.mailbox, message.seq)
        tx.execute(OWN, (*place, fresh_id("d-"), message.id, tx.now_micros, tx.now_micros))
        advance(tx, author, message.mailbox)


def advance(tx: Transaction, consumer: str, mailbox: str) -> int:
    """Move a cursor over everything final that follows it; return where it is then."""
    cursor = start = cursor_of(tx.connection, consumer, mailbox)
    while True:
        finals = [int(row[0]) for row in tx.execute(FINALS_FROM, (consumer, mailbox, cursor))]
        # Retention leaves gaps in what is stored, and what it removed was final.
        reached = _before_next_stored(tx, mailbox, _contiguous(cursor, finals))
        if reached == cursor:
            break
        cursor = reached
    if cursor != start:
        tx.execute(MOVE, (cursor, consumer, mailbox))
    return cursor


def _before_next_stored(tx: Transaction, mailbox: str, cursor: int) -> int:
    row = tx.execute(NEXT_STORED, (mailbox, cursor)).fetchone()
    if row is not None:
        return int(row[0]) - 1
    head = tx.execute(HEAD, (mailbox,)).fetchone()
    return cursor if head is None else max(cursor, int(head[0]))


def _contiguous(cursor: int, finals: Iterable[int]) -> int:
    for seq in finals:
        if seq != cursor + 1:
            break
        cursor = seq
    return cursor


def delivery_from(row: Sequence[Any]) -> Delivery:
    """Build a delivery from the columns of `DELIVERY`."""
    return Delivery(
        id=DeliveryId(row[0]),
        message_id=MessageId(row[1]),
        consumer=Consumer(row[2]),
        state=DeliveryState(row[3]),
        surface=row[4],
        session=SessionKey(row[5]),
        offered_at=from_micros(row[6]),
        offers=row[7],
        seen_at=optional_moment(row[8]),
        evidence=row[9],
        answered_at=optional_moment(row[10]),
        reason=row[11],
    )
