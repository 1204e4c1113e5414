"""Rows of deliveries: what waits for a reader now, leasing it to the reader's session, and where cursors are.

A reader that found nothing leaves its offer in `WaitingReaders`. When a later transaction lets a mailbox grow, the
offer is made inside it, so a waiting agent costs no second commit and no second trip through the writer. Mostly it is
made from the very messages that the transaction stored (`FreshMail`), without a look at the database for each reader.
That registry belongs to the writer, and follows its transactions: what was begun or served in one that fails is
as it was before. What becomes of an offer is in `deliveries`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from queue import SimpleQueue
from typing import Any

import anyio

from harken.errors import NotFound
from harken.model import (
    Choose,
    Consumer,
    Delivery,
    DeliveryId,
    DeliveryState,
    Mailbox,
    Message,
    MessageId,
    Offer,
    Priority,
    Reader,
    Selection,
    SessionKey,
    fresh_id,
)
from harken.store.contract.deliveries import MAX_OFFER_CHARS, MuteFilter, OfferFilter
from harken.store.sql.transaction import (
    COLUMNS,
    HEAD,
    MESSAGE_WIDTH,
    SqlConnection,
    Transaction,
    encode_json,
    for_rows,
    from_micros,
    from_row,
    optional_moment,
    to_micros,
)

# A lease that begins more than its own length after now comes from before the clock was set back: it is over.
_WAITING = f"""
SELECT {COLUMNS}, m.n, d.id FROM messages m
LEFT JOIN deliveries d ON d.consumer = :consumer AND d.mailbox = m.mailbox AND d.seq = m.seq
WHERE m.mailbox = :mailbox
    AND m.seq > coalesce((SELECT seq FROM cursors WHERE consumer = :consumer AND mailbox = :mailbox), 0)
    AND (:channel = '' OR m.channel = :channel) AND m.n > :after
    AND (CAST(:only AS TEXT) IS NULL OR m.id IN (SELECT value FROM json_each(:only)))
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
# Of consumers, those with an offer in a mailbox that may be made again.
LEASES_OVER = """
SELECT c.value FROM json_each(?) c WHERE EXISTS (
    SELECT 1 FROM deliveries d WHERE d.consumer = c.value AND d.mailbox = ?
        AND d.seq > coalesce((SELECT k.seq FROM cursors k WHERE k.consumer = c.value AND k.mailbox = ?), 0)
        AND d.state = 'offered' AND (d.lease_until <= ? OR d.offered_at - ? > d.lease_until - d.offered_at))
"""
TAKEN = """
SELECT consumer, message, state FROM deliveries WHERE message IN (SELECT value FROM json_each(?))
ORDER BY seen_at, consumer
"""
OFFER_AGAIN = """
UPDATE deliveries SET surface = ?, session = ?, carrier = ?, offers = offers + 1, offered_at = ?, lease_until = ?,
    daemon = ?
WHERE id = ?
"""
MAX_LOOKED_AT = 500
"""How many are looked at, at most, for some that an answer can carry."""
LONG_CHARS = 64_000
MAX_LONG_CHARS = 32_000_000
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
    connection: SqlConnection, reader: Reader, wanted: OfferQuery, *, now: int, oldest_first: bool = False
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
        if length <= LONG_CHARS or characters < MAX_LONG_CHARS:
            kept.append(row)
            characters += length if length > LONG_CHARS else 0
    return kept, count


def _holds_all_long(found: Sequence[Message]) -> bool:
    """Whether no long message was left out of what was looked at."""
    return sum(len(each.text) for each in found if len(each.text) > LONG_CHARS) < MAX_LONG_CHARS


def fitting(found: Sequence[Message]) -> int:
    """Return how many of the first one answer can carry: all, or up to the one with which the bound is reached."""
    characters = 0
    for index, message in enumerate(found):
        characters += len(message.text)
        if characters >= MAX_OFFER_CHARS:
            return index + 1
    return len(found)


def all_that_fit(offers: Sequence[Offer], limit: int) -> Selection:
    """Let go whole what comes first, for a reader that has no bound but ours."""
    whole = offers[: min(limit, fitting([each.message for each in offers]))]
    return Selection(whole=whole, is_full=sum(len(each.message.text) for each in whole) >= MAX_OFFER_CHARS)


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
    selection = _selected(lambda limit: _candidates(tx, reader, replace(wanted, limit=limit)), wanted)
    for each in selection.whole:
        message, delivery = each.message, each.delivery_id
        if each.is_repeat:
            holder = (surface, reader.session, carrier, tx.now_micros, until, tx.holder.daemon)
            tx.execute(OFFER_AGAIN, (*holder, delivery))
        else:
            tx.execute(
                INSERT,
                (reader.consumer, message.mailbox, message.seq, delivery, message.id, surface, reader.session,
                 carrier, tx.now_micros, until, tx.holder.daemon),
            )  # fmt: skip
    if selection.whole:
        tx.note("offered", _told(reader, surface, selection.whole))
    return selection


def _told(reader: Reader, surface: str, whole: Sequence[Offer]) -> dict[str, object]:
    """Return what the journal says of an offer."""
    return {
        "consumer": reader.consumer,
        "session": reader.session,
        "surface": surface,
        "deliveries": {each.delivery_id: each.message.id for each in whole},
        "repeats": sum(each.is_repeat for each in whole),
    }


def _selected(find: Callable[[int], list[Offer]], wanted: OfferQuery) -> Selection:
    """Return what goes into one answer; what is too long for any lets others be looked at in its place.

    `find` returns so many, at most, of what may be offered.
    """
    choose: Choose = (wanted.where and wanted.where.choose) or all_that_fit
    looked_at = wanted.limit
    while True:
        offers = find(looked_at)
        selection = choose(offers, wanted.limit)
        is_enough = selection.is_full or not selection.too_long or len(selection.whole) >= wanted.limit
        is_all = len(offers) < looked_at and _holds_all_long([each.message for each in offers])
        if is_enough or is_all or looked_at >= MAX_LOOKED_AT:
            return selection
        looked_at = min(2 * looked_at, MAX_LOOKED_AT)


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


FINAL = "('seen', 'answered', 'expired', 'refused', 'failed')"
CURSOR = "SELECT seq FROM cursors WHERE consumer = ? AND mailbox = ?"
_OFFERED = "(?, ?, ?, ?, ?, 'offered', ?, ?, ?, 1, ?, ?, ?)"
INSERT_OFFERED = for_rows(
    """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until, daemon)
""",
    _OFFERED,
)
INSERT = INSERT_OFFERED[1]
DELIVERY = (
    "SELECT id, message, consumer, state, surface, session, offered_at, offers, seen_at, evidence, answered_at, "
    "reason, mailbox, coalesce((SELECT machine FROM daemons d WHERE d.id = deliveries.daemon), ''), daemon "
    "FROM deliveries"
)
OF_CONSUMER = f"{DELIVERY} WHERE consumer = ? AND mailbox = ? AND seq = ?"
OWN = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until, seen_at, evidence) VALUES (?, ?, ?, ?, ?, 'seen', 'own', '', '', 0, ?, 0, ?, 'own')
"""
FINALS_FROM = f"""
SELECT seq FROM deliveries WHERE consumer = ? AND mailbox = ? AND seq > ? AND state IN {FINAL} ORDER BY seq LIMIT 1000
"""
NEXT_STORED = "SELECT seq FROM messages WHERE mailbox = ? AND seq > ? ORDER BY seq LIMIT 1"
MOVE = "UPDATE cursors SET seq = ? WHERE consumer = ? AND mailbox = ?"


def head_of(tx: Transaction, mailbox: str) -> int:
    """Return the highest number in a mailbox."""
    row = tx.execute(HEAD, (mailbox,)).fetchone()
    return int(row[0]) if row else 0


def cursor_of(connection: SqlConnection, consumer: str, mailbox: str) -> int:
    """Return a consumer's cursor, 0 when it has none."""
    row = connection.execute(CURSOR, (consumer, mailbox)).fetchone()
    return int(row[0]) if row else 0


def own(tx: Transaction, author: Consumer, message: Message) -> None:
    """Let what a reader said be seen by that reader. Not journaled: the message itself says who said it."""
    if tx.execute(CURSOR, (author, message.mailbox)).fetchone() is not None:
        place = (author, message.mailbox, message.seq)
        tx.execute(OWN, (*place, fresh_id("d-"), message.id, tx.now_micros, tx.now_micros))
        advance(tx, author, message.mailbox)


def advance(tx: Transaction, consumer: str, mailbox: str) -> int:
    """Move a cursor over everything final that follows it; return where it is then."""
    cursor = start = cursor_of(tx.connection, consumer, mailbox)
    while True:
        finals = [int(row[0]) for row in tx.execute(FINALS_FROM, (consumer, mailbox, cursor))]
        # Retention leaves gaps in what is stored, and what it removed was final.
        reached = _before_next_stored(tx, mailbox, _contiguous(cursor, finals))
        if reached == cursor:
            break
        cursor = reached
    if cursor != start:
        tx.execute(MOVE, (cursor, consumer, mailbox))
    return cursor


def _before_next_stored(tx: Transaction, mailbox: str, cursor: int) -> int:
    row = tx.execute(NEXT_STORED, (mailbox, cursor)).fetchone()
    if row is not None:
        return int(row[0]) - 1
    head = tx.execute(HEAD, (mailbox,)).fetchone()
    return cursor if head is None else max(cursor, int(head[0]))


def _contiguous(cursor: int, finals: Iterable[int]) -> int:
    for seq in finals:
        if seq != cursor + 1:
            break
        cursor = seq
    return cursor


def delivery_from(row: Sequence[Any], daemon: str) -> Delivery:
    """Build a delivery from the columns of `DELIVERY`, as a daemon sees it."""
    return Delivery(
        id=DeliveryId(row[0]),
        message_id=MessageId(row[1]),
        consumer=Consumer(row[2]),
        state=DeliveryState(row[3]),
        surface=row[4],
        session=SessionKey(row[5]),
        offered_at=from_micros(row[6]),
        offers=row[7],
        seen_at=optional_moment(row[8]),
        evidence=row[9],
        answered_at=optional_moment(row[10]),
        reason=row[11],
        machine=row[13],
        daemon="" if row[14] == daemon else row[14],
    )


NOTHING = Selection()
MAX_WITH_A_MESSAGE, MAX_ALONE = 16, 100
"""How many are served with the commit that accepts a message; the rest follow, so that the sender need not wait."""
MAX_FROM_FRESH = 1_000
"""How many are served with it where that asks the database nothing."""
MAX_FRESH = 64
"""Of more new messages at once the database says what goes to whom."""


@dataclass(slots=True, kw_only=True, eq=False)
class WaitingReader:
    """One reader that waits. `made` is the writer's; `given` and `ready` are set in the loop once it is committed."""

    reader: Reader
    limit: int
    surface: str
    carrier: str
    lease: timedelta
    rank: Callable[[], float]  # asked when there is something: the person may have used another session meanwhile
    where: Callable[[], OfferFilter]
    number: int = 0  # of those that wait for the same with the same rank, the first has the lowest
    is_over: bool = False  # set in the loop: from then on nothing is offered any more
    asked: OfferFilter | None = None  # with this filter nothing is left of what was stored; None: something may be
    made: Selection = NOTHING
    given: Selection = NOTHING
    ready: anyio.Event = field(default_factory=anyio.Event)

    def make(self, tx: Transaction, where: OfferFilter) -> None:
        """Offer what is eligible now."""
        self.asked = where
        self.made = offer(
            tx,
            self.reader,
            OfferQuery(self.limit, where=where),
            surface=self.surface,
            carrier=self.carrier,
            lease_until=tx.now + self.lease,
        )

    def hand_over(self) -> None:
        """Let the one who waits have what was made. Runs in the event loop, after the commit."""
        self.given = self.made
        self.ready.set()


def has_something(selection: Selection) -> bool:
    """Whether there is anything to tell in it, whole or cut."""
    return bool(selection.whole or selection.cut)


class FreshMail:
    """The messages that a transaction stored, for readers that have been given all that was there before.

    `mailboxes` are those that grew by nothing else, and `readers` wait for these. Nothing else can be there for one of
    them if its filter is the one with which it looked, and no lease of what its consumer was offered is over.
    """

    def __init__(self, tx: Transaction, mailboxes: Collection[Mailbox], readers: Collection[WaitingReader]) -> None:
        self._tx = tx
        self._readers = frozenset(readers)
        self._messages = [each for each in tx.fresh if each.mailbox in mailboxes]
        self._messages.sort(key=lambda each: each.priority is not Priority.HIGH)
        self._taken: dict[str, set[str]] = {}
        self._read: dict[str, list[tuple[Consumer, str]]] = {}
        self._with_leases_over = self._find_leases_over()
        self._passing: dict[tuple[tuple[Mailbox, ...], OfferFilter], list[Message]] = {}
        self._rows: list[tuple[object, ...]] = []
        self._told: list[dict[str, object]] = []
        ids = encode_json([each.id for each in self._messages])
        for consumer, message, state in tx.execute(TAKEN, (ids,)):
            self._taken.setdefault(consumer, set()).add(message)
            if state in ("seen", "answered"):
                self._read.setdefault(message, []).append((Consumer(consumer), state))

    def _find_leases_over(self) -> set[str]:
        consumers: dict[Mailbox, set[str]] = {}
        for waiting in self._readers:
            for mailbox in waiting.reader.mailboxes:
                consumers.setdefault(mailbox, set()).add(waiting.reader.consumer)
        now, found = self._tx.now_micros, set[str]()
        for mailbox, names in consumers.items():
            asked = encode_json(sorted(names)), mailbox, mailbox, now, now
            found.update(row[0] for row in self._tx.execute(LEASES_OVER, asked))
        return found

    def is_all_for(self, waiting: WaitingReader, where: OfferFilter) -> bool:
        """Whether nothing else can be there for a reader."""
        is_known = waiting in self._readers and waiting.asked == where
        return is_known and waiting.reader.consumer not in self._with_leases_over

    def make(self, waiting: WaitingReader, where: OfferFilter) -> None:
        """Offer what is eligible of them; it is there for others when it is written."""
        tx, reader = self._tx, waiting.reader
        waiting.asked = where
        passing = self._passing_for(reader, where)
        if not passing:
            waiting.made = NOTHING
            return
        query = OfferQuery(waiting.limit, where=where)
        waiting.made = _selected(lambda limit: [self._offer(reader, each) for each in passing[:limit]], query)
        whole = waiting.made.whole
        if not whole:
            return
        self.take(waiting)
        until = to_micros(tx.now + waiting.lease)
        holder = (waiting.surface, reader.session, waiting.carrier, tx.now_micros, until, tx.holder.daemon)
        for each in whole:
            place = (reader.consumer, each.message.mailbox, each.message.seq)
            self._rows.append((*place, each.delivery_id, each.message.id, *holder))
        self._told.append(_told(reader, waiting.surface, whole))

    def take(self, waiting: WaitingReader) -> None:
        """Know that a reader was given something: it is for no other one of its consumer."""
        ids = {offered.message.id for offered in waiting.made.whole}
        self._taken.setdefault(waiting.reader.consumer, set()).update(ids)

    def write(self) -> None:
        """Store what was offered so far."""
        self._tx.insert(INSERT_OFFERED, self._rows)
        self._tx.note_all("offered", self._told)
        self._rows, self._told = [], []

    def _passing_for(self, reader: Reader, where: OfferFilter) -> Sequence[Message]:
        key = reader.mailboxes, where
        found = self._passing.get(key)
        if found is None:
            here = [each for each in self._messages if each.mailbox in reader.mailboxes]
            found = self._passing[key] = [each for each in here if where.lets(each)]
        taken = self._taken.get(reader.consumer)
        return found if not taken else [each for each in found if each.id not in taken]

    def _offer(self, reader: Reader, message: Message) -> Offer:
        read = self._read.get(message.id, ())
        return Offer(
            message=message,
            delivery_id=DeliveryId(fresh_id("d-")),
            offered_at=self._tx.now,
            answered_by=next((c for c, state in read if state == "answered" and c != reader.consumer), None),
            seen_by=tuple(consumer for consumer, _ in read),
        )


Withdraw = Callable[[Transaction, SessionKey, str], int]


class WaitingReaders:
    """The readers that wait, and what becomes of offers when a commit fails.

    A commit that failed may have happened all the same, on a server that went away before it answered. Its offers have
    reached nobody: they are withdrawn before anything else is offered.
    """

    def __init__(self, withdraw: Withdraw) -> None:
        self._withdraw = withdraw
        self._offered: list[tuple[Reader, str]] = []
        self._doubtful: list[tuple[Reader, str]] = []
        self._waiting: dict[Mailbox, dict[WaitingReader, None]] = {}  # in the order in which they came
        self._heads: dict[Mailbox, int] = {}  # up to which number each that waits for a mailbox was asked
        self._numbers = count()
        self._unserved: set[Mailbox] = set()
        self._begun: list[WaitingReader] = []
        self._heard: SimpleQueue[frozenset[Mailbox]] = SimpleQueue()
        self._served: list[WaitingReader] = []
        self._before: set[Mailbox] = set()

    @property
    def unserved(self) -> Collection[Mailbox]:
        """Mailboxes that grew, with waiting readers that were not served yet."""
        while not self._heard.empty():
            self._unserved |= self._heard.get()
        return self._unserved

    def begin(self, tx: Transaction, waiting: WaitingReader) -> Selection:
        """Offer at once what there is; with nothing there, keep the reader waiting."""
        self.note_offer(tx, waiting.reader, waiting.carrier)
        waiting.make(tx, waiting.where())
        if not has_something(waiting.made):
            waiting.number = next(self._numbers)
            self._begun.append(waiting)
            for mailbox in waiting.reader.mailboxes:
                if not self._waiting.get(mailbox):
                    self._heads[mailbox] = head_of(tx, mailbox)
        return waiting.made

    def note_offer(self, tx: Transaction, reader: Reader, carrier: str) -> None:
        """Something is about to be offered: withdraw what nobody knows to be offered, and doubt this if that fails."""
        self._withdraw_doubtful(tx)
        self._offered.append((reader, carrier))

    def end(self, waiting: WaitingReader) -> Selection:
        """Wait no longer; return what was offered at the last moment."""
        self._forget(waiting)
        return waiting.made

    def _forget(self, waiting: WaitingReader) -> None:
        for mailbox in waiting.reader.mailboxes:
            if (here := self._waiting.get(mailbox)) is not None:
                here.pop(waiting, None)
                if not here:
                    del self._waiting[mailbox]

    def hear(self, grown: Collection[Mailbox]) -> bool:
        """Another daemon let mailboxes grow; return whether a reader waits for them. Called in the event loop."""
        # In this order: a reader goes from the first of them to the others. Each is copied before it is looked at.
        begun = [each for each in tuple(self._begun) if not set(each.reader.mailboxes).isdisjoint(grown)]
        here = (each for mailbox in grown for each in tuple(self._waiting.get(mailbox, ())))
        is_waited_for = any(not waiting.is_over for waiting in (*begun, *here))
        if is_waited_for:
            self._heard.put(frozenset(grown))
        return is_waited_for

    def serve(self, tx: Transaction, *, is_alone: bool) -> None:
        """Make the offers that a transaction has something for, for so many readers at most."""
        self._withdraw_doubtful(tx)
        grown = tx.grown.union(self.unserved)
        concerned = self._concerned(grown)
        fresh = self._fresh_mail(tx, concerned)
        self._before, self._unserved = self._unserved, set()
        most = MAX_ALONE if is_alone else MAX_WITH_A_MESSAGE
        exhausted: dict[tuple[str, tuple[Mailbox, ...], MuteFilter, Choose | None], OfferFilter] = {}
        asked = 0
        for waiting in concerned:
            where = waiting.where()
            key = waiting.reader.consumer, waiting.reader.mailboxes, where.mutes, where.choose
            if key in exhausted:
                waiting.asked = where if exhausted[key] == where else None
                continue
            if len(self._served) >= MAX_FROM_FRESH or asked == most:
                self._unserved = grown
                break
            if fresh is not None and fresh.is_all_for(waiting, where):
                fresh.make(waiting, where)
            else:
                self._make(tx, waiting, where, fresh)
                asked += has_something(waiting.made)
            if has_something(waiting.made):
                self._served.append(waiting)
                self._offered.append((waiting.reader, waiting.carrier))
            if len(waiting.made.whole) < waiting.limit and not waiting.made.is_full:
                # Sessions of one consumer share a cursor: nothing is left for those that may hear the same. What the
                # first of them has only heard of, because it is long, is for that one to read.
                exhausted[key] = where
        if fresh is not None:
            fresh.write()
        self._note_heads(tx, grown)

    def _concerned(self, grown: AbstractSet[Mailbox]) -> Sequence[WaitingReader]:
        """Return those that wait for some mailboxes, the first to be served first."""
        found = {each: None for mailbox in grown for each in self._waiting.get(mailbox, ())}
        # Also those that began in this very transaction, before what they wait for was stored in it.
        found.update((each, None) for each in self._begun if not grown.isdisjoint(each.reader.mailboxes))
        return sorted((each for each in found if not each.is_over), key=lambda each: (-each.rank(), each.number))

    def _fresh_mail(self, tx: Transaction, concerned: Sequence[WaitingReader]) -> FreshMail | None:
        """Return the new messages from which some of those that wait can be served; None where that cannot be."""
        if not concerned or not 0 < len(tx.fresh) <= MAX_FRESH:
            return None
        first: dict[Mailbox, int] = {}
        for message in tx.fresh:
            first.setdefault(message.mailbox, message.seq)
        # What is free again, or came through another daemon and was not heard of yet, only the database knows.
        others = tx.grown.difference(first).union(tx.freed, self._unserved)
        known = {name for name, seq in first.items() if self._heads.get(name) == seq - 1} - others
        begun = frozenset(self._begun)
        readers = [
            each
            for each in concerned
            if each.asked is not None
            and each not in begun
            and (tx.grown | others).intersection(each.reader.mailboxes) <= known
        ]
        return FreshMail(tx, known, readers) if readers else None

    def _make(self, tx: Transaction, waiting: WaitingReader, where: OfferFilter, fresh: FreshMail | None) -> None:
        """Offer what the database says is eligible."""
        if fresh is not None:
            fresh.write()
        waiting.make(tx, where)
        if fresh is not None:
            fresh.take(waiting)

    def _note_heads(self, tx: Transaction, grown: Collection[Mailbox]) -> None:
        """Know up to which message those that wait were asked."""
        stored = {message.mailbox: message.seq for message in tx.fresh}
        for mailbox in grown:
            if mailbox in self._unserved:
                self._heads.pop(mailbox, None)
            elif mailbox in self._waiting:
                self._heads[mailbox] = stored.get(mailbox) or head_of(tx, mailbox)

    def commit(self) -> Sequence[Callable[[], None]]:
        """The transaction is committed: return the readers it served; the others wait from now on."""
        served, self._served = self._served, []
        self._offered, self._doubtful = [], []
        for waiting in self._begun:
            if not (has_something(waiting.made) or waiting.is_over):
                for mailbox in waiting.reader.mailboxes:
                    self._waiting.setdefault(mailbox, {})[waiting] = None
        for waiting in served:
            self._forget(waiting)
        self._begun = []
        return [each.hand_over for each in served]

    def roll_back(self) -> None:
        """The transaction failed: it served no reader, and a reader that began to wait in it is told so."""
        for waiting in self._served:
            waiting.made = NOTHING
        self._doubtful += self._offered
        self._unserved |= self._before.union(*(reader.mailboxes for reader, _ in self._offered))
        self._begun, self._served, self._offered = [], [], []
        self._heads.clear()

    def _withdraw_doubtful(self, tx: Transaction) -> None:
        """Withdraw offers of commits that failed; they stay doubtful until this transaction is committed.

        One that this transaction makes again, as in the reserve of a full disk, is not withdrawn with them.
        """
        for reader, carrier in self._doubtful:
            if (reader, carrier) not in self._offered:
                self._withdraw(tx, reader.session, carrier)
