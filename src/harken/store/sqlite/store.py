"""`SqliteStore`: the contract of `store/contract` over one file.

Each method names the function that does it and where it runs: writes in the writer's transaction, reads in the
pool. There is no logic here; it is in the modules named after the nouns.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from harken.clock import Clock
from harken.model import (
    Consumer,
    Delivery,
    DeliveryId,
    Mailbox,
    Message,
    MessageId,
    NewMessage,
    Reader,
    Selection,
    SenderRule,
    SessionKey,
)
from harken.store.contract import (
    AfterCommit,
    AppendResult,
    BeforeCommit,
    Checkpoint,
    ConsumerState,
    Event,
    Filter,
    Limits,
    Mute,
    MuteFilter,
    OfferFilter,
    Omission,
    OpenOffer,
    RetentionReport,
    SurfaceRecord,
    Unread,
)
from harken.store.contract.retention import MailboxExcess
from harken.store.contract.timeline import ActivityCounts, ChannelState, MailboxState, TimelinePart, TimelineScope
from harken.store.files import OpenFiles
from harken.store.reserve import DiskReserve
from harken.store.sqlite import access, enrollment, queries, retention, search
from harken.store.sqlite import deliveries as delivery_rows
from harken.store.sqlite import events as event_rows
from harken.store.sqlite import messages as message_rows
from harken.store.sqlite import offers as offer_rows
from harken.store.sqlite import questions as question_rows
from harken.store.sqlite import tasks as task_rows
from harken.store.sqlite.actions import SqliteActions
from harken.store.sqlite.connection import Connect, connect, files_of, open_writer, prepare_file
from harken.store.sqlite.errors import translated
from harken.store.sqlite.health import VitalSigns
from harken.store.sqlite.outbox import SqliteOutbox
from harken.store.sqlite.questions import SqliteQuestions
from harken.store.sqlite.readers import Readers
from harken.store.sqlite.rules import SqliteRules
from harken.store.sqlite.runs import SqliteRuns
from harken.store.sqlite.tasks import SqliteTasks
from harken.store.sqlite.transaction import Transaction, to_micros
from harken.store.sqlite.waiting_readers import WaitingReader, WaitingReaders, has_something
from harken.store.sqlite.writer import Writer, nothing_after, nothing_before


class LocalChanges:
    """The change feed inside one daemon, which is SQLite's only writer: a call, no polling."""

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[Collection[Mailbox]], None]] = {}
        self._next = 0

    @contextmanager
    def listen(self, wake: Callable[[Collection[Mailbox]], None]) -> Iterator[None]:
        """Call `wake` after each commit while the context is open."""
        key = self._next
        self._next += 1
        self._listeners[key] = wake
        try:
            yield
        finally:
            del self._listeners[key]

    def ring(self, grown: Collection[Mailbox]) -> None:
        """Tell everyone."""
        for wake in tuple(self._listeners.values()):
            wake(grown)


def _append(tx: Transaction, wanted: Sequence[message_rows.AppendRequest]) -> list[list[AppendResult]]:
    """Store what several callers bring, and what follows from it."""
    result = message_rows.append(tx, wanted)
    for each, appended in zip(wanted, result, strict=True):
        for new, stored in zip(each.messages, appended, strict=True):
            if new.author is not None and stored.is_new:
                delivery_rows.own(tx, new.author, stored.message)
        question_rows.note_appended(tx, each.messages, appended)
    task_rows.refuse_late(tx, {stored.message.mailbox for each in result for stored in each if stored.is_new})
    return result


class SqliteStore(VitalSigns):
    """The embedded store. Use `open_store`."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        writer: Writer,
        readers: Readers,
        changes: LocalChanges,
        waiting: WaitingReaders,
    ) -> None:
        self._path = path
        self._clock = clock
        self._writer = writer
        self._readers = readers
        self._changes = changes
        self._waiting = waiting
        self.rules = SqliteRules(writer, readers)
        self.actions = SqliteActions(writer, readers)
        self.runs = SqliteRuns(writer, readers)
        self.outbox = SqliteOutbox(writer, readers, clock)
        self.questions = SqliteQuestions(writer, readers)
        self.tasks = SqliteTasks(writer, readers)

    @property
    def changes(self) -> LocalChanges:
        """The change feed."""
        return self._changes

    async def append(
        self, messages: Sequence[NewMessage], checkpoint: Checkpoint | None = None, *, dropped: int = 0
    ) -> list[AppendResult]:
        """Store messages and the checkpoint that follows them."""
        return await self._writer.run_together(_append, message_rows.AppendRequest(messages, checkpoint, dropped))

    async def message(self, ref: str) -> Message:
        """Return a message by reference."""
        return await self._readers.run(lambda db: message_rows.find(db, ref))

    async def page(self, where: Filter, limit: int, *, newest_first: bool = False) -> list[Message]:
        """Return the messages that fit a filter."""
        return await self._readers.run(lambda db: message_rows.page(db, where, limit, newest_first=newest_first))

    async def search(self, text: str, where: Filter, limit: int) -> list[Message]:
        """Return messages that contain all the words."""
        return await self._readers.run(lambda db: search.search(db, text, where, limit))

    async def index(self, limit: int) -> int:
        """Make more messages searchable."""
        if not await self._readers.run(search.is_behind):
            return 0
        return await self._writer.run(lambda tx: search.index(tx, limit), is_durable=False, needs_room=True)

    async def checkpoint(self, source: str, feed: str) -> str:
        """Return a stored checkpoint."""
        return await self._readers.run(lambda db: message_rows.checkpoint(db, source, feed))

    async def enroll(self, consumer: Consumer, mailbox: Mailbox, since: datetime, *, most: int | None = None) -> bool:
        """Give a consumer its cursor."""
        found = await self._readers.run(lambda db: enrollment.survey(db, consumer, mailbox, since, most))
        if found is None:
            return False
        job = partial(enrollment.enroll, consumer=consumer, mailbox=mailbox, since=since, most=most, surveyed=found)
        return await self._writer.run(job, is_durable=False)

    async def omissions(self, reader: Reader) -> dict[Mailbox, Omission]:
        """Return what a reader was not given when it began."""
        return await self._readers.run(lambda db: enrollment.omissions(db, reader))

    async def unread(self, reader: Reader, *, by_channel: bool = False) -> Unread:
        """Count what waits."""
        now = to_micros(self._clock.now())
        return await self._readers.run(lambda db: delivery_rows.unread(db, reader, now, by_channel=by_channel))

    async def peek(
        self, reader: Reader, limit: int, *, channel: str = "", after: str = "", where: OfferFilter | None = None
    ) -> list[Message]:
        """Return what an offer would give."""
        now = to_micros(self._clock.now())
        wanted = offer_rows.OfferQuery(limit, channel, after, where)
        found = await self._readers.run(lambda db: offer_rows.waiting(db, reader, wanted, now=now, oldest_first=True))
        messages = [message for message, _ in found]
        return messages if where is not None else messages[: offer_rows.fitting(messages)]

    async def offer(
        self,
        reader: Reader,
        limit: int,
        *,
        surface: str,
        carrier: str,
        lease_until: datetime,
        channel: str = "",
        after: str = "",
        where: OfferFilter | None = None,
    ) -> Selection:
        """Lease what waits to the reader's session."""
        wanted = offer_rows.OfferQuery(limit, channel, after, where)
        return await self._writer.run(
            lambda tx: offer_rows.offer(tx, reader, wanted, surface=surface, carrier=carrier, lease_until=lease_until),
            is_durable=False,
        )

    async def offer_when_ready(
        self,
        reader: Reader,
        limit: int,
        *,
        surface: str,
        carrier: str,
        lease: timedelta,
        rank: Callable[[], float],
        where: Callable[[], OfferFilter],
        seconds: float,
    ) -> Selection:
        """Offer what waits, or what comes within a time."""
        waiting = WaitingReader(
            reader=reader, limit=limit, surface=surface, carrier=carrier, lease=lease, rank=rank, where=where
        )
        try:
            # Shielded: a job that was queued is done, and whoever was cancelled meanwhile must undo it.
            with anyio.CancelScope(shield=True):
                given = await self._writer.run(lambda tx: self._waiting.begin(tx, waiting), is_durable=False)
            await anyio.lowlevel.checkpoint_if_cancelled()
            if has_something(given):
                return given
            with anyio.move_on_after(seconds):
                await waiting.ready.wait()
        except anyio.get_cancelled_exc_class():
            waiting.is_over = True
            with anyio.CancelScope(shield=True):
                made = await self._writer.run(lambda _tx: self._waiting.end(waiting), is_durable=False)
                await self.undo([offer.delivery_id for offer in made.whole], carrier)
            raise
        if waiting.ready.is_set():
            return waiting.given
        waiting.is_over = True
        last: list[Selection] = []
        with anyio.CancelScope(shield=True):
            last.append(await self._writer.run(lambda _tx: self._waiting.end(waiting), is_durable=False))
        return last[0]

    async def prove(
        self, deliveries: Collection[DeliveryId], evidence: str, *, consumer: Consumer | None = None
    ) -> list[Delivery]:
        """Move offered deliveries to seen."""
        return await self._writer.run(
            lambda tx: delivery_rows.prove(tx, deliveries, evidence, consumer), is_durable=False
        )

    async def acknowledge(self, reader: Reader, messages: Collection[MessageId], evidence: str) -> list[Delivery]:
        """Mark messages seen for a consumer."""
        return await self._writer.run(
            lambda tx: delivery_rows.acknowledge(tx, reader, messages, evidence), is_durable=False
        )

    async def release(self, session: SessionKey, carriers: Collection[str] | None = None) -> int:
        """End the leases of a session."""
        return await self._writer.run(lambda tx: delivery_rows.release(tx, session, carriers), is_durable=False)

    async def renew(
        self, session: SessionKey, deliveries: Collection[DeliveryId], *, carrier: str, lease_until: datetime
    ) -> int:
        """Lease again what was released."""
        return await self._writer.run(
            lambda tx: delivery_rows.renew(tx, session, deliveries, carrier, lease_until), is_durable=False
        )

    async def withdraw(self, session: SessionKey, carrier: str) -> int:
        """Undo an offer that was never handed over."""
        return await self._writer.run(lambda tx: delivery_rows.withdraw(tx, session, carrier), is_durable=False)

    async def undo(self, deliveries: Collection[DeliveryId], carrier: str) -> int:
        """Undo offers that were never handed over."""
        if not deliveries:
            return 0
        return await self._writer.run(lambda tx: delivery_rows.undo(tx, deliveries, carrier), is_durable=False)

    async def release_except(self, sessions: Collection[SessionKey], *, kinds: Collection[str] = ()) -> int:
        """End the leases of sessions that are gone."""
        return await self._writer.run(lambda tx: delivery_rows.release_except(tx, sessions, kinds), is_durable=False)

    async def transfer(self, session: SessionKey, to: SessionKey) -> int:
        """Let a session's open offers be another's."""
        return await self._writer.run(lambda tx: delivery_rows.transfer(tx, session, to), is_durable=False)

    async def reassign(
        self, deliveries: Collection[DeliveryId], *, consumer: Consumer, session: SessionKey, carrier: str
    ) -> list[DeliveryId]:
        """Let open offers of a consumer be a session's, by a carrier."""
        return await self._writer.run(
            lambda tx: delivery_rows.reassign(tx, deliveries, consumer, session, carrier), is_durable=False
        )

    async def open_offers(self, session: SessionKey) -> list[OpenOffer]:
        """Return a session's offers without proof."""
        return await self._readers.run(lambda db: delivery_rows.open_offers(db, session))

    async def seen_by(self, messages: Collection[MessageId]) -> Mapping[MessageId, Sequence[Consumer]]:
        """Return who has seen each of some messages."""
        return await self._readers.run(lambda db: delivery_rows.seen_by(db, messages))

    async def surfaces(self, since: datetime) -> list[SurfaceRecord]:
        """Return how what was offered went, per consumer and surface."""
        return await self._readers.run(lambda db: delivery_rows.surfaces(db, since))

    async def ledger(self, message: MessageId) -> list[Delivery]:
        """Return the deliveries of a message."""
        return await self._readers.run(lambda db: delivery_rows.ledger(db, message))

    async def consumers(self, mailboxes: Collection[Mailbox] | None = None) -> list[ConsumerState]:
        """Return everyone's place."""
        now = to_micros(self._clock.now())
        return await self._readers.run(lambda db: queries.consumers(db, now, mailboxes))

    async def part(
        self, place: TimelineScope, limit: int, *, before: int = 0, after: int | None = None
    ) -> TimelinePart:
        """Return part of a timeline."""
        return await self._readers.run(lambda db: queries.part(db, place, limit, before=before, after=after))

    async def unseen(self, place: TimelineScope, up_to: int, limit: int, *, since: int = 0) -> Sequence[MessageId]:
        """Return what the person has not seen."""
        return await self._readers.run(lambda db: queries.unseen(db, place, up_to, limit, since=since))

    async def messages(self, ids: Collection[MessageId]) -> Mapping[MessageId, Message]:
        """Return some messages."""
        return await self._readers.run(lambda db: queries.messages(db, ids))

    async def ledgers(self, ids: Collection[MessageId]) -> Mapping[MessageId, Sequence[Delivery]]:
        """Return the deliveries of some messages."""
        return await self._readers.run(lambda db: queries.ledgers(db, ids))

    async def referring(self, ids: Collection[MessageId]) -> Mapping[MessageId, Sequence[Message]]:
        """Return what refers to some messages."""
        return await self._readers.run(lambda db: queries.referring(db, ids))

    async def mailbox_states(self) -> Sequence[MailboxState]:
        """Return every mailbox."""
        return await self._readers.run(queries.mailbox_states)

    async def channel_states(self, limit: int, *, source: str = "", channel: str = "") -> Sequence[ChannelState]:
        """Return the channels."""
        return await self._readers.run(lambda db: queries.channel_states(db, limit, source=source, channel=channel))

    async def for_prompts(self, mailboxes: Collection[Mailbox], limit: int, mutes: MuteFilter) -> Sequence[Message]:
        """Return the newest messages that go with prompts."""
        return await self._readers.run(lambda db: queries.for_prompts(db, mailboxes, limit, mutes))

    async def pulse(self, since: datetime, span: timedelta) -> ActivityCounts:
        """Return what happened since a time."""
        return await self._readers.run(lambda db: queries.pulse(db, since, span))

    async def set_sender(self, rule: SenderRule) -> None:
        """Decide about a sender."""
        await self._writer.run(lambda tx: access.set_sender(tx, rule))

    async def senders(self) -> list[SenderRule]:
        """Return all decisions."""
        return await self._readers.run(access.senders)

    async def set_mute(self, mute: Mute, *, is_on: bool) -> None:
        """Begin or end a mute."""
        await self._writer.run(lambda tx: access.set_mute(tx, mute, is_on=is_on))

    async def mutes(self) -> list[Mute]:
        """Return the mutes in force."""
        return await self._readers.run(lambda db: access.mutes(db, self._clock.now()))

    async def record(self, kind: str, data: Mapping[str, object]) -> Event:
        """Add an event that belongs to no message."""
        return await self._writer.run(lambda tx: tx.note(kind, data))

    async def events(self, after: int, limit: int) -> list[Event]:
        """Return the events that follow a number."""
        return await self._readers.run(lambda db: event_rows.after(db, after, limit))

    async def continue_after(self, number: int) -> None:
        """Let events go on above a number."""
        await self._writer.run(lambda tx: event_rows.continue_after(tx, number))

    async def last_event(self) -> int:
        """Return the highest event number."""
        return await self._readers.run(event_rows.last)

    async def prune(self, limits: Limits) -> RetentionReport:
        """Do one bounded round of retention."""
        return await self._writer.run(lambda tx: retention.prune(tx, limits), is_durable=False, needs_room=True)

    async def excess(self, limits: Limits) -> Sequence[MailboxExcess]:
        """Return what is over the limits."""
        now = self._clock.now()
        return await self._readers.run(lambda db: retention.excess(db, limits, now))

    async def stats(self) -> Mapping[str, int]:
        """Return counts for people."""
        return await self._readers.run(lambda db: retention.stats(db, self._path))


@asynccontextmanager
async def open_store(
    path: Path,
    clock: Clock,
    *,
    after_commit: AfterCommit = nothing_after,
    before_commit: BeforeCommit = nothing_before,
    opener: Connect = connect,
    watched: Collection[Path] = (),
    reserve: DiskReserve | None = None,
) -> AsyncIterator[SqliteStore]:
    """Open the store at `path`, creating it when there is none; close it with every write finished.

    On a full disk, what agents are given is still written into the `reserve`, if there is one, and new mail is refused.
    Nothing is written any more when one of its files, or of those that are `watched`, is not the one that was opened.
    """
    changes = LocalChanges()
    with translated():
        await anyio.to_thread.run_sync(prepare_file, path)
        connection = await anyio.to_thread.run_sync(open_writer, path, opener)
        files = OpenFiles(*files_of(path), *watched)
        files.remember()
        waiting = WaitingReaders()
        writer = Writer(
            connection,
            clock,
            waiting,
            files=files,
            reserve=reserve,
            after_commit=after_commit,
            before_commit=before_commit,
            announce=changes.ring,
        )
        readers = Readers(path)
        readers.start()
    writer.start()
    try:
        yield SqliteStore(path, clock, writer=writer, readers=readers, changes=changes, waiting=waiting)
    finally:
        with anyio.CancelScope(shield=True):
            writer.refuse()
            await anyio.to_thread.run_sync(writer.join)
            readers.stop()
