"""Offering: what waits for a reader now, and leasing it to the reader's session.

What becomes of an offer, and where cursors are, is in `deliveries`.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime

from harken.errors import NotFound
from harken.model import Consumer, DeliveryId, Message, Offer, Priority, Reader, fresh_id
from harken.store.base import MOST_OFFER_CHARS, Reach
from harken.store.sqlite.deliveries import INSERT, cursor_of
from harken.store.sqlite.messages import COLUMNS, MESSAGE_WIDTH, from_row
from harken.store.sqlite.transaction import Transaction, encode_json, to_micros

# A lease that begins more than its own length after now comes from before the clock was set back: it is over.
_WAITING = f"""
SELECT {COLUMNS}, m.n, d.id FROM messages m
LEFT JOIN deliveries d ON d.consumer = :consumer AND d.mailbox = m.mailbox AND d.seq = m.seq
WHERE m.mailbox = :mailbox AND m.seq > :cursor
    AND (:channel = '' OR m.channel = :channel) AND m.n > :after
    AND (:only IS NULL OR m.id IN (SELECT value FROM json_each(:only)))
    AND (:without = '[]' OR m.id NOT IN (SELECT value FROM json_each(:without)))
    AND m.received_at >= :since
    AND (:is_bounded = 0 OR (m.attention IN (SELECT value FROM json_each(:attentions))
        AND m.trust IN (SELECT value FROM json_each(:trusts))
        AND m.channel NOT IN (SELECT value FROM json_each(:hushed_channels))
        AND m.sender_id NOT IN (SELECT value FROM json_each(:hushed_senders))
        AND m.sender_name NOT IN (SELECT value FROM json_each(:hushed_senders))))
    AND (d.state IS NULL OR (
        d.state = 'offered' AND (d.lease_until <= :now OR d.offered_at - :now > d.lease_until - d.offered_at)))
"""
WAITING = f"{_WAITING} ORDER BY m.seq LIMIT :limit"
WAITING_URGENT = f"{_WAITING} AND m.priority = 'high' ORDER BY m.seq LIMIT :limit"
NUMBER_OF = "SELECT n FROM messages WHERE id = ?"
ANSWERED_BY = "SELECT consumer FROM deliveries WHERE message = ? AND state = 'answered' AND consumer <> ? LIMIT 1"
OFFER_AGAIN = """
UPDATE deliveries SET surface = ?, session = ?, carrier = ?, offers = offers + 1, offered_at = ?, lease_until = ?
WHERE id = ?
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which of the waiting messages: how many, of which channel, after which, within what reach."""

    limit: int
    channel: str = ""
    after: str = ""
    reach: Reach | None = None

    def named(self) -> dict[str, object]:
        """Return what it says as parameters of the statement."""
        reach = self.reach or Reach()
        return {
            "limit": self.limit,
            "channel": self.channel,
            "only": None if reach.only is None else encode_json(sorted(reach.only)),
            "without": encode_json(sorted(reach.without)),
            "since": 0 if reach.since is None else to_micros(reach.since),
            "is_bounded": int(self.reach is not None),
            "attentions": encode_json(sorted(reach.attentions)),
            "trusts": encode_json(sorted(reach.trusts)),
            "hushed_channels": encode_json(sorted(reach.hush.channels)),
            "hushed_senders": encode_json(sorted(reach.hush.senders)),
        }


def waiting(
    connection: sqlite3.Connection, reader: Reader, wanted: Wanted, *, now: int, oldest_first: bool = False
) -> list[tuple[Message, str | None]]:
    """Return what may be offered now, with the delivery id of what was offered before."""
    if wanted.reach is not None and wanted.reach.hush.is_total:
        return []
    number = 0
    if wanted.after:
        row = connection.execute(NUMBER_OF, (wanted.after,)).fetchone()
        if row is None:
            hint = "Leave since_id empty to get all that is unread."
            raise NotFound(f"There is no message {wanted.after[:80]!r}.", hint)
        number = int(row[0])
    found: dict[int, tuple[Message, str | None]] = {}
    asked = wanted.named()
    for mailbox in reader.mailboxes:
        named = asked | {
            "consumer": reader.consumer,
            "mailbox": mailbox,
            "cursor": cursor_of(connection, reader.consumer, mailbox),
            "after": number,
            "now": now,
        }
        rows = connection.execute(WAITING, named).fetchall()
        if len(rows) == wanted.limit:
            # More may wait than was asked for, and what is urgent among that goes first.
            rows += connection.execute(WAITING_URGENT, named).fetchall()
        found.update((row[MESSAGE_WIDTH], (from_row(row), row[MESSAGE_WIDTH + 1])) for row in rows)
    order = sorted(found, key=lambda n: (found[n][0].priority is not Priority.HIGH, n))[: wanted.limit]
    return [found[n] for n in (sorted(order) if oldest_first else order)]


def fitting(found: list[tuple[Message, str | None]]) -> list[tuple[Message, str | None]]:
    """Return as many as one answer can carry: all, or up to the one with which the bound is reached."""
    characters = 0
    for index, (message, _) in enumerate(found):
        characters += len(message.text)
        if characters >= MOST_OFFER_CHARS:
            return found[: index + 1]
    return found


def offer(
    tx: Transaction, reader: Reader, wanted: Wanted, *, surface: str, carrier: str, lease_until: datetime
) -> list[Offer]:
    """Lease what waits to the reader's session."""
    until = to_micros(lease_until)
    found = fitting(waiting(tx.connection, reader, wanted, now=tx.now_micros))
    offers = []
    for message, earlier in found:
        delivery = earlier or fresh_id("d-")
        if earlier is None:
            tx.execute(
                INSERT,
                (reader.consumer, message.mailbox, message.seq, delivery, message.id, surface, reader.session,
                 carrier, tx.now_micros, until),
            )  # fmt: skip
        else:
            tx.execute(OFFER_AGAIN, (surface, reader.session, carrier, tx.now_micros, until, delivery))
        other = tx.execute(ANSWERED_BY, (message.id, reader.consumer)).fetchone()
        offers.append(
            Offer(
                message=message,
                delivery_id=DeliveryId(delivery),
                offered_at=tx.now,
                is_repeat=earlier is not None,
                answered_by=Consumer(other[0]) if other else None,
            )
        )
    if offers:
        tx.note(
            "offered",
            {
                "consumer": reader.consumer,
                "session": reader.session,
                "surface": surface,
                "deliveries": {o.delivery_id: o.message.id for o in offers},
                "repeats": sum(o.is_repeat for o in offers),
            },
        )
    return offers
