"""The outbox: replies that wait to leave, callback subscriptions, and the events that wait to be posted to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from harken.clock import Clock
from harken.errors import Conflict, NotFound
from harken.model import OUTBOX, RULES, Consumer, MessageId, OutboxId, SessionKey, fresh_id
from harken.store.contract.events import RECOVERY
from harken.store.contract.outbox import CallbackSubscription, CallKey, EventPost, OutboxRow
from harken.store.sql.offers import OF_CONSUMER, advance
from harken.store.sql.questions import note_sent
from harken.store.sql.transaction import (
    BY_ID,
    COLUMNS,
    MESSAGE_WIDTH,
    NEW_CURSOR,
    Readers,
    SqlConnection,
    StoreHolder,
    Transaction,
    encode_json,
    from_micros,
    from_row,
    optional_micros,
    optional_moment,
    to_micros,
)
from harken.store.sql.writer import Writer

LONGEST_DELAY = timedelta(hours=1)
# A daemon that hands a reply over has an answer long before. One that has none by then is gone.
CLAIM = timedelta(minutes=10)

_SELECT = f"""
SELECT {COLUMNS}, o.id, o.body, o.state, o.attempts, o.created_at, o.due_at, o.author, o.error, o.upstream_id,
    o.tried_at, o.subscription, o.event
FROM outbox o JOIN messages m ON m.id = o.message
"""
BY_CALL = f"{_SELECT} WHERE o.call_edge = ? AND o.call_request = ?"
BY_OUTBOX_ID = f"{_SELECT} WHERE o.id = ?"
# Due further ahead than any delay can only mean that the clock was set back: it is due.
DUE = f"""{_SELECT} WHERE o.state = 'queued' AND o.subscription = '' AND (o.due_at <= :now OR o.due_at > :far)
    AND (o.daemon IN ('', :daemon) OR o.tried_at <= :over)
    AND (:source = '' OR m.source = :source) AND m.source NOT IN (SELECT value FROM json_each(:without))
    AND (m.conversation = '' OR NOT EXISTS (
        SELECT 1 FROM outbox e JOIN messages em ON em.id = e.message
        WHERE e.state = 'queued' AND e.subscription = '' AND e.n < o.n
            AND em.source = m.source AND em.conversation = m.conversation
            AND e.due_at > :now AND e.due_at <= :far))
ORDER BY o.n LIMIT :limit
"""
RETRY = """
UPDATE outbox SET state = 'queued', attempts = 0, error = '', due_at = ?, daemon = '',
    tried_at = CASE WHEN ? = 0 THEN tried_at END
WHERE id = ? AND state = 'parked'
"""
TRYING = """
UPDATE outbox SET tried_at = ?, daemon = ? WHERE id = ? AND state <> 'sent' AND (daemon IN ('', ?) OR tried_at <= ?)
    AND attempts = coalesce(CAST(? AS BIGINT), attempts)
"""
LET_GO = """
UPDATE outbox SET daemon = '' WHERE daemon = :daemon AND daemon <> '' AND state = 'queued'
    AND (CAST(:rows AS TEXT) IS NULL OR id IN (SELECT value FROM json_each(:rows)))
"""
NEWEST = f"{_SELECT} WHERE (? = '' OR o.state = ?) ORDER BY o.n DESC LIMIT 200"
OF_MESSAGE = f"{_SELECT} WHERE o.message = ? AND o.subscription = '' ORDER BY o.n LIMIT 200"
OF_MESSAGES = f"""{_SELECT}
WHERE o.message IN (SELECT value FROM json_each(?)) AND o.subscription = '' ORDER BY o.n LIMIT 1000
"""
SENT_IDS = """
SELECT o.upstream_id FROM outbox o JOIN messages m ON m.id = o.message
WHERE o.state = 'sent' AND o.upstream_id <> '' AND o.subscription = '' AND m.source = ? ORDER BY o.n DESC LIMIT ?
"""
RESUME = """
UPDATE subscriptions SET is_suspended = 0, given_up = 0
WHERE id = (SELECT subscription FROM outbox WHERE id = ?) AND (is_suspended <> 0 OR given_up <> 0)
"""
INSERT = """
INSERT INTO outbox (id, message, body, author, state, attempts, created_at, due_at, call_edge, call_request)
VALUES (?, ?, ?, ?, 'queued', 0, ?, ?, ?, ?)
"""
ANSWERED = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until, seen_at, evidence, answered_at)
VALUES (?, ?, ?, ?, ?, 'answered', 'reply', ?, '', 1, ?, 0, ?, 'reply', ?)
ON CONFLICT (consumer, mailbox, seq) DO UPDATE SET state = 'answered', answered_at = excluded.answered_at,
    evidence = iif(deliveries.seen_at IS NULL, 'reply', deliveries.evidence),
    seen_at = coalesce(deliveries.seen_at, excluded.seen_at)
"""
COUNT_QUEUED = "SELECT count(*) FROM outbox WHERE state = 'queued'"
COUNT_PARKED = "SELECT count(*) FROM outbox WHERE state = 'parked'"
ANSWERS = "SELECT message FROM outbox WHERE id = ?"
SENT = "UPDATE outbox SET state = 'sent', upstream_id = ?, error = '', daemon = '' WHERE id = ? AND state <> 'sent'"
FAILED = """
UPDATE outbox SET state = ?, attempts = attempts + 1, error = ?, due_at = ?, daemon = '',
    tried_at = CASE WHEN ? <> 0 THEN tried_at END
WHERE id = ? AND state <> 'sent' AND (daemon IN ('', ?) OR tried_at <= ?)
"""


def add_reply(
    tx: Transaction, message_id: MessageId, body: str, *, author: str, consumer: Consumer, call: CallKey | None
) -> OutboxRow:
    """Queue a reply and mark the delivery answered; once per call."""
    if call is not None:
        done = tx.execute(BY_CALL, (call.edge, call.request)).fetchone()
        if done is not None and (done[0], done[MESSAGE_WIDTH + 1]) == (message_id, body):
            return _row(done)
        # Another reply under a number that was used: answering it with the first one would lose it.
        call = None if done is not None else call
    found = tx.execute(BY_ID, (message_id,)).fetchone()
    if found is None:
        raise NotFound(f"There is no message {message_id[:80]!r}.", "See the ids with: harken list")
    message = from_row(found)
    row_id = fresh_id("r-")
    tx.execute(
        INSERT,
        (row_id, message.id, body, author, tx.now_micros, tx.now_micros,
         None if call is None else call.edge, None if call is None else call.request),
    )  # fmt: skip
    if consumer != RULES:
        tx.execute(NEW_CURSOR, (consumer, message.mailbox))
    tx.execute(
        ANSWERED,
        (consumer, message.mailbox, message.seq, fresh_id("d-"), message.id, SessionKey(""), tx.now_micros,
         tx.now_micros, tx.now_micros),
    )  # fmt: skip
    delivery = tx.execute(OF_CONSUMER, (consumer, message.mailbox, message.seq)).fetchone()[0]
    if consumer != RULES:
        advance(tx, consumer, message.mailbox)
    tx.note(
        "answered",
        {"consumer": consumer, "delivery": delivery, "message_id": message.id, "reply": row_id, "author": author,
         "characters": len(body), RECOVERY: {"text": body}},
    )  # fmt: skip
    tx.grown.add(OUTBOX)
    return _row(tx.execute(BY_OUTBOX_ID, (row_id,)).fetchone())


def due(
    connection: SqlConnection, now: datetime, limit: int, *, source: str, without: Collection[str], daemon: str
) -> list[OutboxRow]:
    """Return what should leave now, and no other daemon hands over."""
    named = {
        "daemon": daemon,
        "over": to_micros(now - CLAIM),
        "now": to_micros(now),
        "far": to_micros(now + LONGEST_DELAY),
        "source": source,
        "without": encode_json(list(without)),
        "limit": limit,
    }
    return [_row(row) for row in connection.execute(DUE, named)]


def trying(tx: Transaction, row_id: OutboxId, attempts: int | None) -> None:
    """Record that a reply is about to leave."""
    claim = (tx.now_micros, tx.holder.daemon, row_id, tx.holder.daemon, to_micros(tx.now - CLAIM), attempts)
    if not tx.execute(TRYING, claim).rowcount:
        raise Conflict(f"Another daemon is sending the reply {row_id[:80]!r}, or has sent it.", "Leave it to that one.")


def let_go(tx: Transaction, rows: Collection[OutboxId] | None) -> None:
    """Let other daemons try replies that this one has claimed."""
    named = {"daemon": tx.holder.daemon, "rows": None if rows is None else encode_json(list(rows))}
    if tx.connection.execute(LET_GO, named).rowcount:
        tx.grown.add(OUTBOX)


def of_message(connection: SqlConnection, message: MessageId) -> list[OutboxRow]:
    """Return the replies to a message."""
    return [_row(row) for row in connection.execute(OF_MESSAGE, (message,))]


def of_messages(connection: SqlConnection, messages: Collection[MessageId]) -> dict[MessageId, list[OutboxRow]]:
    """Return the replies to each of some messages."""
    found: dict[MessageId, list[OutboxRow]] = {message: [] for message in messages}
    for reply in map(_row, connection.execute(OF_MESSAGES, (encode_json(list(messages)),))):
        found[reply.message.id].append(reply)
    return found


def newest(connection: SqlConnection, state: str) -> list[OutboxRow]:
    """Return the newest replies."""
    return [_row(row) for row in connection.execute(NEWEST, (state, state))]


def sent_ids(connection: SqlConnection, source: str, limit: int) -> list[str]:
    """Return upstream's ids of what was sent last through a source, in order."""
    return [str(row[0]) for row in connection.execute(SENT_IDS, (source, limit))][::-1]


def counts(connection: SqlConnection) -> dict[str, int]:
    """Count what waits to leave, and what waits for the person."""
    return {
        "queued": int(connection.execute(COUNT_QUEUED).fetchone()[0]),
        "parked": int(connection.execute(COUNT_PARKED).fetchone()[0]),
    }


def sent(tx: Transaction, row_id: OutboxId, upstream_id: str) -> None:
    """Record that a reply has left."""
    if tx.execute(SENT, (upstream_id, row_id)).rowcount:
        tx.note("replied", {"reply": row_id, "upstream_id": upstream_id})
        note_sent(tx, MessageId(tx.execute(ANSWERS, (row_id,)).fetchone()[0]))


def retry(tx: Transaction, rows: Collection[OutboxId], *, is_unsent: bool) -> list[OutboxRow]:
    """Let parked replies be due now."""
    found = [tx.execute(BY_OUTBOX_ID, (each,)).fetchone() for each in rows]
    if None in found:
        missing = list(rows)[found.index(None)]
        raise NotFound(f"There is no reply {missing[:80]!r}.", "See them with: harken outbox")
    for each in rows:
        if tx.execute(RETRY, (tx.now_micros, is_unsent, each)).rowcount:
            tx.note("retried", {"reply": each, "is_unsent": is_unsent})
            tx.execute(RESUME, (each,))
            tx.grown.add(OUTBOX)
    return [_row(tx.execute(BY_OUTBOX_ID, (each,)).fetchone()) for each in rows]


def failed(tx: Transaction, row_id: OutboxId, error: str, *, due_at: datetime | None, is_uncertain: bool) -> None:
    """Record a failed attempt."""
    state = "parked" if due_at is None else "queued"
    own = (row_id, tx.holder.daemon, to_micros(tx.now - CLAIM))
    changed = tx.execute(FAILED, (state, error, to_micros(due_at or tx.now), is_uncertain, *own)).rowcount
    if changed and due_at is None:
        tx.note("parked", {"reply": row_id, "error": error})


def _row(row: Sequence[Any]) -> OutboxRow:
    own = row[MESSAGE_WIDTH:]
    return OutboxRow(
        id=OutboxId(own[0]),
        message=from_row(row),
        body=own[1],
        state=own[2],
        attempts=own[3],
        created_at=from_micros(own[4]),
        due_at=from_micros(own[5]),
        author=own[6],
        error=own[7],
        upstream_id=own[8],
        tried_at=optional_moment(own[9]),
        subscription=own[10],
        event=own[11],
    )


class SqlOutbox:
    """The contract of `OutboxStore`."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock, holder: StoreHolder) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock
        self._daemon = holder.daemon

    async def add(
        self, message: MessageId, body: str, *, author: str, consumer: Consumer, call: CallKey | None = None
    ) -> OutboxRow:
        """Queue a reply, once per call."""
        return await self._writer.run(
            lambda tx: add_reply(tx, message, body, author=author, consumer=consumer, call=call)
        )

    async def due(self, limit: int, *, source: str = "", without: Collection[str] = ()) -> Sequence[OutboxRow]:
        """Return what should leave now."""
        now = self._clock.now()
        return await self._readers.run(
            lambda db: due(db, now, limit, source=source, without=without, daemon=self._daemon)
        )

    async def trying(self, row: OutboxId, *, attempts: int | None = None) -> None:
        """Record that a reply is about to leave."""
        await self._writer.run(lambda tx: trying(tx, row, attempts))

    async def let_go(self, rows: Collection[OutboxId] | None = None) -> None:
        """Let other daemons try replies that this one has claimed."""
        await self._writer.run(lambda tx: let_go(tx, rows), is_durable=False)

    async def list(self, *, state: str = "") -> Sequence[OutboxRow]:
        """Return the newest replies."""
        return await self._readers.run(lambda db: newest(db, state))

    async def to_message(self, message: MessageId) -> Sequence[OutboxRow]:
        """Return the replies to a message."""
        return await self._readers.run(lambda db: of_message(db, message))

    async def to_messages(self, ids: Collection[MessageId]) -> Mapping[MessageId, Sequence[OutboxRow]]:
        """Return the replies to some messages."""
        return await self._readers.run(lambda db: of_messages(db, ids))

    async def sent_ids(self, source: str, limit: int) -> Sequence[str]:
        """Return upstream's ids of what was sent last through a source."""
        return await self._readers.run(lambda db: sent_ids(db, source, limit))

    async def sent(self, row: OutboxId, upstream_id: str) -> None:
        """Record that a reply has left."""
        await self._writer.run(lambda tx: sent(tx, row, upstream_id))

    async def retry(self, rows: Collection[OutboxId], *, is_unsent: bool = False) -> Sequence[OutboxRow]:
        """Let parked replies be due now."""
        return await self._writer.run(lambda tx: retry(tx, rows, is_unsent=is_unsent))

    async def failed(self, row: OutboxId, error: str, *, due_at: datetime | None, is_uncertain: bool = False) -> None:
        """Record a failed attempt."""
        await self._writer.run(lambda tx: failed(tx, row, error, due_at=due_at, is_uncertain=is_uncertain))

    async def counts(self) -> Mapping[str, int]:
        """Return how many replies are queued, and how many parked."""
        return await self._readers.run(counts)


SUBSCRIPTION_COLUMNS: Final = (
    "id, token, holder, url, event, arguments, secret, former, former_until, made_at, renewed_at, expires_at, oldest, "
    "number, has_gap, is_suspended, given_up, failing_from, error, told, told_at"
)
SUBSCRIBED: Final = f"SELECT {SUBSCRIPTION_COLUMNS} FROM subscriptions WHERE id = ?"
ALL_SUBSCRIBED: Final = f"SELECT {SUBSCRIPTION_COLUMNS} FROM subscriptions ORDER BY n"
SUBSCRIBE: Final = """
INSERT INTO subscriptions (id, token, holder, url, event, arguments, secret, made_at, renewed_at, expires_at, oldest,
    number, has_gap) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
RENEW: Final = """
UPDATE subscriptions SET secret = ?, former = ?, former_until = ?, renewed_at = ?, expires_at = ?, is_suspended = 0,
    given_up = 0 WHERE id = ?
"""
DUE_NOW: Final = "UPDATE outbox SET due_at = ? WHERE subscription = ? AND state = 'queued'"
MOVE: Final = "UPDATE subscriptions SET number = ?, has_gap = max(has_gap, ?) WHERE id = ? AND number = ?"
QUEUE: Final = """
INSERT INTO outbox (id, message, body, author, state, attempts, created_at, due_at, upstream_id, subscription, event)
VALUES (?, ?, ?, ?, 'queued', 0, ?, ?, ?, ?, ?)
"""
NEXT_POST: Final = f"{_SELECT} WHERE o.subscription = ? AND o.state = 'queued' ORDER BY o.event, o.n LIMIT 1"
ARRIVED: Final = "DELETE FROM outbox WHERE id = ? AND subscription = ?"
TOLD: Final = """
UPDATE subscriptions SET told = told + 1, told_at = ?, given_up = 0, failing_from = NULL, error = '' WHERE id = ?
"""
TOLD_GAP: Final = "UPDATE subscriptions SET has_gap = 0 WHERE id = ?"
POST_FAILED: Final = "UPDATE subscriptions SET error = ?, failing_from = coalesce(failing_from, ?) WHERE id = ?"
GIVEN_UP: Final = "UPDATE subscriptions SET given_up = given_up + 1 WHERE id = ?"
SUSPEND: Final = "UPDATE subscriptions SET is_suspended = 1 WHERE id = ? AND given_up >= ? AND is_suspended = 0"
LATER: Final = """
UPDATE outbox SET state = ?, attempts = attempts + 1, error = ?, due_at = ? WHERE id = ? AND subscription = ?
"""
UNSUBSCRIBE: Final = ("DELETE FROM outbox WHERE subscription = ?", "DELETE FROM subscriptions WHERE id = ?")


def keep_subscription(tx: Transaction, wanted: CallbackSubscription, overlap: timedelta) -> CallbackSubscription:
    """Make a subscription, or renew it."""
    known = subscribed(tx.connection, wanted.id)
    until = to_micros(wanted.expires_at)
    tx.grown.add(OUTBOX)
    if known is None:
        row = (wanted.id, wanted.token, wanted.holder, wanted.url, wanted.event, wanted.arguments, wanted.secret)
        place = (optional_micros(wanted.oldest), wanted.number, wanted.has_gap)
        tx.execute(SUBSCRIBE, (*row, tx.now_micros, tx.now_micros, until, *place))
        told = {"event": wanted.event, "filter": msgspec.json.decode(wanted.arguments), "to": wanted.place}
        _note(tx, wanted, "made", **told)
        return _surely_subscribed(tx.connection, wanted.id)
    former, former_until = known.former_secret, optional_micros(known.former_until)
    if wanted.secret != known.secret:
        former, former_until = known.secret, to_micros(tx.now + overlap)
        _note(tx, known, "rotated")
    tx.execute(RENEW, (wanted.secret, former, former_until, tx.now_micros, until, wanted.id))
    if known.is_suspended:
        tx.execute(DUE_NOW, (tx.now_micros, wanted.id))
        _note(tx, known, "resumed")
    return _surely_subscribed(tx.connection, wanted.id)


def subscribed(connection: SqlConnection, identifier: str) -> CallbackSubscription | None:
    """Return a subscription."""
    row = connection.execute(SUBSCRIBED, (identifier,)).fetchone()
    return None if row is None else _of_row(row)


def every_subscription(connection: SqlConnection) -> list[CallbackSubscription]:
    """Return all subscriptions."""
    return [_of_row(row) for row in connection.execute(ALL_SUBSCRIBED)]


def queue_posts(
    tx: Transaction, identifier: str, posts: Sequence[EventPost], *, since: int, number: int, has_gap: bool
) -> None:
    """Put events into the outbox, and move the subscription on."""
    known = _surely_subscribed(tx.connection, identifier)
    if not tx.execute(MOVE, (number, int(has_gap), identifier, since)).rowcount:
        raise Conflict("The subscription has moved on.", "Look again.")
    if has_gap and not known.has_gap:
        _note(tx, known, "missed")
    for each in posts:
        own = (fresh_id("e-"), each.message, each.body, known.holder, tx.now_micros, tx.now_micros)
        tx.execute(QUEUE, (*own, each.id, identifier, each.number))
    if posts or has_gap:
        tx.grown.add(OUTBOX)


def next_post(connection: SqlConnection, identifier: str) -> OutboxRow | None:
    """Return the first event that waits."""
    row = connection.execute(NEXT_POST, (identifier,)).fetchone()
    return None if row is None else _row(row)


def posted(tx: Transaction, identifier: str, row: OutboxId) -> None:
    """Let an event leave the outbox: it has arrived."""
    if tx.execute(ARRIVED, (row, identifier)).rowcount:
        tx.execute(TOLD, (tx.now_micros, identifier))


def post_failed(
    tx: Transaction,
    identifier: str,
    row: OutboxId | None,
    error: str,
    *,
    due_at: datetime | None,
    suspend_after: int | None,
) -> None:
    """Record a failed try."""
    known = subscribed(tx.connection, identifier)
    if known is None:
        return
    tx.execute(POST_FAILED, (error, tx.now_micros, identifier))
    if row is None:
        return
    state = "parked" if due_at is None else "queued"
    changed = tx.execute(LATER, (state, error, to_micros(due_at or tx.now), row, identifier)).rowcount
    if changed and due_at is None:
        _note(tx, known, "parked", reply=row, error=error)
        tx.execute(GIVEN_UP, (identifier,))
        if suspend_after is not None and tx.execute(SUSPEND, (identifier, suspend_after)).rowcount:
            _note(tx, known, "suspended", error=error)


def end_subscription(tx: Transaction, identifier: str, reason: str) -> None:
    """Remove a subscription and its events."""
    known = subscribed(tx.connection, identifier)
    if known is None:
        return
    for statement in UNSUBSCRIBE:
        tx.execute(statement, (identifier,))
    _note(tx, known, "ended", reason=reason)
    tx.grown.add(OUTBOX)


def _note(tx: Transaction, about: CallbackSubscription, change: str, **more: object) -> None:
    tx.note("subscription", {"subscription": about.id, "token": about.holder, "change": change, **more})


def _surely_subscribed(connection: SqlConnection, identifier: str) -> CallbackSubscription:
    found = subscribed(connection, identifier)
    if found is None:
        raise NotFound("There is no such subscription.", "Subscribe again.")
    return found


def _of_row(row: Sequence[Any]) -> CallbackSubscription:
    return CallbackSubscription(
        id=row[0],
        token=row[1],
        holder=row[2],
        url=row[3],
        event=row[4],
        arguments=row[5],
        secret=row[6],
        former_secret=row[7],
        former_until=optional_moment(row[8]),
        made_at=from_micros(row[9]),
        renewed_at=from_micros(row[10]),
        expires_at=from_micros(row[11]),
        oldest=optional_moment(row[12]),
        number=row[13],
        has_gap=bool(row[14]),
        is_suspended=bool(row[15]),
        given_up=row[16],
        failing_from=optional_moment(row[17]),
        error=row[18],
        told=row[19],
        told_at=optional_moment(row[20]),
    )


class SqlSubscriptions:
    """The contract of `SubscriptionStore`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def keep(self, wanted: CallbackSubscription, overlap: timedelta) -> CallbackSubscription:
        """Make a subscription, or renew it."""
        return await self._writer.run(lambda tx: keep_subscription(tx, wanted, overlap))

    async def find(self, subscription: str) -> CallbackSubscription | None:
        """Return a subscription."""
        return await self._readers.run(lambda db: subscribed(db, subscription))

    async def list(self) -> list[CallbackSubscription]:
        """Return all subscriptions."""
        return await self._readers.run(every_subscription)

    async def queue(
        self, subscription: str, posts: Sequence[EventPost], *, since: int, number: int, has_gap: bool = False
    ) -> None:
        """Put events into the outbox, and move the subscription on."""
        await self._writer.run(
            lambda tx: queue_posts(tx, subscription, posts, since=since, number=number, has_gap=has_gap),
            is_durable=bool(posts) or has_gap,
        )

    async def next_post(self, subscription: str) -> OutboxRow | None:
        """Return the first event that waits."""
        return await self._readers.run(lambda db: next_post(db, subscription))

    async def posted(self, subscription: str, row: OutboxId) -> None:
        """Let an event leave the outbox."""
        # Lost with the power, it is posted once more, with the same id.
        await self._writer.run(lambda tx: posted(tx, subscription, row), is_durable=False)

    async def told_gap(self, subscription: str) -> None:
        """Record that the subscriber knows of what it missed."""
        await self._writer.run(lambda tx: tx.execute(TOLD_GAP, (subscription,)).rowcount, is_durable=False)

    async def failed(
        self,
        subscription: str,
        row: OutboxId | None,
        error: str,
        *,
        due_at: datetime | None,
        suspend_after: int | None = None,
    ) -> None:
        """Record a failed try."""
        await self._writer.run(
            lambda tx: post_failed(tx, subscription, row, error, due_at=due_at, suspend_after=suspend_after)
        )

    async def end(self, subscription: str, reason: str) -> None:
        """Remove a subscription and its events."""
        await self._writer.run(lambda tx: end_subscription(tx, subscription, reason))
