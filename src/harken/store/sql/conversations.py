"""Conversations: rows that triggers of the schema keep, and what the person does about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from harken.model import REPLIES, MessageId, timestamp
from harken.store.contract.conversations import (
    MAX_UNREAD_COUNTED,
    MAX_WALKED,
    ConversationCounts,
    ConversationKey,
    ConversationState,
    ConversationSummary,
    ConversationView,
)
from harken.store.sql.transaction import (
    COLUMNS,
    MESSAGE_WIDTH,
    Readers,
    SqlConnection,
    Transaction,
    from_row,
    optional_micros,
    optional_moment,
    to_micros,
)
from harken.store.sql.writer import Writer

MAX: Final = 2**63 - 1
MARKED: Final = "unread"
UNMARKED: Final = "read"

# The sign keeps the column's own type out of the comparison: with it the index would not be used.
_UNREAD = f"""(SELECT count(*) FROM (
    SELECT t.n, t.mailbox, t.seq FROM messages t
    WHERE t.source = c.source AND iif(t.thread = '', t.id, t.thread) = +c.thread
    ORDER BY t.n DESC LIMIT {MAX_UNREAD_COUNTED}) u
    WHERE u.mailbox NOT LIKE 'trial:%' AND u.mailbox NOT LIKE 'task:%'
        AND u.seq > coalesce((SELECT s.seq FROM cursors s WHERE s.consumer = 'watch' AND s.mailbox = u.mailbox), 0)
        AND NOT EXISTS (SELECT 1 FROM deliveries d
            WHERE d.consumer = 'watch' AND d.mailbox = u.mailbox AND d.seq = u.seq AND d.state <> 'offered'))"""
_ASKED = """(c.source, c.thread) IN (
    SELECT t.source, iif(t.thread = '', t.id, t.thread) FROM questions q JOIN messages t ON t.id = q.message)"""
_SELECT = f"""
SELECT {COLUMNS}, c.source, c.thread, c.count, c.state, c.until, c.is_marked, c.last_n, {_UNREAD}, {_ASKED}
FROM {{}} c JOIN messages m ON m.n = c.last_n
"""
_ROWS = _SELECT.format("conversations")
_WALKED = _SELECT.format(
    f"(SELECT * FROM conversations WHERE state = :state AND last_n < :before ORDER BY last_n DESC LIMIT {MAX_WALKED})"
)
OF_STATE = f"{_ROWS} WHERE c.state = :state AND c.last_n < :before ORDER BY c.last_n DESC LIMIT :limit"
UNREAD = f"{_WALKED} WHERE c.is_marked OR {_UNREAD} > 0 ORDER BY c.last_n DESC LIMIT :limit"
FOR_YOU = f"""{_WALKED}
WHERE m.mailbox = '{REPLIES}' OR {_ASKED} OR (m.attention = 'wake' AND m.trust <> 'unknown' AND m.source <> 'local')
ORDER BY c.last_n DESC LIMIT :limit
"""
DUE = f"{_ROWS} WHERE c.state = 'snoozed' AND c.until <= :at ORDER BY c.until DESC LIMIT :limit"
PUT_OFF = f"{_ROWS} WHERE c.state = 'snoozed' AND c.until > :at ORDER BY c.until, c.last_n LIMIT :limit"
BY_KEY = f"{_ROWS} WHERE c.source = ? AND c.thread = ?"
KEY = """
SELECT source, iif(thread = '', id, thread) FROM messages
WHERE id = ? AND mailbox NOT LIKE 'trial:%' AND mailbox NOT LIKE 'task:%'
"""
COUNTS = "SELECT iif(state = 'snoozed' AND until <= ?, 'open', state), count(*) FROM conversations GROUP BY 1"
NEXT_DUE = "SELECT min(until) FROM conversations WHERE state = 'snoozed' AND until > ?"
PUT = """
UPDATE conversations SET state = :state, until = :until, is_marked = iif(:state = 'done', 0, is_marked)
WHERE source = :source AND thread = :thread AND (state <> :state OR until IS NOT :until)
"""
MARK = "UPDATE conversations SET is_marked = ? WHERE source = ? AND thread = ? AND is_marked <> ?"
NEWEST = """
SELECT m.id FROM conversations c JOIN messages m ON m.n = c.last_n WHERE c.source = ? AND c.thread = ?
"""


def listed(
    connection: SqlConnection, view: ConversationView, limit: int, *, at: datetime, before: int
) -> list[ConversationSummary]:
    """Return conversations, the newest first."""
    state = ConversationState.OPEN if view in _PARTS else ConversationState(view.value)
    named = {"state": state.value, "before": before or MAX, "limit": limit, "at": to_micros(at)}
    if view is ConversationView.SNOOZED:
        return [] if before else _read(connection, PUT_OFF, named)
    found = _read(connection, _PARTS.get(view, OF_STATE), named)
    if view is ConversationView.OPEN and not before:
        found = [*_read(connection, DUE, named), *found][:limit]
    return found


_PARTS: Final[Mapping[ConversationView, str]] = {
    ConversationView.OPEN: OF_STATE,
    ConversationView.UNREAD: UNREAD,
    ConversationView.FOR_YOU: FOR_YOU,
}


def of_messages(connection: SqlConnection, messages: Collection[MessageId]) -> dict[MessageId, ConversationSummary]:
    """Return the conversations of some messages."""
    found: dict[MessageId, ConversationSummary] = {}
    for message in messages:
        key = connection.execute(KEY, (message,)).fetchone()
        row = connection.execute(BY_KEY, key).fetchone() if key else None
        if row is not None:
            found[message] = _conversation(row)
    return found


def counts(connection: SqlConnection, at: datetime) -> ConversationCounts:
    """Return how many conversations there are in each state."""
    rows = connection.execute(COUNTS, (to_micros(at),)).fetchall()
    by_state = dict.fromkeys(ConversationState, 0) | {ConversationState(state): n for state, n in rows}
    next_due = connection.execute(NEXT_DUE, (to_micros(at),)).fetchone()[0]
    return ConversationCounts(by_state=by_state, next_due=optional_moment(next_due))


def put(tx: Transaction, keys: Collection[ConversationKey], state: ConversationState, until: datetime | None) -> int:
    """Put conversations where the person wants them."""
    named = {"state": state.value, "until": optional_micros(until)}
    moved = [
        key
        for key in keys
        if tx.connection.execute(PUT, {**named, "source": key.source, "thread": key.thread}).rowcount
    ]
    for key in moved:
        _note(tx, key, state.value, until)
    return len(moved)


def mark(tx: Transaction, keys: Collection[ConversationKey], *, is_unread: bool) -> int:
    """Let conversations count as unread, or no longer."""
    changed = [key for key in keys if tx.execute(MARK, (is_unread, key.source, key.thread, is_unread)).rowcount]
    for key in changed:
        _note(tx, key, MARKED if is_unread else UNMARKED, None)
    return len(changed)


def replay(tx: Transaction, message: str, state: str, until: datetime | None) -> None:
    """Do again what the journal tells."""
    key = ConversationKey(**dict(zip(("source", "thread"), tx.execute(KEY, (message,)).fetchone(), strict=True)))
    if state in (MARKED, UNMARKED):
        tx.execute(MARK, (state == MARKED, key.source, key.thread, state == MARKED))
        return
    named = {"state": ConversationState(state).value, "until": optional_micros(until)}
    tx.connection.execute(PUT, {**named, "source": key.source, "thread": key.thread})


def _note(tx: Transaction, key: ConversationKey, state: str, until: datetime | None) -> None:
    [message] = tx.execute(NEWEST, (key.source, key.thread)).fetchone() or [""]
    until_text = None if until is None else timestamp(until)
    tx.note("triage", {"message_id": message, "state": state, "until": until_text})


def _read(connection: SqlConnection, sql: str, named: Mapping[str, object]) -> list[ConversationSummary]:
    return [_conversation(row) for row in connection.execute(sql, named)]


def _conversation(row: Sequence[Any]) -> ConversationSummary:
    source, thread, count, state, until, is_marked, last_n, unread, is_asked = row[MESSAGE_WIDTH:]
    return ConversationSummary(
        key=ConversationKey(source=source, thread=thread),
        newest=from_row(row),
        count=count,
        state=ConversationState(state),
        until=optional_moment(until),
        unread=unread,
        is_marked=bool(is_marked),
        is_asked=bool(is_asked),
        position=last_n,
    )


class SqlConversations:
    """The contract of `ConversationStore`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def list(
        self, view: ConversationView, limit: int, *, at: datetime, before: int = 0
    ) -> Sequence[ConversationSummary]:
        """Return conversations, the newest first."""
        return await self._readers.run(lambda db: listed(db, view, limit, at=at, before=before))

    async def of(self, messages: Collection[MessageId]) -> Mapping[MessageId, ConversationSummary]:
        """Return the conversations of some messages."""
        return await self._readers.run(lambda db: of_messages(db, messages))

    async def counts(self, at: datetime) -> ConversationCounts:
        """Return how many conversations there are in each state."""
        return await self._readers.run(lambda db: counts(db, at))

    async def put(
        self, keys: Collection[ConversationKey], state: ConversationState, *, until: datetime | None = None
    ) -> int:
        """Put conversations where the person wants them."""
        return await self._writer.run(lambda tx: put(tx, keys, state, until))

    async def mark(self, keys: Collection[ConversationKey], *, is_unread: bool) -> int:
        """Let conversations count as unread, or no longer."""
        return await self._writer.run(lambda tx: mark(tx, keys, is_unread=is_unread))
