"""Conversations: which messages they have, filled behind accepting, and what the person does about them.

Which messages belong together and who speaks in each, the view `thread_messages` of the schema says; triggers of the
schema keep the counts as messages are put into `conversation_messages` and go. What reads it goes through
`ConversationIndex`, which puts in first what was accepted before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from harken.errors import NotFound, Unavailable
from harken.model import REPLIES, WATCH, MessageId, Reader, SessionKey, timestamp
from harken.store.contract.conversations import (
    MAX_SEEN_WITH,
    MAX_UNREAD_COUNTED,
    MAX_WALKED,
    ConversationCounts,
    ConversationKey,
    ConversationState,
    ConversationSummary,
    ConversationView,
    Triage,
    TriageResult,
)
from harken.store.sql.deliveries import acknowledge
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

T = TypeVar("T")

MAX: Final = 2**63 - 1
RANKED: Final = 2**52
"""Above it a position is a rank: those that are or were put off come by time, and many may have the same."""
FILL_BATCH: Final = 2_000  # of what is put in with one transaction: others wait for it
MARKED: Final = "unread"
UNMARKED: Final = "read"
_PERSON: Final = Reader(consumer=WATCH, session=SessionKey(""))

FILLED = "SELECT value FROM progress WHERE name = 'conversations'"
HEAD = "SELECT coalesce(max(n), 0) FROM messages"
BATCH_END = "SELECT max(n) FROM (SELECT n FROM messages WHERE n > ? ORDER BY n LIMIT ?) following"
FILL = """
INSERT INTO conversation_messages (source, thread, n, mailbox, seq, role)
SELECT source, thread, n, mailbox, seq, role FROM thread_messages WHERE n > ? AND n <= ? ORDER BY n
"""
ADVANCE = "UPDATE progress SET value = ? WHERE name = 'conversations'"

_UNSEEN = """
u.seq > coalesce((SELECT s.seq FROM cursors s WHERE s.consumer = 'watch' AND s.mailbox = u.mailbox), 0)
    AND NOT EXISTS (SELECT 1 FROM deliveries d
        WHERE d.consumer = 'watch' AND d.mailbox = u.mailbox AND d.seq = u.seq AND d.state <> 'offered')"""
_UNREAD = f"""(SELECT count(*) FROM (
    SELECT t.mailbox, t.seq FROM conversation_messages t
    WHERE t.source = c.source AND t.thread = c.thread AND t.role <> 'task'
    ORDER BY t.n DESC LIMIT {MAX_UNREAD_COUNTED}) u WHERE {_UNSEEN})"""
_ASKED = """(c.source, c.thread) IN (
    SELECT t.source, t.thread FROM questions q CROSS JOIN thread_messages t ON t.id = q.message)"""
_SELECT = f"""
SELECT {COLUMNS}, c.source, c.thread, c.count, c.state, c.until, c.is_marked, c.last_n, {_UNREAD}, {_ASKED}
FROM {{}} c JOIN messages m ON m.n = c.last_n
"""
_ROWS = _SELECT.format("conversations")
_WALKED = _SELECT.format(
    f"(SELECT * FROM conversations WHERE state = :state AND last_n < :before ORDER BY last_n DESC LIMIT {MAX_WALKED})"
)
_NEWEST_FIRST = "ORDER BY c.last_n DESC LIMIT :limit"
_IS_UNREAD = f"(c.is_marked <> 0 OR {_UNREAD} > 0)"
OF_STATE = f"{_ROWS} WHERE c.state = :state AND c.last_n < :before {_NEWEST_FIRST}"
UNREAD = f"{_WALKED} WHERE {_IS_UNREAD} {_NEWEST_FIRST}"
FOR_YOU = f"""{_WALKED}
WHERE m.mailbox = '{REPLIES}' OR {_ASKED} OR (m.attention = 'wake' AND m.trust <> 'unknown' AND m.source <> 'local')
{_NEWEST_FIRST}
"""
_DUE = f"{_ROWS} WHERE c.state = 'snoozed' AND c.until <= :at"
_LAST_DUE_FIRST = "ORDER BY c.until DESC, c.last_n DESC LIMIT :limit OFFSET :skipped"
DUE = f"{_DUE} {_LAST_DUE_FIRST}"
DUE_UNREAD = f"{_DUE} AND {_IS_UNREAD} {_LAST_DUE_FIRST}"
PUT_OFF = f"""{_ROWS}
WHERE c.state = 'snoozed' AND c.until > :at ORDER BY c.until, c.last_n LIMIT :limit OFFSET :skipped
"""
BY_KEY = f"{_ROWS} WHERE c.source = ? AND c.thread = ?"
NAMED = "SELECT source, thread, n FROM thread_messages WHERE id = ? AND role <> 'task'"
# How the table makes `state`, from what `conversations_aside` holds: SQLite looks at each row to make a column.
_ASIDE_STATE = """CASE WHEN triage IN ('done', 'snoozed') AND other_n <= through_n THEN triage
    WHEN other_n = 0 AND triage <> 'open' THEN 'sent' ELSE 'open' END"""
COUNTS = f"""
SELECT {_ASIDE_STATE}, count(*) FROM conversations WHERE triage <> '' OR other_n = 0 GROUP BY 1
UNION ALL SELECT 'all', count(*) FROM conversations
"""
COUNT_DUE = "SELECT count(*) FROM conversations WHERE state = 'snoozed' AND until <= ?"
NEXT_DUE = "SELECT min(until) FROM conversations WHERE state = 'snoozed' AND until > ?"
# What was done up to a newer message stays so: a list that was drawn before must not bring it back. What was put off up
# to a newer one is not done with that: nobody has said so.
TRIAGE = """
UPDATE conversations SET triage = :triage, until = :until,
    through_n = CASE WHEN :triage NOT IN ('done', 'snoozed') THEN 0
        WHEN triage IN ('done', :triage) AND through_n > :n THEN through_n ELSE :n END,
    is_marked = CASE :triage WHEN 'done' THEN 0 WHEN 'snoozed' THEN 1
        ELSE iif(state = 'snoozed' AND until > :at, 0, is_marked) END
WHERE source = :source AND thread = :thread AND (triage <> :triage OR until IS DISTINCT FROM :until OR (
    :triage IN ('done', 'snoozed') AND through_n < :n))
"""
# What the migration did that brought the list.
SORT_SEEN = """
UPDATE conversations SET triage = 'done', through_n = last_n WHERE NOT EXISTS (
    SELECT 1 FROM conversation_messages m
    WHERE m.source = conversations.source AND m.thread = conversations.thread AND m.role IN ('you', 'other')
        AND m.seq > coalesce((SELECT c.seq FROM cursors c WHERE c.consumer = 'watch' AND c.mailbox = m.mailbox), 0))
"""
MARK = "UPDATE conversations SET is_marked = ? WHERE source = ? AND thread = ? AND is_marked <> ?"
# Up to what somebody else said next: the edits of what is covered go with it.
COVERED = """
SELECT coalesce(min(n) - 1, ?) FROM conversation_messages WHERE source = ? AND thread = ? AND n > ? AND role = 'other'
"""
UNSEEN = f"""
SELECT u.id, u.n FROM (
    SELECT m.id, t.n, t.mailbox, t.seq, t.role FROM conversation_messages t CROSS JOIN messages m ON m.n = t.n
    WHERE t.source = :source AND t.thread = :thread AND t.n BETWEEN :since AND :position
    ORDER BY t.n DESC LIMIT :limit) u
WHERE (:with_tasks <> 0 OR u.role <> 'task') AND {_UNSEEN} ORDER BY u.n
"""
RETURNED = f"""{_DUE} AND c.until > (SELECT value FROM progress WHERE name = 'returned') {_LAST_DUE_FIRST}"""
TELL_RETURNED = "UPDATE progress SET value = ? WHERE name = 'returned'"

_OPEN_VIEWS: Final[Mapping[ConversationView, tuple[str, str]]] = {
    ConversationView.OPEN: (DUE, OF_STATE),
    ConversationView.UNREAD: (DUE_UNREAD, UNREAD),
    ConversationView.FOR_YOU: (DUE, FOR_YOU),
}
"""What is asked for what is due, and for the rest."""


def fill(tx: Transaction, limit: int = MAX) -> int:
    """Put the next messages into their conversations; return the number up to which all are in."""
    done = int(tx.execute(FILLED).fetchone()[0])
    end = tx.execute(BATCH_END, (done, limit)).fetchone()[0]
    if end is None:
        return done
    tx.execute(FILL, (done, end))
    tx.execute(ADVANCE, (end,))
    return int(end)


def is_behind(connection: SqlConnection) -> bool:
    """Whether some messages are in no conversation yet."""
    return bool(connection.execute(f"SELECT ({HEAD}) > ({FILLED})").fetchone()[0])


class ConversationIndex:
    """Reads conversations with every message in them that was accepted before, as long as the store can be written."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def read(self, job: Callable[[SqlConnection], T]) -> T:
        """Run a reading function; before, if need be, put in what is missing.

        On a full disk nothing can be put in: what is there already is better than an inbox that cannot be opened.
        """
        head, found = await self._readers.run(lambda db: _if_filled(db, job))
        if found is not None:
            return found[0]
        with suppress(Unavailable):
            while await self._writer.run(lambda tx: fill(tx, FILL_BATCH), is_durable=False) < head:
                pass
        return await self._readers.run(job)


def _if_filled(connection: SqlConnection, job: Callable[[SqlConnection], T]) -> tuple[int, tuple[T] | None]:
    if is_behind(connection):
        return int(connection.execute(HEAD).fetchone()[0]), None
    return 0, (job(connection),)


def listed(
    connection: SqlConnection, view: ConversationView, limit: int, *, at: datetime, before: int
) -> list[ConversationSummary]:
    """Return conversations, the newest first."""
    skipped = max(0, before - RANKED)
    named = {
        "at": to_micros(at),
        "limit": limit,
        "skipped": skipped,
        "before": MAX if before > RANKED else before or MAX,
    }
    if view is ConversationView.SNOOZED:
        return _ranked(_read(connection, PUT_OFF, named, at), skipped)
    if view not in _OPEN_VIEWS:
        return _read(connection, OF_STATE, {**named, "state": view.value}, at)
    of_due, of_open = _OPEN_VIEWS[view]
    due = [] if 0 < before <= RANKED else _ranked(_read(connection, of_due, named, at), skipped)
    rest = {**named, "state": ConversationState.OPEN.value, "limit": limit - len(due)}
    return [*due, *(_read(connection, of_open, rest, at) if len(due) < limit else ())]


_ASIDE: Final = tuple(state for state in ConversationState if state is not ConversationState.OPEN)


def counts(connection: SqlConnection, at: datetime) -> ConversationCounts:
    """Return how many conversations there are in each state."""
    aside = dict(connection.execute(COUNTS).fetchall())
    by_state = {state: aside.get(state.value, 0) for state in ConversationState}
    due = connection.execute(COUNT_DUE, (to_micros(at),)).fetchone()[0]
    by_state[ConversationState.SNOOZED] -= due
    by_state[ConversationState.OPEN] = aside["all"] - sum(by_state[state] for state in _ASIDE)
    next_due = connection.execute(NEXT_DUE, (to_micros(at),)).fetchone()[0]
    return ConversationCounts(by_state=by_state, next_due=optional_moment(next_due))


@dataclass(frozen=True, slots=True)
class NamedMessage:
    """A message as the name of its conversation."""

    message: MessageId
    key: ConversationKey
    n: int


def triage(tx: Transaction, orders: Sequence[Triage]) -> list[TriageResult]:
    """Put conversations where the person wants them."""
    wanted = {order.message: order for order in orders}
    named = _named(tx, list(wanted))
    was = {each.message: _summary(tx, each) for each in named}
    for each in named:
        order = wanted[each.message]
        if order.state is ConversationState.DONE:
            _see(tx, each.key, 0, _covered(tx, each), "done")
        if _put(tx, each, order.state, order.until):
            _note(tx, each, order.state.value, order.until)
        if order.is_unread is not None:
            _mark(tx, each, is_unread=order.is_unread)
    return [TriageResult(message=each.message, was=was[each.message], now=_summary(tx, each)) for each in named]


def mark(tx: Transaction, messages: Collection[MessageId], *, is_unread: bool) -> list[ConversationSummary]:
    """Let conversations count as unread, or be read."""
    named = _named(tx, messages)
    for each in named:
        if not is_unread:
            _see(tx, each.key, 0, _covered(tx, each), "done")
        _mark(tx, each, is_unread=is_unread)
    return [_summary(tx, each) for each in named]


def see(tx: Transaction, key: ConversationKey, since: int, up_to: int, evidence: str) -> int:
    """Let a part of a thread be seen, and end the mark of the conversation."""
    fill(tx)
    newest = tx.execute(BY_KEY, (key.source, key.thread)).fetchone()
    if newest is not None:
        _mark(tx, NamedMessage(from_row(newest).id, key, 0), is_unread=False)
    return _see(tx, key, since, up_to, evidence, with_tasks=True)


def unseen(
    connection: SqlConnection, key: ConversationKey, since: int, up_to: int, limit: int, *, with_tasks: bool = True
) -> list[MessageId]:
    """Return what the person has not seen of the newest messages of a thread between two positions, oldest first."""
    named = {"source": key.source, "thread": key.thread, "since": since, "position": up_to, "limit": limit}
    return [MessageId(row[0]) for row in connection.execute(UNSEEN, {**named, "with_tasks": with_tasks})]


def replay(tx: Transaction, message: str, state: str, until: datetime | None) -> None:
    """Do again what the journal tells; raises `NotFound` when it is about nothing."""
    [each] = _named(tx, [MessageId(message)])
    if state in (MARKED, UNMARKED):
        tx.execute(MARK, (state == MARKED, each.key.source, each.key.thread, state == MARKED))
    else:
        _put(tx, each, ConversationState(state), until)


def sort_seen(tx: Transaction) -> None:
    """Do again what was done when the list began: what the person had seen counts as done."""
    fill(tx)
    tx.execute(SORT_SEEN)


def take_returned(tx: Transaction, at: datetime, limit: int) -> list[ConversationSummary]:
    """Return what has come back, once."""
    found = _returned(tx.connection, at, limit)
    tx.execute(TELL_RETURNED, (to_micros(at),))
    return found


def _returned(connection: SqlConnection, at: datetime, limit: int) -> list[ConversationSummary]:
    return _read(connection, RETURNED, {"at": to_micros(at), "limit": limit, "skipped": 0}, at)


def _named(tx: Transaction, messages: Collection[MessageId]) -> list[NamedMessage]:
    """Return each conversation that messages name once, by the newest of them."""
    fill(tx)
    newest: dict[ConversationKey, NamedMessage] = {}
    for message in messages:
        row = tx.execute(NAMED, (message,)).fetchone()
        key = ConversationKey(source=row[0], thread=row[1]) if row else None
        if key is None or tx.execute(BY_KEY, (key.source, key.thread)).fetchone() is None:
            raise NotFound(
                f"{message[:80]!r} is in none of your conversations.", "A task's messages are for its agent."
            )
        if key not in newest or newest[key].n < row[2]:
            newest[key] = NamedMessage(message, key, row[2])
    return list(newest.values())


def _put(tx: Transaction, each: NamedMessage, state: ConversationState, until: datetime | None) -> bool:
    named = {
        "source": each.key.source,
        "thread": each.key.thread,
        "n": each.n,
        "triage": "" if state is ConversationState.SENT else state.value,
        "until": optional_micros(until),
        "at": tx.now_micros,
    }
    return bool(tx.connection.execute(TRIAGE, named).rowcount)


def _mark(tx: Transaction, each: NamedMessage, *, is_unread: bool) -> None:
    if tx.execute(MARK, (is_unread, each.key.source, each.key.thread, is_unread)).rowcount:
        _note(tx, each, MARKED if is_unread else UNMARKED, None)


def _note(tx: Transaction, each: NamedMessage, state: str, until: datetime | None) -> None:
    until_text = None if until is None else timestamp(until)
    tx.note("triage", {"message_id": each.message, "state": state, "until": until_text})


def _covered(tx: Transaction, each: NamedMessage) -> int:
    return int(tx.execute(COVERED, (MAX, each.key.source, each.key.thread, each.n)).fetchone()[0])


def _see(
    tx: Transaction, key: ConversationKey, since: int, up_to: int, evidence: str, *, with_tasks: bool = False
) -> int:
    found = unseen(tx.connection, key, since, up_to, MAX_SEEN_WITH, with_tasks=with_tasks)
    return len(acknowledge(tx, _PERSON, found, evidence))


def _summary(tx: Transaction, each: NamedMessage) -> ConversationSummary:
    return _conversation(tx.execute(BY_KEY, (each.key.source, each.key.thread)).fetchone(), tx.now)


def _read(connection: SqlConnection, sql: str, named: Mapping[str, object], at: datetime) -> list[ConversationSummary]:
    return [_conversation(row, at) for row in connection.execute(sql, named)]


def _ranked(found: Sequence[ConversationSummary], skipped: int) -> list[ConversationSummary]:
    return [replace(each, position=RANKED + rank) for rank, each in enumerate(found, start=skipped + 1)]


def _conversation(row: Sequence[Any], at: datetime) -> ConversationSummary:
    source, thread, count, state, until, is_marked, last_n, unread, is_asked = row[MESSAGE_WIDTH:]
    is_put_off = state == ConversationState.SNOOZED.value
    until = optional_moment(until) if is_put_off else None
    return ConversationSummary(
        key=ConversationKey(source=source, thread=thread),
        newest=from_row(row),
        count=count,
        state=ConversationState(state),
        until=until,
        unread=unread,
        # What is put off counts as unread when it comes back, and not before.
        is_marked=bool(is_marked) and (until is None or until <= at),
        is_asked=bool(is_asked),
        position=last_n,
    )


class SqlConversations:
    """The contract of `ConversationStore`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._index = ConversationIndex(writer, readers)

    async def list(
        self, view: ConversationView, limit: int, *, at: datetime, before: int = 0
    ) -> Sequence[ConversationSummary]:
        """Return conversations, the newest first."""
        return await self._index.read(lambda db: listed(db, view, limit, at=at, before=before))

    async def counts(self, at: datetime) -> ConversationCounts:
        """Return how many conversations there are in each state."""
        return await self._index.read(lambda db: counts(db, at))

    async def triage(self, orders: Sequence[Triage]) -> Sequence[TriageResult]:
        """Put conversations where the person wants them."""
        return await self._writer.run(lambda tx: triage(tx, orders))

    async def mark(self, messages: Collection[MessageId], *, is_unread: bool) -> Sequence[ConversationSummary]:
        """Let conversations count as unread, or be read."""
        return await self._writer.run(lambda tx: mark(tx, messages, is_unread=is_unread))

    async def see(self, key: ConversationKey, *, since: int, up_to: int, evidence: str) -> int:
        """Let a part of a thread be seen."""
        return await self._writer.run(lambda tx: see(tx, key, since, up_to, evidence), is_durable=False)

    async def take_returned(self, at: datetime, limit: int) -> Sequence[ConversationSummary]:
        """Return what has come back, once."""
        if not await self._index.read(lambda db: _returned(db, at, 1)):
            return []
        return await self._writer.run(lambda tx: take_returned(tx, at, limit), is_durable=False)
