"""Rows of messages: their columns, and how they become messages again. What is done with them is in `messages`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from harken.model import (
    Attention,
    Mailbox,
    Message,
    MessageId,
    MessageKind,
    Priority,
    Sender,
    Trust,
)
from harken.store.contract.messages import MAX_READ_CHARS, Filter
from harken.store.sqlite.transaction import (
    encode_json,
    for_rows,
    from_micros,
    optional_micros,
    optional_moment,
)

COLUMNS = (
    "m.id, m.mailbox, m.seq, m.received_at, m.source, m.channel, m.conversation, m.thread, m.kind, m.trust, "
    "m.attention, m.priority, m.sender_id, m.sender_name, m.upstream_id, m.sent_at, m.refers_to, m.meta, m.text"
)
MESSAGE_WIDTH = COLUMNS.count(",") + 1
_TEXT = MESSAGE_WIDTH - 1
HEAD = "SELECT head FROM mailboxes WHERE name = ?"
SET_HEAD = "INSERT INTO mailboxes (name, head) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET head = excluded.head"
# Whoever is not enrolled begins at the beginning: nothing is left out.
NEW_CURSOR = """
INSERT INTO cursors (consumer, mailbox, seq, left_out_older, left_out_surplus, left_out_up_to)
VALUES (?, ?, 0, 0, 0, 0) ON CONFLICT DO NOTHING
"""
INSERT = for_rows(
    """
INSERT INTO messages (id, mailbox, seq, received_at, source, channel, conversation, thread, kind, trust, attention,
    priority, sender_id, sender_name, upstream_id, sent_at, refers_to, meta, text)
""",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
)
BY_ID = f"SELECT {COLUMNS} FROM messages m WHERE m.id = ?"
WHERE = """
    (:mailbox = '' OR m.mailbox = :mailbox)
    AND (CAST(:among AS TEXT) IS NULL OR m.mailbox IN (SELECT value FROM json_each(:among)))
    AND (:channel = '' OR m.channel = :channel)
    AND (:sender = '' OR m.sender_id = :sender OR m.sender_name = :sender)
    AND (:source = '' OR m.source = :source)
    AND (:thread = '' OR m.thread = :thread)
    AND (CAST(:since AS BIGINT) IS NULL OR m.received_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR m.received_at < :until)
    AND m.seq > :after
    AND (:before = 0 OR m.seq < :before)
"""


def from_row(row: Sequence[Any]) -> Message:
    """Build a message from the columns of `COLUMNS`."""
    return Message(
        id=MessageId(row[0]),
        mailbox=Mailbox(row[1]),
        seq=row[2],
        received_at=from_micros(row[3]),
        source=row[4],
        channel=row[5],
        conversation=row[6],
        thread=row[7],
        kind=MessageKind(row[8]),
        trust=Trust(row[9]),
        attention=Attention(row[10]),
        priority=Priority(row[11]),
        sender=Sender(row[12], row[13]),
        upstream_id=row[14],
        sent_at=optional_moment(row[15]),
        refers_to=None if row[16] is None else MessageId(row[16]),
        meta=msgspec.json.decode(row[17], type=dict[str, str]) if row[17] != "{}" else {},
        text=row[18],
    )


def within_memory(rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yield rows that begin with `COLUMNS`, up to the one with which their texts reach `MAX_READ_CHARS`."""
    characters = 0
    for row in rows:
        yield row
        characters += len(row[_TEXT] or "")
        if characters >= MAX_READ_CHARS:
            return


def row_of(message: Message, now: int) -> tuple[object, ...]:
    """Return the values of `INSERT`."""
    return (
        message.id, message.mailbox, message.seq, now, message.source, message.channel, message.conversation,
        message.thread, message.kind.value, message.trust.value, message.attention.value, message.priority.value,
        message.sender.id, message.sender.name, message.upstream_id, optional_micros(message.sent_at),
        message.refers_to, encode_json(message.meta) if message.meta else "{}", message.text,
    )  # fmt: skip


def parameters(where: Filter) -> dict[str, object]:
    """Return the named parameters of `WHERE`."""
    return {
        "mailbox": where.mailbox,
        "among": None if where.among is None else encode_json(where.among),
        "channel": where.channel,
        "sender": where.sender,
        "source": where.source,
        "thread": where.thread,
        "since": optional_micros(where.since),
        "until": optional_micros(where.until),
        "after": where.after,
        "before": where.before,
    }
