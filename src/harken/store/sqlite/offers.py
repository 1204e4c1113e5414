"""Offering: what waits for a reader now, and leasing it to the reader's session.

What becomes of an offer, and where cursors are, is in `deliveries`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from harken.errors import NotFound
from harken.model import Choose, Consumer, DeliveryId, Message, MessageId, Offer, Priority, Reader, Selection, fresh_id
from harken.store.contract.deliveries import MOST_OFFER_CHARS, OfferFilter
from harken.store.sqlite.delivery_rows import INSERT, cursor_of
from harken.store.sqlite.message_rows import COLUMNS, MESSAGE_WIDTH, from_row
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
        AND m.channel NOT IN (SELECT value FROM json_each(:muted_channels))
        AND m.sender_id NOT IN (SELECT value FROM json_each(:muted_senders))
        AND m.sender_name NOT IN (SELECT value FROM json_each(:muted_senders))))
    AND (d.state IS NULL OR (
        d.state = 'offered' AND (d.lease_until <= :now OR d.offered_at - :now > d.lease_until - d.offered_at)))
"""
WAITING = f"{_WAITING} ORDER BY m.seq LIMIT :limit"
WAITING_URGENT = f"{_WAITING} AND m.priority = 'high' ORDER BY m.seq LIMIT :limit"
NUMBER_OF = "SELECT n FROM messages WHERE id = ?"
READ_BY = """
SELECT message, consumer, state FROM deliveries
WHERE message IN (SELECT value FROM json_each(?)) AND state IN ('seen', 'answered') ORDER BY seen_at, consumer
"""
OFFER_AGAIN = """
UPDATE deliveries SET surface = ?, session = ?, carrier = ?, offers = offers + 1, offered_at = ?, lease_until = ?
WHERE id = ?
"""
MOST_LOOKED_AT = 500
"""How many are looked at, at most, for some that an answer can carry."""
LONG_CHARS = 64_000
MOST_LONG_CHARS = 32_000_000
"""How much text of long messages is looked at. What is short and waits behind more of them is looked at as well."""


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """Which of the waiting messages: how many, of which channel, after which, and what filter they pass."""

    limit: int
    channel: str = ""
    after: str = ""
    where: OfferFilter | None = None

    def named(self) -> dict[str, object]:
        """Return what it says as parameters of the statement."""
        where = self.where or OfferFilter()
        return {
            "limit": self.limit,
            "channel": self.channel,
            "only": None if where.only is None else encode_json(sorted(where.only)),
            "without": encode_json(sorted(where.without)),
            "since": 0 if where.since is None else to_micros(where.since),
            "is_bounded": int(self.where is not None),
            "attentions": encode_json(sorted(where.attentions)),
            "trusts": encode_json(sorted(where.trusts)),
            "muted_channels": encode_json(sorted(where.mutes.channels)),
            "muted_senders": encode_json(sorted(where.mutes.senders)),
        }


def waiting(
    connection: sqlite3.Connection, reader: Reader, wanted: OfferQuery, *, now: int, oldest_first: bool = False
) -> list[tuple[Message, str | None]]:
    """Return what may be offered now, with the delivery id of what was offered before."""
    if wanted.where is not None and wanted.where.mutes.is_total:
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
        rows, count = _looked_at(connection.execute(WAITING, named))
        if count == wanted.limit:
            # More may wait than was asked for, and what is urgent among that goes first.
            rows += _looked_at(connection.execute(WAITING_URGENT, named))[0]
        found.update((row[MESSAGE_WIDTH], (from_row(row), row[MESSAGE_WIDTH + 1])) for row in rows)
    order = sorted(found, key=lambda n: (found[n][0].priority is not Priority.HIGH, n))[: wanted.limit]
    return [found[n] for n in (sorted(order) if oldest_first else order)]


def _looked_at(rows: Iterable[Sequence[Any]]) -> tuple[list[Sequence[Any]], int]:
    """Return the rows without the long ones that are too much together, and how many there were with them."""
    kept, count, characters = list[Sequence[Any]](), 0, 0
    for row in rows:
        count += 1
        length = len(row[MESSAGE_WIDTH - 1])
        if length <= LONG_CHARS or characters < MOST_LONG_CHARS:
            kept.append(row)
            characters += length if length > LONG_CHARS else 0
    return kept, count


def _holds_all_long(found: Sequence[Message]) -> bool:
    """Whether no long message was left out of what was looked at."""
    return sum(len(each.text) for each in found if len(each.text) > LONG_CHARS) < MOST_LONG_CHARS


def fitting(found: Sequence[Message]) -> int:
    """Return how many of the first one answer can carry: all, or up to the one with which the bound is reached."""
    characters = 0
    for index, message in enumerate(found):
        characters += len(message.text)
        if characters >= MOST_OFFER_CHARS:
            return index + 1
    return len(found)


def all_that_fit(offers: Sequence[Offer], limit: int) -> Selection:
    """Let go whole what comes first, for a reader that has no bound but ours."""
    whole = offers[: min(limit, fitting([each.message for each in offers]))]
    return Selection(whole=whole, is_full=sum(len(each.message.text) for each in whole) >= MOST_OFFER_CHARS)


def offer(
    tx: Transaction,
    reader: Reader,
    wanted: OfferQuery,
    *,
    surface: str,
    carrier: str,
    lease_until: datetime,
) -> Selection:
    """Lease to the reader's session what waits and goes whole."""
    until = to_micros(lease_until)
    selection = _selected(tx, reader, wanted)
    for each in selection.whole:
        message, delivery = each.message, each.delivery_id
        if each.is_repeat:
            tx.execute(OFFER_AGAIN, (surface, reader.session, carrier, tx.now_micros, until, delivery))
        else:
            tx.execute(
                INSERT,
                (reader.consumer, message.mailbox, message.seq, delivery, message.id, surface, reader.session,
                 carrier, tx.now_micros, until),
            )  # fmt: skip
    if selection.whole:
        tx.note(
            "offered",
            {
                "consumer": reader.consumer,
                "session": reader.session,
                "surface": surface,
                "deliveries": {each.delivery_id: each.message.id for each in selection.whole},
                "repeats": sum(each.is_repeat for each in selection.whole),
            },
        )
    return selection


def _selected(tx: Transaction, reader: Reader, wanted: OfferQuery) -> Selection:
    """Return what goes into one answer; what is too long for any lets others be looked at in its place."""
    choose: Choose = (wanted.where and wanted.where.choose) or all_that_fit
    looked_at = wanted.limit
    while True:
        offers = _candidates(tx, reader, replace(wanted, limit=looked_at))
        selection = choose(offers, wanted.limit)
        is_enough = selection.is_full or not selection.too_long or len(selection.whole) >= wanted.limit
        is_all = len(offers) < looked_at and _holds_all_long([each.message for each in offers])
        if is_enough or is_all or looked_at >= MOST_LOOKED_AT:
            return selection
        looked_at = min(2 * looked_at, MOST_LOOKED_AT)


def _candidates(tx: Transaction, reader: Reader, wanted: OfferQuery) -> list[Offer]:
    """Return what may be offered now, as it would be."""
    found = waiting(tx.connection, reader, wanted, now=tx.now_micros)
    read: dict[MessageId, list[tuple[Consumer, str]]] = {message.id: [] for message, _ in found}
    for message_id, consumer, state in tx.execute(READ_BY, (encode_json(list(read)),)) if found else ():
        read[message_id].append((consumer, state))
    return [
        Offer(
            message=message,
            delivery_id=DeliveryId(earlier or fresh_id("d-")),
            offered_at=tx.now,
            is_repeat=earlier is not None,
            answered_by=next(
                (c for c, state in read[message.id] if state == "answered" and c != reader.consumer), None
            ),
            seen_by=tuple(consumer for consumer, _ in read[message.id]),
        )
        for message, earlier in found
    ]
