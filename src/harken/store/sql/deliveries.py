"""Deliveries, leases and cursors: what a consumer has been given and what is proven.

The unread count needs no scan of the unread: it is the mailbox's head minus the cursor minus the final deliveries
above the cursor, and those are few because the cursor follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel

from harken.clock import Clock
from harken.errors import NotFound
from harken.model import (
    Consumer,
    Delivery,
    DeliveryId,
    DeliveryState,
    Mailbox,
    Message,
    MessageId,
    Reader,
    Selection,
    SessionKey,
    fresh_id,
)
from harken.store.contract.deliveries import (
    ConsumerState,
    OfferFilter,
    Omission,
    OpenOffer,
    SurfaceRecord,
    Unread,
)
from harken.store.sql import enrollment, offers
from harken.store.sql.offers import (
    DELIVERY,
    FINAL,
    INSERT,
    OF_CONSUMER,
    WaitingReader,
    WaitingReaders,
    advance,
    cursor_of,
    delivery_from,
    has_something,
)
from harken.store.sql.transaction import (
    BY_ID,
    HEAD,
    NEW_CURSOR,
    Readers,
    SqlConnection,
    StoreHolder,
    Transaction,
    encode_json,
    from_micros,
    from_row,
    optional_moment,
    to_micros,
)
from harken.store.sql.writer import Writer

_MANY_UNREAD = 100_000
MAX_QUICK = 8
"""So many deliveries are proven quickly."""
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
        WHERE d.consumer = :consumer AND d.mailbox = m.mailbox AND d.seq = m.seq AND d.state IN {FINAL})
    LIMIT {_MANY_UNREAD}) unread
GROUP BY channel
"""
BY_DELIVERY = f"{DELIVERY} WHERE id = ? AND state = 'offered'"
OF_MESSAGE = f"{DELIVERY} WHERE message = ? ORDER BY offered_at, consumer"
SEE = "UPDATE deliveries SET state = 'seen', seen_at = ?, evidence = ? WHERE id = ?"
# Sessions of two daemons may have the same key: it may be no more than the number of a process.
_RELEASE = """
UPDATE deliveries SET lease_until = 0 WHERE session = ? AND daemon = ? AND state = 'offered' AND lease_until > 0
"""
RELEASE = f"{_RELEASE} RETURNING mailbox"
RELEASE_GONE = """
UPDATE deliveries SET lease_until = 0 WHERE state = 'offered' AND lease_until > 0
    AND daemon IN (SELECT id FROM daemons WHERE id <> ? AND seen_at < ?) RETURNING mailbox
"""
RELEASE_CARRIER = f"{_RELEASE} AND carrier = ? RETURNING mailbox"
RENEW = """
UPDATE deliveries SET lease_until = ?, session = ?, carrier = ?, daemon = ?
WHERE id = ? AND state = 'offered' AND lease_until = 0
"""
WITHDRAW = """
DELETE FROM deliveries WHERE session = ? AND daemon = ? AND carrier = ? AND state = 'offered' AND offers = 1
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
TRANSFER = "UPDATE deliveries SET session = ? WHERE session = ? AND daemon = ? AND state = 'offered'"
REASSIGN = """
UPDATE deliveries SET session = ?, carrier = ?, daemon = ? WHERE id = ? AND consumer = ? AND state = 'offered'
RETURNING id
"""
SURFACES = """
SELECT consumer, surface, count(*), count(*) FILTER (WHERE state IN ('seen', 'answered')), max(offered_at),
    max(seen_at) FROM deliveries WHERE offered_at >= ? AND offers > 0 AND carrier <> '' GROUP BY consumer, surface
ORDER BY consumer, surface
"""
LAST_EVIDENCE = """
SELECT evidence FROM deliveries WHERE consumer = ? AND surface = ? AND seen_at = ? LIMIT 1
"""
OPEN_SESSIONS = "SELECT DISTINCT session FROM deliveries WHERE state = 'offered' AND lease_until > 0 AND daemon = ?"
OPEN_OFFERS = """
SELECT id, carrier FROM deliveries WHERE session = ? AND daemon = ? AND state = 'offered' AND lease_until > 0
"""
SEEN_BY = """
SELECT message, consumer FROM deliveries
WHERE message IN (SELECT value FROM json_each(?)) AND state IN ('seen', 'answered') ORDER BY seen_at, consumer
"""
LEDGERS = f"{DELIVERY} WHERE message IN (SELECT value FROM json_each(?)) ORDER BY offered_at, consumer"
CONSUMERS = """
SELECT c.consumer, c.mailbox, c.seq, coalesce(b.head, 0), iif(coalesce(b.head, 0) <= c.seq, 0, b.head - c.seq - (
    SELECT count(*) FROM deliveries d
    WHERE d.consumer = c.consumer AND d.mailbox = c.mailbox AND d.seq > c.seq AND d.state <> 'offered')),
    (SELECT count(*) FROM deliveries d WHERE d.consumer = c.consumer AND d.mailbox = c.mailbox AND d.seq > c.seq
        AND d.state = 'offered' AND d.lease_until > :now),
    c.left_out_older, c.left_out_surplus, c.left_out_up_to
FROM cursors c LEFT JOIN mailboxes b ON b.name = c.mailbox
WHERE CAST(:names AS TEXT) IS NULL OR c.mailbox IN (SELECT value FROM json_each(:names)) ORDER BY c.consumer, c.mailbox
"""


def count_unread(connection: SqlConnection, consumer: str, mailbox: str, now: int = 0) -> tuple[int, int, int]:
    """Return (unread, leased of those at `now`, cursor)."""
    cursor = cursor_of(connection, consumer, mailbox)
    head = connection.execute(HEAD, (mailbox,)).fetchone()
    if head is None or head[0] <= cursor:
        return 0, 0, cursor
    final, leased = connection.execute(ABOVE, (now, consumer, mailbox, cursor)).fetchone()
    return int(head[0]) - cursor - int(final), int(leased), cursor


def unread(connection: SqlConnection, reader: Reader, now: int, *, by_channel: bool) -> Unread:
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
        seen = (*row[:3], "seen", *row[4:8], tx.now_micros, evidence, *row[10:])
        changed.append(delivery_from(seen, tx.holder.daemon))
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
    if row is not None and DeliveryState(row[3]).is_final:
        return None
    if row is None:
        tx.execute(
            INSERT,
            (*place, fresh_id("d-"), message.id, evidence, reader.session, "", tx.now_micros, 0, tx.holder.daemon),
        )
        tx.execute(NEW_CURSOR, (reader.consumer, message.mailbox))
    row = tx.execute(OF_CONSUMER, place).fetchone()
    tx.execute(SEE, (tx.now_micros, evidence, row[0]))
    return delivery_from(tx.execute(OF_CONSUMER, place).fetchone(), tx.holder.daemon)


def _announce_seen(tx: Transaction, changed: Collection[Delivery], evidence: str) -> None:
    by_consumer: dict[str, dict[str, str]] = {}
    for delivery in changed:
        by_consumer.setdefault(delivery.consumer, {})[delivery.id] = delivery.message_id
    for consumer, ids in by_consumer.items():
        tx.note("seen", {"consumer": consumer, "evidence": evidence, "deliveries": ids})


def release(tx: Transaction, session: SessionKey, carriers: Collection[str] | None) -> int:
    """End leases of a session."""
    owner = session, tx.holder.daemon
    if carriers is None:
        return _freed(tx, tx.execute(RELEASE, owner))
    return sum(_freed(tx, tx.execute(RELEASE_CARRIER, (*owner, carrier))) for carrier in carriers)


def release_gone(tx: Transaction, before: datetime) -> int:
    """End the leases of the sessions of other daemons that were last heard of before a time."""
    return _freed(tx, tx.execute(RELEASE_GONE, (tx.holder.daemon, to_micros(before))))


def renew(
    tx: Transaction, session: SessionKey, deliveries: Collection[DeliveryId], carrier: str, lease_until: datetime
) -> int:
    """Lease again what was released and is nobody's."""
    until = to_micros(lease_until)
    holder = (until, session, carrier, tx.holder.daemon)
    return sum(tx.execute(RENEW, (*holder, delivery)).rowcount for delivery in deliveries)


def withdraw(tx: Transaction, session: SessionKey, carrier: str) -> int:
    """Undo an offer that was never handed over."""
    rows = tx.execute(WITHDRAW, (session, tx.holder.daemon, carrier)).fetchall()
    released = _freed(tx, rows) + release(tx, session, [carrier])
    if released:
        messages = [row[1] for row in rows]
        tx.note("withdrawn", {"session": session, "messages": messages, "released": released - len(rows)})
    return released


def undo(tx: Transaction, deliveries: Collection[DeliveryId], carrier: str) -> int:
    """Undo offers that were never handed over; their session may have got another name meanwhile."""
    gone = [row for each in deliveries for row in tx.execute(UNDO, (each, carrier)).fetchall()]
    released = [row for each in deliveries for row in tx.execute(UNLEASE, (each, carrier)).fetchall()]
    if gone or released:
        session, messages = (gone or released)[0][2], [row[1] for row in gone]
        tx.note("withdrawn", {"session": session, "messages": messages, "released": len(released)})
    return _freed(tx, [*gone, *released])


def release_except(tx: Transaction, sessions: Collection[SessionKey], kinds: Collection[str] = ()) -> int:
    """End the leases of this daemon's sessions that are gone, all or those of some kinds."""
    begins = tuple(kinds) or ("",)
    found = tx.execute(OPEN_SESSIONS, (tx.holder.daemon,)).fetchall()
    gone = [row[0] for row in found if row[0] not in sessions and row[0].startswith(begins)]
    return sum(release(tx, session, None) for session in gone)


def transfer(tx: Transaction, session: SessionKey, to: SessionKey) -> int:
    """Let a session's open offers be another's."""
    return tx.execute(TRANSFER, (to, session, tx.holder.daemon)).rowcount


def reassign(
    tx: Transaction, deliveries: Collection[DeliveryId], consumer: Consumer, session: SessionKey, carrier: str
) -> list[DeliveryId]:
    """Let open offers of a consumer be a session's, by a carrier."""
    holder = (session, carrier, tx.holder.daemon)
    changed = [tx.execute(REASSIGN, (*holder, each, consumer)).fetchone() for each in deliveries]
    return [DeliveryId(row[0]) for row in changed if row is not None]


def _freed(tx: Transaction, rows: Iterable[Sequence[Any]]) -> int:
    """Ring for the mailboxes of rows that may be offered again: someone may be waiting for them."""
    mailboxes = [Mailbox(row[0]) for row in rows]
    tx.grown.update(mailboxes)
    tx.freed.update(mailboxes)
    return len(mailboxes)


def open_offers(connection: SqlConnection, session: SessionKey, daemon: str) -> list[OpenOffer]:
    """Return the offers without proof of a daemon's session."""
    rows = connection.execute(OPEN_OFFERS, (session, daemon))
    return [OpenOffer(delivery_id=DeliveryId(row[0]), carrier=row[1]) for row in rows]


def seen_by(connection: SqlConnection, messages: Collection[MessageId]) -> dict[MessageId, list[Consumer]]:
    """Return who has seen each of some messages."""
    seen: dict[MessageId, list[Consumer]] = {message: [] for message in messages}
    for message, consumer in connection.execute(SEEN_BY, (encode_json(list(messages)),)):
        seen[message].append(consumer)
    return seen


def surfaces(connection: SqlConnection, since: datetime) -> list[SurfaceRecord]:
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


def ledger(connection: SqlConnection, message: MessageId, daemon: str) -> list[Delivery]:
    """Return the deliveries of a message."""
    return [delivery_from(row, daemon) for row in connection.execute(OF_MESSAGE, (message,))]


def ledgers(connection: SqlConnection, ids: Collection[MessageId], daemon: str) -> dict[MessageId, list[Delivery]]:
    """Return the deliveries of some messages."""
    found: dict[MessageId, list[Delivery]] = {message: [] for message in ids}
    for row in connection.execute(LEDGERS, (encode_json(list(ids)),)):
        found[row[1]].append(delivery_from(row, daemon))
    return found


def consumers(connection: SqlConnection, now: int, mailboxes: Collection[Mailbox] | None = None) -> list[ConsumerState]:
    """Return everyone's place."""
    names = None if mailboxes is None else encode_json(sorted(mailboxes))
    return [
        ConsumerState(
            consumer=Consumer(row[0]),
            mailbox=Mailbox(row[1]),
            cursor=row[2],
            head=row[3],
            unread=row[4],
            leased=row[5],
            left_out=None if row[6] is None else Omission(older=row[6], surplus=row[7], up_to=row[8]),
        )
        for row in connection.execute(CONSUMERS, {"names": names, "now": now})
    ]


class SqlDeliveries:
    """The contract of `DeliveryStore`."""

    def __init__(
        self, writer: Writer, readers: Readers, waiting: WaitingReaders, clock: Clock, holder: StoreHolder
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._waiting = waiting
        self._clock = clock
        self._daemon = holder.daemon

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
        return await self._readers.run(lambda db: unread(db, reader, now, by_channel=by_channel))

    async def peek(
        self, reader: Reader, limit: int, *, channel: str = "", after: str = "", where: OfferFilter | None = None
    ) -> list[Message]:
        """Return what an offer would give."""
        now = to_micros(self._clock.now())
        wanted = offers.OfferQuery(limit, channel, after, where)
        found = await self._readers.run(lambda db: offers.waiting(db, reader, wanted, now=now, oldest_first=True))
        messages = [message for message, _ in found]
        return messages if where is not None else messages[: offers.fitting(messages)]

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
        wanted = offers.OfferQuery(limit, channel, after, where)

        def offer(tx: Transaction) -> Selection:
            self._waiting.note_offer(tx, reader, carrier)
            return offers.offer(tx, reader, wanted, surface=surface, carrier=carrier, lease_until=lease_until)

        return await self._writer.run(offer, is_durable=False)

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
        is_quick = len(deliveries) <= MAX_QUICK
        return await self._writer.run(
            lambda tx: prove(tx, deliveries, evidence, consumer), is_durable=False, is_quick=is_quick
        )

    async def acknowledge(self, reader: Reader, messages: Collection[MessageId], evidence: str) -> list[Delivery]:
        """Mark messages seen for a consumer."""
        return await self._writer.run(lambda tx: acknowledge(tx, reader, messages, evidence), is_durable=False)

    async def release(self, session: SessionKey, carriers: Collection[str] | None = None) -> int:
        """End the leases of a session."""
        return await self._writer.run(lambda tx: release(tx, session, carriers), is_durable=False)

    async def renew(
        self, session: SessionKey, deliveries: Collection[DeliveryId], *, carrier: str, lease_until: datetime
    ) -> int:
        """Lease again what was released."""
        return await self._writer.run(lambda tx: renew(tx, session, deliveries, carrier, lease_until), is_durable=False)

    async def withdraw(self, session: SessionKey, carrier: str) -> int:
        """Undo an offer that was never handed over."""
        return await self._writer.run(lambda tx: withdraw(tx, session, carrier), is_durable=False)

    async def undo(self, deliveries: Collection[DeliveryId], carrier: str) -> int:
        """Undo offers that were never handed over."""
        if not deliveries:
            return 0
        return await self._writer.run(lambda tx: undo(tx, deliveries, carrier), is_durable=False)

    async def release_except(self, sessions: Collection[SessionKey], *, kinds: Collection[str] = ()) -> int:
        """End the leases of sessions that are gone."""
        return await self._writer.run(lambda tx: release_except(tx, sessions, kinds), is_durable=False)

    async def transfer(self, session: SessionKey, to: SessionKey) -> int:
        """Let a session's open offers be another's."""
        return await self._writer.run(lambda tx: transfer(tx, session, to), is_durable=False)

    async def reassign(
        self, deliveries: Collection[DeliveryId], *, consumer: Consumer, session: SessionKey, carrier: str
    ) -> list[DeliveryId]:
        """Let open offers of a consumer be a session's, by a carrier."""
        return await self._writer.run(lambda tx: reassign(tx, deliveries, consumer, session, carrier), is_durable=False)

    async def open_offers(self, session: SessionKey) -> list[OpenOffer]:
        """Return a session's offers without proof."""
        return await self._readers.run(lambda db: open_offers(db, session, self._daemon))

    async def seen_by(self, messages: Collection[MessageId]) -> Mapping[MessageId, Sequence[Consumer]]:
        """Return who has seen each of some messages."""
        return await self._readers.run(lambda db: seen_by(db, messages))

    async def surfaces(self, since: datetime) -> list[SurfaceRecord]:
        """Return how what was offered went, per consumer and surface."""
        return await self._readers.run(lambda db: surfaces(db, since))

    async def ledger(self, message: MessageId) -> list[Delivery]:
        """Return the deliveries of a message."""
        return await self._readers.run(lambda db: ledger(db, message, self._daemon))

    async def ledgers(self, ids: Collection[MessageId]) -> Mapping[MessageId, Sequence[Delivery]]:
        """Return the deliveries of some messages."""
        return await self._readers.run(lambda db: ledgers(db, ids, self._daemon))

    async def consumers(self, mailboxes: Collection[Mailbox] | None = None) -> list[ConsumerState]:
        """Return everyone's place."""
        now = to_micros(self._clock.now())
        return await self._readers.run(lambda db: consumers(db, now, mailboxes))
