"""Rows of deliveries: what waits for a reader now, leasing it to the reader's session, and where cursors are.

A reader that found nothing leaves its offer in `WaitingReaders`. When a later transaction lets a mailbox grow, the
offer is made inside it, so a waiting agent costs no second commit and no second trip through the writer. That registry
belongs to the writing thread, and follows its transactions: what was begun or served in one that fails is as it was
before. What becomes of an offer is in `deliveries`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
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
    selection = _selected(tx, reader, wanted)
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
INSERT = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until, daemon) VALUES (?, ?, ?, ?, ?, 'offered', ?, ?, ?, 1, ?, ?, ?)
"""
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
    is_over: bool = False  # set in the loop: from then on nothing is offered any more
    made: Selection = NOTHING
    given: Selection = NOTHING
    ready: anyio.Event = field(default_factory=anyio.Event)

    def make(self, tx: Transaction, where: OfferFilter) -> None:
        """Offer what is eligible now."""
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
        self._waiting: list[WaitingReader] = []
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
            self._begun.append(waiting)
        return waiting.made

    def note_offer(self, tx: Transaction, reader: Reader, carrier: str) -> None:
        """Something is about to be offered: withdraw what nobody knows to be offered, and doubt this if that fails."""
        self._withdraw_doubtful(tx)
        self._offered.append((reader, carrier))

    def end(self, waiting: WaitingReader) -> Selection:
        """Wait no longer; return what was offered at the last moment."""
        self._waiting = [other for other in self._waiting if other is not waiting]
        return waiting.made

    def hear(self, grown: Collection[Mailbox]) -> bool:
        """Another daemon let mailboxes grow; return whether a reader waits for them. Called in the event loop."""
        # In this order: a reader goes from the second list to the first.
        here = (*self._begun, *self._waiting)
        is_waited_for = any(
            not waiting.is_over and not set(waiting.reader.mailboxes).isdisjoint(grown) for waiting in here
        )
        if is_waited_for:
            self._heard.put(frozenset(grown))
        return is_waited_for

    def serve(self, tx: Transaction, *, is_alone: bool) -> None:
        """Make the offers that a transaction has something for, for so many readers at most."""
        self._withdraw_doubtful(tx)
        most = MAX_ALONE if is_alone else MAX_WITH_A_MESSAGE
        grown = tx.grown.union(self.unserved)
        self._before, self._unserved = self._unserved, set()
        exhausted: set[tuple[str, tuple[Mailbox, ...], MuteFilter, Choose | None]] = set()
        # Also those that began in this very transaction, before what they wait for was stored in it.
        here = [waiting for waiting in (*self._waiting, *self._begun) if not waiting.is_over]
        concerned = [waiting for waiting in here if not grown.isdisjoint(waiting.reader.mailboxes)]
        for waiting in sorted(concerned, key=lambda each: -each.rank()):
            where = waiting.where()
            key = waiting.reader.consumer, waiting.reader.mailboxes, where.mutes, where.choose
            if key in exhausted:
                continue
            if len(self._served) == most:
                self._unserved = grown
                break
            waiting.make(tx, where)
            if has_something(waiting.made):
                self._served.append(waiting)
                self._offered.append((waiting.reader, waiting.carrier))
            if len(waiting.made.whole) < waiting.limit and not waiting.made.is_full:
                # Sessions of one consumer share a cursor: nothing is left for those that may hear the same. What the
                # first of them has only heard of, because it is long, is for that one to read.
                exhausted.add(key)

    def commit(self) -> Sequence[Callable[[], None]]:
        """The transaction is committed: return the readers it served; the others wait from now on."""
        served, self._served = self._served, []
        self._offered, self._doubtful = [], []
        self._waiting = [
            each for each in (*self._waiting, *self._begun) if not (has_something(each.made) or each.is_over)
        ]
        self._begun = []
        return [each.hand_over for each in served]

    def roll_back(self) -> None:
        """The transaction failed: it served no reader, and a reader that began to wait in it is told so."""
        for waiting in self._served:
            waiting.made = NOTHING
        self._doubtful += self._offered
        self._unserved |= self._before.union(*(reader.mailboxes for reader, _ in self._offered))
        self._begun, self._served, self._offered = [], [], []

    def _withdraw_doubtful(self, tx: Transaction) -> None:
        """Withdraw offers of commits that failed; they stay doubtful until this transaction is committed."""
        for reader, carrier in self._doubtful:
            self._withdraw(tx, reader.session, carrier)
