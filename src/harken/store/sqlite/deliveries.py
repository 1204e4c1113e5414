"""Deliveries, leases and cursors: what a consumer has been given and what is proven.

The unread count needs no scan of the unread: it is the mailbox's head minus the cursor minus the final deliveries
above the cursor, and those are few because the cursor follows them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from harken.errors import NotFound
from harken.model import (
    Consumer,
    Delivery,
    DeliveryId,
    Mailbox,
    Message,
    MessageId,
    Reader,
    SessionKey,
    State,
    fresh_id,
)
from harken.store.contract import OpenOffer, SurfaceRecord, Unread
from harken.store.sqlite.messages import BY_ID, HEAD, NEW_CURSOR, from_row
from harken.store.sqlite.transaction import Transaction, encode_json, from_micros, optional_moment, to_micros

_FINAL = "('seen', 'answered', 'expired', 'refused', 'failed')"
_MANY_UNREAD = 100_000

CURSOR = "SELECT seq FROM cursors WHERE consumer = ? AND mailbox = ?"
ABOVE = """
SELECT count(*) FILTER (WHERE state <> 'offered'), count(*) FILTER (WHERE state = 'offered' AND lease_until > ?)
FROM deliveries WHERE consumer = ? AND mailbox = ? AND seq > ?
"""
OLDEST = "SELECT received_at FROM messages WHERE mailbox = ? AND seq > ? ORDER BY seq LIMIT 1"
BY_CHANNEL = f"""
SELECT channel, count(*) FROM (
    SELECT m.channel FROM messages m
    WHERE m.mailbox = :mailbox AND m.seq > :cursor AND NOT EXISTS (
        SELECT 1 FROM deliveries d
        WHERE d.consumer = :consumer AND d.mailbox = m.mailbox AND d.seq = m.seq AND d.state IN {_FINAL})
    LIMIT {_MANY_UNREAD})
GROUP BY channel
"""
INSERT = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until) VALUES (?, ?, ?, ?, ?, 'offered', ?, ?, ?, 1, ?, ?)
"""
DELIVERY = (
    "SELECT id, message, consumer, state, surface, session, offered_at, offers, seen_at, evidence, answered_at, "
    "reason, mailbox FROM deliveries"
)
BY_DELIVERY = f"{DELIVERY} WHERE id = ? AND state = 'offered'"
OF_MESSAGE = f"{DELIVERY} WHERE message = ? ORDER BY offered_at, consumer"
OF_CONSUMER = f"{DELIVERY} WHERE consumer = ? AND mailbox = ? AND seq = ?"
OWN = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until, seen_at, evidence) VALUES (?, ?, ?, ?, ?, 'seen', 'own', '', '', 0, ?, 0, ?, 'own')
"""
SEE = "UPDATE deliveries SET state = 'seen', seen_at = ?, evidence = ? WHERE id = ?"
_RELEASE = "UPDATE deliveries SET lease_until = 0 WHERE session = ? AND state = 'offered' AND lease_until > 0"
RELEASE = f"{_RELEASE} RETURNING mailbox"
RELEASE_CARRIER = f"{_RELEASE} AND carrier = ? RETURNING mailbox"
RENEW = """
UPDATE deliveries SET lease_until = ?, session = ?, carrier = ?
WHERE id = ? AND state = 'offered' AND lease_until = 0
"""
WITHDRAW = """
DELETE FROM deliveries WHERE session = ? AND carrier = ? AND state = 'offered' AND offers = 1
RETURNING mailbox, message
"""
UNDO = """
DELETE FROM deliveries WHERE id = ? AND carrier = ? AND state = 'offered' AND offers = 1
RETURNING mailbox, message, session
"""
UNLEASE = """
UPDATE deliveries SET lease_until = 0 WHERE id = ? AND carrier = ? AND state = 'offered' AND lease_until > 0
RETURNING mailbox, message, session
"""
TRANSFER = "UPDATE deliveries SET session = ? WHERE session = ? AND state = 'offered'"
REASSIGN = """
UPDATE deliveries SET session = ?, carrier = ? WHERE id = ? AND consumer = ? AND state = 'offered' RETURNING id
"""
SURFACES = """
SELECT consumer, surface, count(*), count(*) FILTER (WHERE state IN ('seen', 'answered')), max(offered_at),
    max(seen_at) FROM deliveries WHERE offered_at >= ? AND offers > 0 AND carrier <> '' GROUP BY consumer, surface
ORDER BY consumer, surface
"""
LAST_EVIDENCE = """
SELECT evidence FROM deliveries WHERE consumer = ? AND surface = ? AND seen_at = ? LIMIT 1
"""
OPEN_SESSIONS = "SELECT DISTINCT session FROM deliveries WHERE state = 'offered' AND lease_until > 0"
OPEN_OFFERS = "SELECT id, carrier FROM deliveries WHERE session = ? AND state = 'offered' AND lease_until > 0"
FINALS_FROM = f"""
SELECT seq FROM deliveries WHERE consumer = ? AND mailbox = ? AND seq > ? AND state IN {_FINAL} ORDER BY seq LIMIT 1000
"""
NEXT_STORED = "SELECT seq FROM messages WHERE mailbox = ? AND seq > ? ORDER BY seq LIMIT 1"
MOVE = "UPDATE cursors SET seq = ? WHERE consumer = ? AND mailbox = ?"
SEEN_BY = """
SELECT message, consumer FROM deliveries
WHERE message IN (SELECT value FROM json_each(?)) AND state IN ('seen', 'answered') ORDER BY seen_at, consumer
"""


def cursor_of(connection: sqlite3.Connection, consumer: str, mailbox: str) -> int:
    """Return a consumer's cursor, 0 when it has none."""
    row = connection.execute(CURSOR, (consumer, mailbox)).fetchone()
    return int(row[0]) if row else 0


def count_unread(connection: sqlite3.Connection, consumer: str, mailbox: str, now: int = 0) -> tuple[int, int, int]:
    """Return (unread, leased of those at `now`, cursor)."""
    cursor = cursor_of(connection, consumer, mailbox)
    head = connection.execute(HEAD, (mailbox,)).fetchone()
    if head is None or head[0] <= cursor:
        return 0, 0, cursor
    final, leased = connection.execute(ABOVE, (now, consumer, mailbox, cursor)).fetchone()
    return int(head[0]) - cursor - int(final), int(leased), cursor


def unread(connection: sqlite3.Connection, reader: Reader, now: int, *, by_channel: bool) -> Unread:
    """Count what is not final for a reader."""
    total, on_the_way, oldest, channels = 0, 0, list[int](), dict[str, int]()
    for mailbox in reader.mailboxes:
        count, leased, cursor = count_unread(connection, reader.consumer, mailbox, now)
        if not count:
            continue
        total += count
        on_the_way += leased
        row = connection.execute(OLDEST, (mailbox, cursor)).fetchone()
        if row:
            oldest.append(int(row[0]))
        if by_channel:
            named = {"consumer": reader.consumer, "mailbox": mailbox, "cursor": cursor}
            for channel, number in connection.execute(BY_CHANNEL, named):
                channels[channel] = channels.get(channel, 0) + number
    first = from_micros(min(oldest)) if oldest else None
    return Unread(count=total, leased=on_the_way, oldest=first, by_channel=channels)


def prove(
    tx: Transaction, deliveries: Collection[DeliveryId], evidence: str, consumer: Consumer | None
) -> list[Delivery]:
    """Move offered deliveries to seen."""
    changed = []
    touched: set[tuple[str, str]] = set()
    for delivery_id in deliveries:
        row = tx.execute(BY_DELIVERY, (delivery_id,)).fetchone()
        if row is None or consumer not in (None, row[2]):
            continue
        tx.execute(SEE, (tx.now_micros, evidence, delivery_id))
        touched.add((row[2], row[12]))
        changed.append(delivery_from((*row[:3], "seen", *row[4:8], tx.now_micros, evidence, *row[10:])))
    _announce_seen(tx, changed, evidence)
    for name, mailbox in touched:
        advance(tx, name, mailbox)
    return changed


def acknowledge(tx: Transaction, reader: Reader, messages: Collection[MessageId], evidence: str) -> list[Delivery]:
    """Mark messages seen for a consumer, offered before or not."""
    changed = []
    touched: set[str] = set()
    for message_id in messages:
        row = tx.execute(BY_ID, (message_id,)).fetchone()
        if row is None:
            raise NotFound(f"There is no message {message_id[:80]!r}.", "See the ids with: harken list")
        message = from_row(row)
        if message.seq <= cursor_of(tx.connection, reader.consumer, message.mailbox):
            continue
        delivery = _see(tx, reader, message, evidence)
        if delivery is not None:
            changed.append(delivery)
            touched.add(message.mailbox)
    _announce_seen(tx, changed, evidence)
    for mailbox in touched:
        advance(tx, reader.consumer, mailbox)
    return changed


def _see(tx: Transaction, reader: Reader, message: Message, evidence: str) -> Delivery | None:
    place = (reader.consumer, message.mailbox, message.seq)
    row = tx.execute(OF_CONSUMER, place).fetchone()
    if row is not None and State(row[3]).is_final:
        return None
    if row is None:
        tx.execute(
            INSERT,
            (*place, fresh_id("d-"), message.id, evidence, reader.session, "", tx.now_micros, 0),
        )
        tx.execute(NEW_CURSOR, (reader.consumer, message.mailbox))
    row = tx.execute(OF_CONSUMER, place).fetchone()
    tx.execute(SEE, (tx.now_micros, evidence, row[0]))
    return delivery_from(tx.execute(OF_CONSUMER, place).fetchone())


def own(tx: Transaction, author: Consumer, message: Message) -> None:
    """Let what a reader said be seen by that reader. Not journaled: the message itself says who said it."""
    if tx.execute(CURSOR, (author, message.mailbox)).fetchone() is not None:
        place = (author, message.mailbox, message.seq)
        tx.execute(OWN, (*place, fresh_id("d-"), message.id, tx.now_micros, tx.now_micros))
        advance(tx, author, message.mailbox)


def _announce_seen(tx: Transaction, changed: Collection[Delivery], evidence: str) -> None:
    by_consumer: dict[str, dict[str, str]] = {}
    for delivery in changed:
        by_consumer.setdefault(delivery.consumer, {})[delivery.id] = delivery.message_id
    for consumer, ids in by_consumer.items():
        tx.note("seen", {"consumer": consumer, "evidence": evidence, "deliveries": ids})


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


def release(tx: Transaction, session: SessionKey, carriers: Collection[str] | None) -> int:
    """End leases of a session."""
    if carriers is None:
        return _freed(tx, tx.execute(RELEASE, (session,)))
    return sum(_freed(tx, tx.execute(RELEASE_CARRIER, (session, carrier))) for carrier in carriers)


def renew(
    tx: Transaction, session: SessionKey, deliveries: Collection[DeliveryId], carrier: str, lease_until: datetime
) -> int:
    """Lease again what was released and is nobody's."""
    until = to_micros(lease_until)
    return sum(tx.execute(RENEW, (until, session, carrier, delivery)).rowcount for delivery in deliveries)


def withdraw(tx: Transaction, session: SessionKey, carrier: str) -> int:
    """Undo an offer that was never handed over."""
    rows = tx.execute(WITHDRAW, (session, carrier)).fetchall()
    released = _freed(tx, rows) + release(tx, session, [carrier])
    if released:
        messages = [row[1] for row in rows]
        tx.note("withdrawn", {"session": session, "messages": messages, "released": released - len(rows)})
    return released


def undo(tx: Transaction, deliveries: Collection[DeliveryId], carrier: str) -> int:
    """Undo offers that were never handed over, whose session may have got another name meanwhile."""
    gone = [row for each in deliveries for row in tx.execute(UNDO, (each, carrier)).fetchall()]
    released = [row for each in deliveries for row in tx.execute(UNLEASE, (each, carrier)).fetchall()]
    if gone or released:
        session, messages = (gone or released)[0][2], [row[1] for row in gone]
        tx.note("withdrawn", {"session": session, "messages": messages, "released": len(released)})
    return _freed(tx, [*gone, *released])


def release_except(tx: Transaction, sessions: Collection[SessionKey], kinds: Collection[str] = ()) -> int:
    """End the leases of sessions that are gone, all or those of some kinds."""
    begins = tuple(kinds) or ("",)
    gone = [row[0] for row in tx.execute(OPEN_SESSIONS) if row[0] not in sessions and row[0].startswith(begins)]
    return sum(release(tx, session, None) for session in gone)


def transfer(tx: Transaction, session: SessionKey, to: SessionKey) -> int:
    """Let a session's open offers be another's."""
    return tx.execute(TRANSFER, (to, session)).rowcount


def reassign(
    tx: Transaction, deliveries: Collection[DeliveryId], consumer: Consumer, session: SessionKey, carrier: str
) -> list[DeliveryId]:
    """Let open offers of a consumer be a session's, by a carrier."""
    changed = [tx.execute(REASSIGN, (session, carrier, each, consumer)).fetchone() for each in deliveries]
    return [DeliveryId(row[0]) for row in changed if row is not None]


def _freed(tx: Transaction, rows: Iterable[Sequence[Any]]) -> int:
    """Ring for the mailboxes of rows that may be offered again: someone may be waiting for them."""
    mailboxes = [Mailbox(row[0]) for row in rows]
    tx.grown.update(mailboxes)
    return len(mailboxes)


def open_offers(connection: sqlite3.Connection, session: SessionKey) -> list[OpenOffer]:
    """Return a session's offers without proof."""
    rows = connection.execute(OPEN_OFFERS, (session,))
    return [OpenOffer(delivery_id=DeliveryId(row[0]), carrier=row[1]) for row in rows]


def seen_by(connection: sqlite3.Connection, messages: Collection[MessageId]) -> dict[MessageId, list[Consumer]]:
    """Return who has seen each of some messages."""
    seen: dict[MessageId, list[Consumer]] = {message: [] for message in messages}
    for message, consumer in connection.execute(SEEN_BY, (encode_json(list(messages)),)):
        seen[message].append(consumer)
    return seen


def surfaces(connection: sqlite3.Connection, since: datetime) -> list[SurfaceRecord]:
    """Return how what was offered since a time went, per consumer and surface."""
    rows = connection.execute(SURFACES, (to_micros(since),)).fetchall()
    return [
        SurfaceRecord(
            consumer=Consumer(consumer),
            surface=surface,
            offered=offered,
            seen=seen,
            last_offered_at=from_micros(last_offered),
            last_seen_at=optional_moment(last_seen),
            evidence=connection.execute(LAST_EVIDENCE, (consumer, surface, last_seen)).fetchone()[0] if seen else "",
        )
        for consumer, surface, offered, seen, last_offered, last_seen in rows
    ]


def ledger(connection: sqlite3.Connection, message: MessageId) -> list[Delivery]:
    """Return the deliveries of a message."""
    return [delivery_from(row) for row in connection.execute(OF_MESSAGE, (message,))]


def delivery_from(row: Sequence[Any]) -> Delivery:
    """Build a delivery from the columns of `DELIVERY`."""
    return Delivery(
        id=DeliveryId(row[0]),
        message_id=MessageId(row[1]),
        consumer=Consumer(row[2]),
        state=State(row[3]),
        surface=row[4],
        session=SessionKey(row[5]),
        offered_at=from_micros(row[6]),
        offers=row[7],
        seen_at=optional_moment(row[8]),
        evidence=row[9],
        answered_at=optional_moment(row[10]),
        reason=row[11],
    )
