"""Questions: rows that are there while a sender waits for an answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from harken.model import RULES, WATCH, Mailbox, Message, MessageId, MessageKind, NewMessage
from harken.store.contract.messages import AppendResult
from harken.store.contract.questions import Question, QuestionCount
from harken.store.sql.transaction import (
    BY_ID,
    COLUMNS,
    MESSAGE_WIDTH,
    Readers,
    SqlConnection,
    Transaction,
    encode_json,
    from_micros,
    from_row,
    to_micros,
)
from harken.store.sql.writer import Writer

BY_REPLY, BY_PERSON_UPSTREAM, BY_DELETION, BY_RETENTION = "reply", "answered upstream", "deleted", "retention"

_SELECT = f"""
SELECT {COLUMNS}, q.tried, q.due_at, q.reminders,
    EXISTS (SELECT 1 FROM deliveries d WHERE d.message = q.message AND d.state IN ('seen', 'answered')
        AND d.consumer NOT IN ('{WATCH}', '{RULES}')),
    EXISTS (SELECT 1 FROM outbox o WHERE o.message = q.message AND o.state = 'queued'
        AND o.subscription = '')
FROM questions q JOIN messages m ON m.id = q.message
"""
OPEN = f"""{_SELECT}
WHERE CAST(:among AS TEXT) IS NULL OR q.mailbox IN (SELECT value FROM json_each(:among))
ORDER BY q.asked_at, m.n LIMIT :limit
"""
NAMED = f"""{_SELECT}
WHERE q.message IN (SELECT value FROM json_each(:named))
    AND (CAST(:among AS TEXT) IS NULL OR q.mailbox IN (SELECT value FROM json_each(:among)))
ORDER BY q.asked_at, m.n LIMIT :limit
"""
DUE = f"{_SELECT} WHERE q.due_at <= ? ORDER BY q.due_at, m.n LIMIT ?"
COUNTS = "SELECT mailbox, count(*), min(asked_at) FROM questions GROUP BY mailbox ORDER BY mailbox"
ASK = """
INSERT INTO questions (message, mailbox, source, conversation, sender, asked_at, due_at)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
MOVE = """
UPDATE questions SET due_at = :due_at, reminders = reminders + :told,
    tried = iif(:way = '' OR instr(',' || tried || ',', ',' || :way || ',') > 0, tried,
        ltrim(tried || ',' || :way, ','))
WHERE message = :message
"""
WAKE = "UPDATE questions SET due_at = ? WHERE due_at > ?"
SETTLE = "DELETE FROM questions WHERE message = ?"
# What somebody asked before in the same conversation is answered with it. Not by `seq`: a route may have parted them.
# Only what the same sender asked: anybody can join a conversation, or name one in a mail.
EARLIER = """
SELECT q.message FROM questions q
WHERE q.message = :id OR (:conversation <> '' AND q.source = :source AND q.conversation = :conversation
    AND q.asked_at <= :at AND (:sender = '' OR q.sender = :sender))
"""


def note_appended(tx: Transaction, new: Sequence[NewMessage], appended: Sequence[AppendResult]) -> None:
    """Open and close questions by what was just stored."""
    for asked, each in zip(new, appended, strict=True):
        if not each.is_new:
            continue
        message = each.message
        if asked.is_question:
            at = tx.now_micros
            sender = message.sender.id
            row = (message.id, message.mailbox, message.source, message.conversation, sender, at, at)
            tx.execute(ASK, row)
        if asked.is_answer:
            # Whoever wrote there has read what stands above it, whoever asked.
            _close(tx, _earlier(tx, message, ""), BY_PERSON_UPSTREAM)
        if message.kind is MessageKind.DELETION and message.refers_to is not None:
            _close(tx, (message.refers_to,), BY_DELETION)


def note_sent(tx: Transaction, message_id: MessageId) -> None:
    """Close what is answered by a reply that has left."""
    found = tx.execute(BY_ID, (message_id,)).fetchone()
    if found is not None:
        message = from_row(found)
        _close(tx, _earlier(tx, message, message.sender.id), BY_REPLY)


def note_removed(tx: Transaction, messages: Iterable[MessageId]) -> None:
    """Close what retention removes."""
    _close(tx, messages, BY_RETENTION)


def opened(
    connection: SqlConnection,
    limit: int,
    mailboxes: Collection[Mailbox] | None,
    messages: Collection[MessageId] | None = None,
) -> list[Question]:
    """Return what waits, the oldest first."""
    values = {"among": None if mailboxes is None else encode_json(list(mailboxes)), "limit": limit}
    if messages is None:
        return [_question(row) for row in connection.execute(OPEN, values)]
    return [_question(row) for row in connection.execute(NAMED, values | {"named": encode_json(list(messages))})]


def due(connection: SqlConnection, at: datetime, limit: int) -> list[Question]:
    """Return what is to be decided."""
    return [_question(row) for row in connection.execute(DUE, (to_micros(at), limit))]


def counts(connection: SqlConnection) -> list[QuestionCount]:
    """Return how much waits, by mailbox."""
    return [
        QuestionCount(mailbox=Mailbox(row[0]), count=row[1], oldest=from_micros(row[2]))
        for row in connection.execute(COUNTS)
    ]


def move(tx: Transaction, messages: Collection[MessageId], *, due_at: datetime, way: str, kind: str) -> int:
    """Let nothing be due for questions until then."""
    named = {"due_at": to_micros(due_at), "way": way, "told": int(bool(kind))}
    still = [each for each in messages if tx.connection.execute(MOVE, {**named, "message": each}).rowcount]
    if kind:
        for message in still:
            tx.note(kind, {"message_id": message, "how": way})
    return len(still)


def wake(tx: Transaction, beyond: datetime) -> int:
    """Let questions that were put off for long be due now."""
    return tx.execute(WAKE, (tx.now_micros, to_micros(beyond))).rowcount


def settle(tx: Transaction, messages: Iterable[MessageId], by: str) -> int:
    """Close questions."""
    return _close(tx, messages, by)


def _close(tx: Transaction, messages: Iterable[MessageId], by: str) -> int:
    closed = [message for message in messages if tx.execute(SETTLE, (message,)).rowcount]
    for message in closed:
        tx.note("settled", {"message_id": message, "by": by})
    return len(closed)


def _earlier(tx: Transaction, message: Message, sender: str) -> list[MessageId]:
    named = {
        "sender": sender,
        "id": message.id,
        "source": message.source,
        "conversation": message.conversation,
        "at": to_micros(message.received_at),
    }
    return [MessageId(row[0]) for row in tx.connection.execute(EARLIER, named).fetchall()]


def _question(row: Sequence[Any]) -> Question:
    tried, due_at, reminders, is_seen, has_reply = row[MESSAGE_WIDTH:]
    return Question(
        message=from_row(row),
        due_at=from_micros(due_at),
        tried=frozenset(tried.split(",")) if tried else frozenset(),
        reminders=reminders,
        is_seen=bool(is_seen),
        has_reply=bool(has_reply),
    )


class SqlQuestions:
    """The contract of `QuestionStore`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def open(
        self, limit: int, *, mailboxes: Collection[Mailbox] | None = None, messages: Collection[MessageId] | None = None
    ) -> list[Question]:
        """Return open questions."""
        return await self._readers.run(lambda db: opened(db, limit, mailboxes, messages))

    async def counts(self) -> list[QuestionCount]:
        """Return how much waits."""
        return await self._readers.run(counts)

    async def due(self, at: datetime, limit: int) -> list[Question]:
        """Return what is to be decided."""
        return await self._readers.run(lambda db: due(db, at, limit))

    async def move(self, messages: Collection[MessageId], *, due_at: datetime, way: str = "", kind: str = "") -> int:
        """Let nothing be due for questions until then."""
        # That nothing is due yet can be found out again; that somebody was told must not be forgotten.
        return await self._writer.run(
            lambda tx: move(tx, messages, due_at=due_at, way=way, kind=kind), is_durable=bool(kind)
        )

    async def wake(self, beyond: datetime) -> int:
        """Let questions that were put off for long be due now."""
        return await self._writer.run(lambda tx: wake(tx, beyond), is_durable=False)

    async def settle(self, messages: Collection[MessageId], by: str) -> int:
        """Close questions that need no answer."""
        return await self._writer.run(lambda tx: settle(tx, messages, by))
