"""Messages: appending them in order, now or later, and finding them again; and how far each feed has come.

The full-text index is filled behind accepting and asked newest first: ranking by relevance over a common word costs
seconds at a million messages, newest first costs microseconds and is what people look for in an inbox.

Scheduled messages have a table of their own, so that counts, cursors, offers and bells need not leave them out. When
one is released, the transaction that removes its row appends the message, with the id that its sender was told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final, Protocol

import msgspec

from harken.errors import Conflict, Forbidden, NotFound, UserError
from harken.model import (
    INBOX,
    SCHEDULE,
    TASK,
    WATCH,
    Mailbox,
    Message,
    MessageId,
    MessageKind,
    NewMessage,
    Schedule,
    ScheduledMessage,
    fresh_id,
    timestamp,
)
from harken.store.contract.events import RECOVERY
from harken.store.contract.messages import MAX_SCHEDULED, AppendResult, Checkpoint, Filter
from harken.store.sql import conversations
from harken.store.sql.offers import own
from harken.store.sql.questions import note_appended
from harken.store.sql.tasks import refuse_late
from harken.store.sql.transaction import (
    BY_ID,
    COLUMNS,
    INSERT,
    NEW_CURSOR,
    TAKE_HEAD,
    WHERE,
    Readers,
    SqlConnection,
    SqlRows,
    StoreHolder,
    Transaction,
    encode_json,
    for_rows,
    from_micros,
    from_row,
    optional_micros,
    optional_moment,
    parameters,
    row_of,
    within_memory,
)
from harken.store.sql.writer import Writer

FIND_KEY = "SELECT message FROM dedup WHERE key = ?"
ADD_KEYS = for_rows("INSERT INTO dedup (key, message)", "(?, ?)", "ON CONFLICT DO NOTHING")
SAVE_CHECKPOINT = """
INSERT INTO checkpoints (source, feed, value) VALUES (?, ?, ?)
ON CONFLICT (source, feed) DO UPDATE SET value = excluded.value
"""
BY_BEGINNING = f"SELECT {COLUMNS} FROM messages m WHERE m.id >= ? AND m.id < ? LIMIT 2"
# So many are counted at most: a beginning of one letter may be that of every id.
MAX_COUNTED = 1000
COUNT_BEGINNING = f"SELECT count(*) FROM (SELECT 1 FROM messages WHERE id >= ? AND id < ? LIMIT {MAX_COUNTED}) found"
BY_SEQ = f"SELECT {COLUMNS} FROM messages m WHERE m.mailbox = ? AND m.seq = ?"
CHECKPOINT = "SELECT value FROM checkpoints WHERE source = ? AND feed = ?"
PAGE_OLDEST = f"SELECT {COLUMNS} FROM messages m WHERE {WHERE} ORDER BY m.n LIMIT :limit"
PAGE_NEWEST = f"SELECT {COLUMNS} FROM messages m WHERE {WHERE} ORDER BY m.n DESC LIMIT :limit"
_SEQ_REF = re.compile(r"(?P<mailbox>[^#]*?) ?#(?P<seq>[0-9]{1,15})|(?P<bare>[0-9]{1,9})")
_ID_BEGINNING = re.compile(r"m-[0-9a-z]+")
MAX_REFERRING: Final = 20
BY_IDS = f"SELECT {COLUMNS} FROM messages m WHERE m.id IN (SELECT value FROM json_each(?))"
REFERRING = f"SELECT {COLUMNS} FROM messages m WHERE m.refers_to = ? ORDER BY m.n DESC LIMIT {MAX_REFERRING}"


class TextIndex(Protocol):
    """How a backend finds words."""

    def add(self, tx: Transaction, after: int, up_to: int) -> None:
        """Make the messages with these places in the order of receipt searchable, with one statement."""
        ...

    def remove(self, tx: Transaction, rows: Sequence[Sequence[Any]]) -> None:
        """Forget messages that were added and are deleted: place, text, name of the sender, channel."""
        ...

    def find(self, connection: SqlConnection, words: Sequence[str], where: Filter, limit: int) -> SqlRows:
        """Return rows of messages that contain all the words, newest first. A word may have signs in it."""
        ...


MAX_QUICK, MAX_QUICK_CHARS = 8, 64_000
"""So many messages with so much text are stored quickly."""


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """What one caller wants to have stored."""

    messages: Sequence[NewMessage]
    checkpoint: Checkpoint | None = None
    dropped: int = 0


def _store_all(tx: Transaction, wanted: Sequence[AppendRequest]) -> list[list[AppendResult]]:
    """Store what is new of several callers, in order, and the checkpoints that follow; return what each one gets."""
    ends, count = dict[int, Checkpoint](), 0
    for each in wanted:
        count += len(each.messages)
        if each.checkpoint is not None:
            ends[count] = each.checkpoint
    stored = iter(_Batch(tx).store([new for each in wanted for new in each.messages], ends))
    result = []
    for each in wanted:
        result.append(list(islice(stored, len(each.messages))))
        checkpoint = each.checkpoint
        if each.dropped:
            source = each.messages[0].source if each.messages else checkpoint.source if checkpoint else ""
            tx.note("dropped", {"source": source, "count": each.dropped})
        if checkpoint is not None:
            _save(tx, checkpoint)
    return result


def _save(tx: Transaction, end: Checkpoint) -> None:
    """Store a checkpoint, unless another daemon has stored one since this one knew it."""
    place = (end.source, end.feed)
    if (known := tx.holder.known) is not None:
        stored = checkpoint(tx.connection, *place)
        if known.get(place, stored) != stored:
            raise Conflict(f"Another daemon has read {end.source} meanwhile.", "Continue from the stored checkpoint.")
        known[place] = end.value
    tx.execute(SAVE_CHECKPOINT, (*place, end.value))


class _Batch:
    """Messages that are stored together: one statement for all rows of a table, and one per mailbox for its head."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._ids: Collection[str] = frozenset()
        self._new: dict[str, Message] = {}
        self._heads: dict[Mailbox, int] = {}
        self._needed: dict[str, dict[str, object]] = {}

    def store(self, messages: Sequence[NewMessage], ends: Mapping[int, Checkpoint]) -> list[AppendResult]:
        """Take messages in, or recognise them. `ends` are the checkpoints, by how many of the messages precede them."""
        ids = [new.promised_id or fresh_id("m-") for new in messages]
        self._ids = frozenset(ids)
        known = self._take_keys(messages, ids)
        self._take_heads(Counter(new.mailbox for own_id, new in zip(ids, messages, strict=True) if own_id not in known))
        result = [
            AppendResult(self._known(new, known[own_id]), is_new=False)
            if own_id in known
            else AppendResult(self._add(new, own_id), is_new=True)
            for own_id, new in zip(ids, messages, strict=True)
        ]
        self._note_checkpoints(result, ends)
        self._write()
        return result

    def _take_keys(self, messages: Sequence[NewMessage], ids: Sequence[str]) -> Mapping[str, str]:
        """Take the keys of what is new; return, for each id that is not needed, that of the message that was first."""
        keys = [(new.dedup_key, own_id) for own_id, new in zip(ids, messages, strict=True) if new.dedup_key is not None]
        # A key is taken by whoever comes first, for ever. Mostly all are new, and the count of rows says so.
        if sum(some.rowcount for some in self._tx.insert(ADD_KEYS, keys)) == len(keys):
            return {}
        found = ((own_id, str(self._tx.execute(FIND_KEY, (key,)).fetchone()[0])) for key, own_id in keys)
        return {own_id: first for own_id, first in found if first != own_id}

    def _add(self, new: NewMessage, own_id: str) -> Message:
        seq = self._heads[new.mailbox] = self._heads[new.mailbox] + 1
        message = self._new[own_id] = as_stored(new, own_id, seq, self._referred(new, own_id), self._tx.now)
        self._needed[own_id] = _needed(new)
        return message

    def _note_checkpoints(self, result: Sequence[AppendResult], ends: Mapping[int, Checkpoint]) -> None:
        """Let the line of the last new message before a checkpoint carry it.

        A checkpoint without a new message before it is not journaled: from the one before, the source yields again what
        is known.
        """
        last: MessageId | None = None
        for count, appended in enumerate(result, start=1):
            last = appended.message.id if appended.is_new else last
            if last is not None and (end := ends.get(count)) is not None:
                self._needed[last]["checkpoint"] = [end.source, end.feed, end.value]
            last = None if count in ends else last

    def _write(self) -> None:
        messages = list(self._new.values())
        self._tx.insert(INSERT, [row_of(message, self._tx.now_micros) for message in messages])
        self._tx.note_received([(message, self._needed[message.id]) for message in messages])
        self._tx.grown.update(self._heads)
        self._tx.fresh += messages

    def _take_heads(self, counts: Mapping[Mailbox, int]) -> None:
        """Take the next numbers of each mailbox; those before them are its head until then."""
        # In an order that all writers have.
        for mailbox, count in sorted(counts.items()):
            [(head,)] = self._tx.execute(TAKE_HEAD, (mailbox, count)).fetchall()
            self._heads[mailbox] = head - count
            if head == count:
                # The person reads every mailbox from its beginning, so that nothing is queued for nobody.
                self._tx.execute(NEW_CURSOR, (WATCH, mailbox))

    def _known(self, new: NewMessage, message_id: str) -> Message:
        """Return the message that was stored first; a stub with its id when retention has removed it."""
        if message_id in self._new:
            return self._new[message_id]
        row = self._tx.execute(BY_ID, (message_id,)).fetchone()
        return from_row(row) if row else replace(as_stored(new, message_id, 0, None, self._tx.now), text="")

    def _referred(self, new: NewMessage, own_id: str) -> str | None:
        if new.refers_key is None:
            return None
        row = self._tx.execute(FIND_KEY, (new.refers_key,)).fetchone()
        found = str(row[0]) if row else None
        # All keys are taken before: what comes later in the batch cannot be referred to.
        is_later = found in self._ids and found != own_id and found not in self._new
        return None if is_later else found


def _needed(new: NewMessage) -> dict[str, object]:
    """Return what the record of a message does not tell, and its recovery needs."""
    needed: dict[str, object] = {}
    if new.dedup_key is not None:
        needed["key"] = new.dedup_key.hex()
    if new.upstream_id:
        needed["upstream_id"] = new.upstream_id
    if new.author is not None:
        needed["author"] = new.author
    if new.is_question:
        needed["is_question"] = True
    return needed


def as_stored(new: NewMessage, message_id: str, seq: int, refers_to: str | None, now: datetime) -> Message:
    """Return a message as it is stored in its place."""
    return Message(
        id=MessageId(message_id),
        mailbox=new.mailbox,
        seq=seq,
        received_at=now,
        source=new.source,
        sender=new.sender,
        text=new.text,
        trust=new.trust,
        attention=new.attention,
        channel=new.channel,
        conversation=new.conversation,
        thread=new.thread,
        kind=new.kind,
        priority=new.priority,
        upstream_id=new.upstream_id,
        sent_at=new.sent_at,
        refers_to=None if refers_to is None else MessageId(refers_to),
        meta=new.meta,
    )


def find(connection: SqlConnection, ref: str) -> Message:
    """Return the message that a reference names."""
    row = connection.execute(BY_ID, (ref,)).fetchone()
    if row is None and (match := _SEQ_REF.fullmatch(ref)):
        mailbox = match["mailbox"] or INBOX
        row = connection.execute(BY_SEQ, (mailbox, int(match["seq"] or match["bare"]))).fetchone()
    elif row is None and _ID_BEGINNING.fullmatch(ref):
        rows = connection.execute(BY_BEGINNING, (ref, ref + "~")).fetchall()
        if len(rows) > 1:
            (count,) = connection.execute(COUNT_BEGINNING, (ref, ref + "~")).fetchone()
            many = f"{count} or more" if count == MAX_COUNTED else str(count)
            raise UserError(f"{many} message ids begin with {ref[:80]!r}.", "Give more of the id.")
        row = rows[0] if rows else None
    if row is None:
        raise NotFound(f"There is no message {ref[:80]!r}.", "See the ids with: harken list")
    return from_row(row)


def page(connection: SqlConnection, where: Filter, limit: int, *, newest_first: bool) -> list[Message]:
    """Return the messages that fit a filter."""
    sql = PAGE_NEWEST if newest_first else PAGE_OLDEST
    rows = connection.execute(sql, {**parameters(where), "limit": limit})
    return [from_row(row) for row in within_memory(rows)]


def checkpoint(connection: SqlConnection, source: str, feed: str) -> str:
    """Return a stored checkpoint, or an empty string."""
    row = connection.execute(CHECKPOINT, (source, feed)).fetchone()
    return str(row[0]) if row else ""


def get_many(connection: SqlConnection, ids: Collection[MessageId]) -> dict[MessageId, Message]:
    """Return those that are stored."""
    rows = connection.execute(BY_IDS, (encode_json(list(ids)),))
    return {message.id: message for message in map(from_row, rows)}


def referring(connection: SqlConnection, ids: Collection[MessageId]) -> dict[MessageId, list[Message]]:
    """Return what refers to some messages."""
    found = {message: connection.execute(REFERRING, (message,)).fetchall() for message in ids}
    return {message: [from_row(row) for row in reversed(rows)] for message, rows in found.items() if rows}


def append(tx: Transaction, wanted: Sequence[AppendRequest]) -> list[list[AppendResult]]:
    """Store what several callers bring, and what follows from it."""
    result = _store_all(tx, wanted)
    for each, appended in zip(wanted, result, strict=True):
        for new, stored in zip(each.messages, appended, strict=True):
            if new.author is not None and stored.is_new:
                own(tx, new.author, stored.message)
        if any(new.is_question or new.is_answer or new.kind is MessageKind.DELETION for new in each.messages):
            note_appended(tx, each.messages, appended)
    grown = {stored.message.mailbox for each in result for stored in each if stored.is_new}
    if of_tasks := {mailbox for mailbox in grown if mailbox.startswith(TASK)}:
        refuse_late(tx, of_tasks)
    return result


class SqlMessages:
    """The contract of `MessageStore`."""

    def __init__(self, writer: Writer, readers: Readers, texts: TextIndex) -> None:
        self._writer = writer
        self._readers = readers
        self._texts = texts

    async def append(
        self, messages: Sequence[NewMessage], checkpoint: Checkpoint | None = None, *, dropped: int = 0
    ) -> list[AppendResult]:
        """Store messages and the checkpoint that follows them."""
        is_quick = len(messages) <= MAX_QUICK and sum(len(each.text) for each in messages) <= MAX_QUICK_CHARS
        return await self._writer.run_together(append, AppendRequest(messages, checkpoint, dropped), is_quick=is_quick)

    async def get(self, ref: str) -> Message:
        """Return a message by reference."""
        return await self._readers.run(lambda db: find(db, ref))

    async def get_many(self, ids: Collection[MessageId]) -> Mapping[MessageId, Message]:
        """Return some messages."""
        return await self._readers.run(lambda db: get_many(db, ids))

    async def page(self, where: Filter, limit: int, *, newest_first: bool = False) -> list[Message]:
        """Return the messages that fit a filter."""
        return await self._readers.run(lambda db: page(db, where, limit, newest_first=newest_first))

    async def search(self, text: str, where: Filter, limit: int) -> list[Message]:
        """Return messages that contain all the words."""
        return await self._readers.run(lambda db: search(db, self._texts, text, where, limit))

    async def index(self, limit: int) -> int:
        """Make more messages searchable, and put them into their conversations."""
        if not await self._readers.run(lambda db: is_behind(db) or conversations.is_behind(db)):
            return 0
        return await self._writer.run(lambda tx: index(tx, self._texts, limit), is_durable=False, needs_room=True)

    async def referring(self, ids: Collection[MessageId]) -> Mapping[MessageId, Sequence[Message]]:
        """Return what refers to some messages."""
        return await self._readers.run(lambda db: referring(db, ids))


class SqlCheckpoints:
    """The contract of `CheckpointStore`."""

    def __init__(self, readers: Readers, holder: StoreHolder) -> None:
        self._readers = readers
        self._holder = holder

    async def get(self, source: str, feed: str) -> str:
        """Return a stored checkpoint."""
        found = await self._readers.run(lambda db: checkpoint(db, source, feed))
        if self._holder.known is not None:
            self._holder.known[source, feed] = found
        return found


INDEXED = "SELECT value FROM progress WHERE name = 'indexed'"
MAX_CHARS = 8_000_000  # of what is indexed in one transaction: others wait for it
NEXT = f"""
SELECT count(*), max(n) FROM (
    SELECT n, sum(size) OVER (ORDER BY n) - size AS before
    FROM (SELECT n, length(text) AS size FROM messages WHERE n > ? ORDER BY n LIMIT ?) sized
) summed WHERE before < {MAX_CHARS}
"""
ADVANCE = "UPDATE progress SET value = ? WHERE name = 'indexed'"
LAG = "SELECT count(*) FROM messages WHERE n > (SELECT value FROM progress WHERE name = 'indexed')"
IS_BEHIND = "SELECT EXISTS (SELECT 1 FROM messages WHERE n > (SELECT value FROM progress WHERE name = 'indexed'))"

_MAX_WORDS = 32
_WORD = re.compile(r"\w")


def words_of(text: str) -> list[str]:
    """Return what is looked for: the words of a text, as many as are looked at."""
    return [word for word in text.split() if _WORD.search(word)][:_MAX_WORDS]


def search(connection: SqlConnection, texts: TextIndex, text: str, where: Filter, limit: int) -> list[Message]:
    """Return messages that contain all the words, newest first."""
    # Half a surrogate pair cannot be stored, so it cannot be found either, and no database would take it.
    words = words_of(text.replace("\x00", " ").encode(errors="replace").decode())
    if not words:
        return []
    return [from_row(row) for row in within_memory(texts.find(connection, words, where, limit))]


def index(tx: Transaction, texts: TextIndex, limit: int) -> int:
    """Make the next messages searchable, and put the next into their conversations."""
    conversations.fill(tx, conversations.FILL_BATCH)
    done = tx.execute(INDEXED).fetchone()[0]
    count, last = tx.execute(NEXT, (done, limit)).fetchone()
    if count:
        # One statement: the texts need not come through here, where they would hold up whoever accepts more.
        texts.add(tx, done, last)
        tx.execute(ADVANCE, (last,))
    return int(count)


def forget(tx: Transaction, texts: TextIndex, rows: Sequence[Sequence[Any]]) -> None:
    """Take deleted messages out of the index; only what was put in may be taken out."""
    done = tx.execute(INDEXED).fetchone()[0]
    texts.remove(tx, [row for row in rows if row[0] <= done])


def is_behind(connection: SqlConnection) -> bool:
    """Whether some messages are not searchable yet."""
    return bool(connection.execute(IS_BEHIND).fetchone()[0])


def lag(connection: SqlConnection) -> int:
    """Return how many messages are not searchable yet."""
    return int(connection.execute(LAG).fetchone()[0])


_SCHEDULED = "SELECT id, message, accepted_at, due_at, occasion, turns, withdrawn_by, withdrawn_at FROM scheduled"
SCHEDULE_INSERT = """
INSERT INTO scheduled (id, mailbox, message, accepted_at, due_at, occasion, turns) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING
"""
SCHEDULED_ID = f"{_SCHEDULED} WHERE id = ?"
SCHEDULED_BEGINNING = f"{_SCHEDULED} WHERE id >= ? AND id < ? LIMIT 2"
SCHEDULED_WAITING = f"""
{_SCHEDULED} WHERE withdrawn_at IS NULL AND (? = '' OR mailbox = ?) ORDER BY due_at IS NULL, due_at, n LIMIT ?
"""
SCHEDULED_COUNT = "SELECT count(*) FROM scheduled WHERE withdrawn_at IS NULL"
SCHEDULED_WITHDRAW = "UPDATE scheduled SET withdrawn_by = ?, withdrawn_at = ? WHERE id = ? AND withdrawn_at IS NULL"
SCHEDULED_TAKE = "DELETE FROM scheduled WHERE id = ? AND withdrawn_at IS NULL"
SCHEDULED_FORGET = "DELETE FROM scheduled WHERE id = ?"
WITHDRAWN_FORGET = """
DELETE FROM scheduled WHERE withdrawn_at IS NOT NULL AND n <= (
    SELECT n FROM scheduled WHERE withdrawn_at IS NOT NULL ORDER BY n DESC LIMIT 1 OFFSET ?)
"""
_SCHEDULED_HINT: Final = "See what waits for its time with: harken list"


def schedule(tx: Transaction, new: NewMessage, when: Schedule) -> AppendResult:
    """Accept a message."""
    own_id = MessageId(fresh_id("m-"))
    if new.dedup_key is not None and not tx.execute(ADD_KEYS[1], (new.dedup_key, own_id)).rowcount:
        first = MessageId(str(tx.execute(FIND_KEY, (new.dedup_key,)).fetchone()[0]))
        return AppendResult(_known_message(tx, new, first), is_new=False)
    if int(tx.execute(SCHEDULED_COUNT).fetchone()[0]) >= MAX_SCHEDULED:
        raise Forbidden(f"{MAX_SCHEDULED} messages wait for their time already.", "Withdraw one: harken unsend ID")
    insert_scheduled(tx, own_id, new, when)
    needed = {"message": msgspec.to_builtins(new), "schedule": msgspec.to_builtins(when)}
    message = as_stored(new, own_id, 0, None, tx.now)
    _note_scheduled(tx, ScheduledMessage(message=message, schedule=when), "accepted", new.sender.id, {RECOVERY: needed})
    return AppendResult(message, is_new=True)


def insert_scheduled(tx: Transaction, message: MessageId, new: NewMessage, schedule: Schedule) -> None:
    """Store the row of a scheduled message."""
    text, turns = msgspec.json.encode(new).decode(), encode_json(dict(schedule.turns))
    when = (optional_micros(schedule.due_at), schedule.occasion.value, turns)
    tx.execute(SCHEDULE_INSERT, (message, new.mailbox, text, tx.now_micros, *when))


def find_scheduled(connection: SqlConnection, ref: str) -> ScheduledMessage:
    """Return the scheduled message that a reference names."""
    row = connection.execute(SCHEDULED_ID, (ref,)).fetchone()
    if row is None and _ID_BEGINNING.fullmatch(ref):
        rows = connection.execute(SCHEDULED_BEGINNING, (ref, ref + "~")).fetchall()
        if len(rows) > 1:
            raise UserError(f"More than one message id begins with {ref[:80]!r}.", "Give more of the id.")
        row = rows[0] if rows else None
    if row is None:
        raise NotFound(f"No message {ref[:80]!r} waits for its time.", _SCHEDULED_HINT)
    return _scheduled_from(row)


def scheduled(connection: SqlConnection, mailbox: str, limit: int) -> list[ScheduledMessage]:
    """Return those that wait, the next due first."""
    return [_scheduled_from(row) for row in connection.execute(SCHEDULED_WAITING, (mailbox, mailbox, limit))]


def release(tx: Transaction, ids: Collection[MessageId]) -> list[Message]:
    """Let some enter their mailboxes."""
    rows = [row for row in tx.execute(SCHEDULED_WAITING, ("", "", MAX_SCHEDULED)).fetchall() if row[0] in ids]
    # A recovery may know of a message and its row: what is in a mailbox does not enter again.
    taken = [row for row in rows if tx.execute(SCHEDULED_TAKE, (row[0],)).rowcount]
    new = [
        replace(_new_of(row), promised_id=MessageId(row[0]))
        for row in taken
        if not tx.execute(BY_ID, (row[0],)).fetchone()
    ]
    if taken:
        tx.grown.add(SCHEDULE)
    if not new:
        return []
    [stored] = append(tx, [AppendRequest(new)])
    return [each.message for each in stored]


def withdraw(tx: Transaction, message: MessageId, by: str) -> ScheduledMessage:
    """Let one never enter its mailbox."""
    if tx.execute(SCHEDULED_WITHDRAW, (by, tx.now_micros, message)).rowcount:
        _note_scheduled(tx, find_scheduled(tx.connection, message), "withdrawn", by, {})
        tx.execute(WITHDRAWN_FORGET, (MAX_SCHEDULED,))
    return find_scheduled(tx.connection, message)


def _known_message(tx: Transaction, new: NewMessage, first: MessageId) -> Message:
    """Return the message that has the key already; a stub with its id when it is gone."""
    if row := tx.execute(BY_ID, (first,)).fetchone():
        return from_row(row)
    if row := tx.execute(SCHEDULED_ID, (first,)).fetchone():
        return _scheduled_from(row).message
    return replace(as_stored(new, first, 0, None, tx.now), text="")


def _note_scheduled(tx: Transaction, about: ScheduledMessage, change: str, by: str, more: dict[str, object]) -> None:
    tx.grown.add(SCHEDULE)
    schedule, message = about.schedule, about.message
    due_at = timestamp(schedule.due_at) if schedule.due_at else None
    said = {"message_id": message.id, "change": change, "mailbox": message.mailbox, "by": by}
    tx.note("scheduled", {**said, "due_at": due_at, "occasion": schedule.occasion.value, **more})


def _new_of(row: Sequence[Any]) -> NewMessage:
    return msgspec.json.decode(row[1], type=NewMessage)


def _scheduled_from(row: Sequence[Any]) -> ScheduledMessage:
    turns = msgspec.json.decode(row[5], type=dict[str, str])
    schedule = {"due_at": optional_moment(row[3]), "occasion": row[4], "turns": turns}
    return ScheduledMessage(
        message=as_stored(_new_of(row), row[0], 0, None, from_micros(row[2])),
        schedule=msgspec.convert(schedule, Schedule),
        withdrawn_by=row[6],
        withdrawn_at=optional_moment(row[7]),
    )


class SqlSchedule:
    """The contract of `ScheduleStore`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def add(self, message: NewMessage, when: Schedule) -> AppendResult:
        """Accept a message that enters its mailbox later."""
        return await self._writer.run(lambda tx: schedule(tx, message, when))

    async def get(self, ref: str) -> ScheduledMessage:
        """Return one that waits or was withdrawn."""
        return await self._readers.run(lambda db: find_scheduled(db, ref))

    async def list(self, mailbox: str = "", *, limit: int = MAX_SCHEDULED) -> Sequence[ScheduledMessage]:
        """Return those that wait."""
        return await self._readers.run(lambda db: scheduled(db, mailbox, limit))

    async def release(self, ids: Collection[MessageId]) -> Sequence[Message]:
        """Let some enter their mailboxes."""
        return await self._writer.run(lambda tx: release(tx, ids))

    async def withdraw(self, message: MessageId, by: str) -> ScheduledMessage:
        """Let one never enter its mailbox."""
        return await self._writer.run(lambda tx: withdraw(tx, message, by))
