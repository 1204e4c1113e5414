"""How statements run: in one open write transaction, or in a reading snapshot; and rows of messages.

Functions of the noun modules take a `Transaction`, change rows through it and note events; the writer commits it
and announces. Nothing here commits. `Readers` is a small pool of read-only connections, used from worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import msgspec

from harken.errors import HarkenError, Unavailable, UserError
from harken.memory import json_bytes, out_of_memory
from harken.model import Attention, Mailbox, Message, MessageId, MessageKind, Priority, Sender, Trust
from harken.store.contract.events import RECOVERY, Event
from harken.store.contract.leases import Lease, OldFence
from harken.store.contract.messages import MAX_READ_CHARS, Filter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

INSERT_EVENT = "INSERT INTO events (n, at, kind, message, data, daemon) VALUES (?, ?, ?, ?, ?, ?)"
MAX_ROWS_AT_ONCE = 32
_EVENT = "(?, ?, 'received', ?, ?, ?)"
LAST_EVENT = "SELECT coalesce(max(n), 0) FROM events"
FENCED = "SELECT 1 FROM leases WHERE name = ? AND holder = ? AND fence = ?"


Parameters: TypeAlias = Sequence[object] | Mapping[str, object]
"""The values of a statement: in the order of its `?`, or by the names after its `:`."""


SqlRow: TypeAlias = Any
"""A row, or None: what is in it is what its statement asks for."""


class SqlRows(Protocol):
    """What a statement gives, as drivers have it."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def fetchone(self) -> SqlRow:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> list[SqlRow]:
        """Return all rows."""
        ...

    def __iter__(self) -> Iterator[SqlRow]: ...


class SqlConnection(Protocol):
    """An open connection to a database: SQLite's own, or one that speaks like it."""

    def execute(self, sql: str, parameters: Parameters = ..., /) -> SqlRows:
        """Run one statement."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


def to_micros(moment: datetime) -> int:
    """Return microseconds since 1970, exactly (a float of seconds would round)."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(value: int) -> datetime:
    """Return the aware UTC datetime of `to_micros`."""
    return _EPOCH + timedelta(microseconds=value)


def optional_micros(moment: datetime | None) -> int | None:
    """Like `to_micros`, and None stays None."""
    return None if moment is None else to_micros(moment)


def optional_moment(value: int | None) -> datetime | None:
    """Like `from_micros`, and None stays None."""
    return None if value is None else from_micros(value)


def encode_json(value: object) -> str:
    """Return compact JSON text."""
    return json_bytes(value).decode()


def for_rows(head: str, row: str, tail: str = "") -> Mapping[int, str]:
    """Return the statements that insert so many rows at once, up to `MAX_ROWS_AT_ONCE`."""
    return {count: f"{head} VALUES {', '.join([row] * count)} {tail}" for count in range(1, MAX_ROWS_AT_ONCE + 1)}


INSERT_RECEIVED = for_rows("INSERT INTO events (n, at, kind, message, data, daemon)", _EVENT)
INSERT_EVENTS = for_rows("INSERT INTO events (n, at, kind, message, data, daemon)", "(?, ?, ?, NULL, ?, ?)")


COLUMNS = (
    "m.id, m.mailbox, m.seq, m.received_at, m.source, m.channel, m.conversation, m.thread, m.kind, m.trust, "
    "m.attention, m.priority, m.sender_id, m.sender_name, m.upstream_id, m.sent_at, m.refers_to, m.meta, m.text"
)
MESSAGE_WIDTH = COLUMNS.count(",") + 1
_TEXT = MESSAGE_WIDTH - 1
HEAD = "SELECT head FROM mailboxes WHERE name = ?"
# The head after so many more; one statement, so that it is one trip to a server.
TAKE_HEAD = """
INSERT INTO mailboxes (name, head) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET head = mailboxes.head + excluded.head RETURNING head
"""
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
    CASE WHEN :mailbox = '' AND CAST(:among AS TEXT) IS NULL THEN m.mailbox NOT LIKE 'trial:%'
        ELSE :mailbox = '' OR m.mailbox = :mailbox END
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


@dataclass(frozen=True, slots=True)
class StoreHolder:
    """Who has the store open: the daemon, by the id of its home, and the checkpoints that it knows, by source and feed.

    Without `known` the store is no other daemon's, and each checkpoint is the one that this one stored.
    """

    daemon: str = ""
    known: dict[tuple[str, str], str] | None = None
    machine: str = ""

    def other(self, machine: str) -> str:
        """Return a machine if it is another one than that of this daemon; empty: it is the same, or the only one."""
        return "" if self.known is None or machine == self.machine else machine


ALONE: Final = StoreHolder()


class Transaction:
    """A write in progress. `events` and `grown` are announced after the commit, and only then.

    `fresh` are the messages that it stored: readers that wait are served from these. `freed` are mailboxes in which
    what was offered may be offered again.
    """

    def __init__(
        self, connection: SqlConnection, now: datetime, holder: StoreHolder = ALONE, last_event: int | None = None
    ) -> None:
        self.connection = connection
        self.now = now
        self.holder = holder
        self.now_micros = to_micros(now)
        self.events: list[Event] = []
        self.grown: set[Mailbox] = set()
        self.fresh: list[Message] = []
        self.freed: set[Mailbox] = set()
        self._last_event = last_event

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> SqlRows:
        """Run one statement."""
        return self.connection.execute(sql, parameters)

    def refuse_old(self, lease: Lease) -> None:
        """Refuse what is written under a lease that was taken over or given back."""
        if self.execute(FENCED, (lease.name, lease.holder, lease.fence)).fetchone() is None:
            raise OldFence(f"Another daemon has taken over {lease.name}.", "Leave it to that one.")

    def insert(self, statements: Mapping[int, str], rows: Sequence[tuple[object, ...]]) -> Sequence[SqlRows]:
        """Insert rows with the statements of `for_rows`; return what each of these says.

        Not `executemany`: that lets go of the interpreter for every row, and has to wait for the event loop each time.
        For the same reason there is a statement for every number of rows.
        """
        parts = (rows[start : start + MAX_ROWS_AT_ONCE] for start in range(0, len(rows), MAX_ROWS_AT_ONCE))
        return [self.execute(statements[len(some)], tuple(chain.from_iterable(some))) for some in parts]

    def note_all(self, kind: str, told: Sequence[Mapping[str, object]]) -> None:
        """Add journal events of one kind, all with one statement."""
        if not told:
            return
        first, daemon = self._take_events(len(told)), self.holder.daemon
        self.insert(
            INSERT_EVENTS,
            [(n, self.now_micros, kind, encode_json(data), daemon) for n, data in enumerate(told, start=first)],
        )
        self.events += [Event(n=n, at=self.now, kind=kind, data=data) for n, data in enumerate(told, start=first)]

    def note(self, kind: str, data: Mapping[str, object], message: Message | None = None) -> Event:
        """Add a journal event to this transaction."""
        number = self._take_events(1)
        about = None if message is None else message.id
        told = encode_json(data) if data else "{}"
        self.execute(INSERT_EVENT, (number, self.now_micros, kind, about, told, self.holder.daemon))
        event = Event(n=number, at=self.now, kind=kind, data=data, message=message)
        self.events.append(event)
        return event

    def skip_events(self, number: int) -> None:
        """Let the next event have the number that follows another."""
        self._last_event = number

    def undo(self, events: int, fresh: int, grown: set[Mailbox]) -> None:
        """Forget what was noted since there were so many events and new messages, and these mailboxes had grown."""
        del self.events[events:]
        del self.fresh[fresh:]
        self.grown.intersection_update(grown)
        self._last_event = None

    def _take_events(self, count: int) -> int:
        """Return the first of so many numbers that follow those of all events; no other transaction takes any."""
        if self._last_event is None:
            self._last_event = int(self.execute(LAST_EVENT).fetchone()[0])
        first = self._last_event + 1
        self._last_event += count
        return first

    def note_received(self, messages: Sequence[tuple[Message, Mapping[str, object]]]) -> None:
        """Add the journal events of new messages, each with what is needed to recover it, all with one statement."""
        if not messages:
            return
        first, daemon = self._take_events(len(messages)), self.holder.daemon
        events = [
            Event(n=n, at=self.now, kind="received", data={RECOVERY: needed} if needed else {}, message=message)
            for n, (message, needed) in enumerate(messages, start=first)
        ]
        self.insert(
            INSERT_RECEIVED,
            [
                (event.n, self.now_micros, message.id, encode_json(event.data) if event.data else "{}", daemon)
                for event, (message, _) in zip(events, messages, strict=True)
            ],
        )
        self.events += events


T = TypeVar("T")

POOL_SIZE = 4
RETRY_SECONDS = 5.0
_NO_THREAD = "can't start new thread"


class Readers:
    """Runs reading functions, at most `POOL_SIZE` at a time, each in one consistent snapshot.

    `begin` is the statement that begins one; `translate` gives our error for one of the driver's `errors`.
    """

    def __init__(
        self,
        opener: Callable[[], SqlConnection],
        errors: type[Exception],
        translate: Callable[[Exception], HarkenError],
        begin: str = "BEGIN",
    ) -> None:
        self._opener = opener
        self._errors = errors
        self._translate = translate
        self._begin = begin
        self._idle: SimpleQueue[SqlConnection] = SimpleQueue()
        self._limiter = anyio.CapacityLimiter(POOL_SIZE)

    def start(self) -> None:
        """Open the connections."""
        for _ in range(POOL_SIZE):
            self._idle.put(self._opener())

    def stop(self) -> None:
        """Close the connections. Nothing may be reading any more."""
        while not self._idle.empty():
            self._idle.get().close()

    async def run(self, job: Callable[[SqlConnection], T]) -> T:
        """Run a reading function in a worker thread."""
        try:
            return await anyio.to_thread.run_sync(self._read, job, limiter=self._limiter)
        except RuntimeError as exc:
            if _NO_THREAD not in str(exc):
                raise
            raise out_of_memory() from exc

    def _read(self, job: Callable[[SqlConnection], T]) -> T:
        connection = self._idle.get()
        try:
            connection.execute(self._begin)
            try:
                return job(connection)
            finally:
                connection.execute("COMMIT")
        except self._errors as exc:
            raise self._translate(exc) from exc
        except UnicodeEncodeError as exc:
            raise unstorable_text() from exc
        except MemoryError as exc:
            raise out_of_memory() from exc
        finally:
            self._idle.put(connection)


def unstorable_text() -> UserError:
    """Return the error for text that is not text: half of a surrogate pair has no UTF-8."""
    return UserError("The text has a character that cannot be stored.", "Remove unpaired surrogates (U+D800…).")


def full() -> Unavailable:
    """Return the error for a disk without room."""
    return Unavailable(
        "The disk is full.", "Free some space, then send again what was refused.", retry_after=RETRY_SECONDS
    )
