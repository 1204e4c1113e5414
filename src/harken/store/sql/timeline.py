"""Looking: what a page shows, found through indexes and counts that are kept, never by reading everything.

One statement for many messages, so that a page costs a handful of questions. Nothing here writes; the counts per
channel are kept by triggers of the schema.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from harken.model import Mailbox, Message, MessageId
from harken.store.contract.conversations import ConversationKey
from harken.store.contract.deliveries import MuteFilter
from harken.store.contract.timeline import (
    MAX_MUTED_AMONG_PROMPTS,
    MAX_UNREAD_OF_CHANNEL,
    ActivityCounts,
    ChannelState,
    HourlyCount,
    MailboxState,
    TimelinePart,
    TimelineScope,
)
from harken.store.sql import conversations
from harken.store.sql.transaction import (
    COLUMNS,
    MESSAGE_WIDTH,
    Readers,
    SqlConnection,
    encode_json,
    from_micros,
    from_row,
    optional_moment,
    to_micros,
)
from harken.store.sql.writer import Writer

MAX: Final = 2**63 - 1
MAX_CHANNELS_OF_PLACE: Final = 64
MAX_TIMED: Final = 1_000

_NO_TRIAL = "m.mailbox NOT LIKE 'trial:%'"
_IS_LINE = """(m.kind = 'message' OR m.refers_to IS NULL OR NOT EXISTS (
    SELECT 1 FROM messages r WHERE r.id = m.refers_to AND r.kind = 'message' AND r.mailbox = m.mailbox
        AND r.source = m.source AND r.sender_id = m.sender_id))"""
_LINES = f"SELECT {COLUMNS}, m.n FROM messages m WHERE {_IS_LINE} AND {_NO_TRIAL}"
_OF_MAILBOX = "AND m.mailbox = :mailbox"
MAILBOX_BEFORE = f"{_LINES} {_OF_MAILBOX} AND m.seq < :position ORDER BY m.seq DESC LIMIT :limit"
MAILBOX_AFTER = f"{_LINES} {_OF_MAILBOX} AND m.seq > :position ORDER BY m.seq LIMIT :limit"
_OF_CHANNEL = """AND m.source = :source AND m.channel = :channel
    AND (CAST(:among AS TEXT) IS NULL OR m.mailbox IN (SELECT value FROM json_each(:among)))"""
CHANNEL_BEFORE = f"{_LINES} {_OF_CHANNEL} AND m.n > :cleared AND m.n < :position ORDER BY m.n DESC LIMIT :limit"
CHANNEL_AFTER = f"{_LINES} {_OF_CHANNEL} AND m.n > max(:cleared, :position) ORDER BY m.n LIMIT :limit"
_OF_THREAD = f"""
SELECT {COLUMNS}, m.n FROM conversation_messages t CROSS JOIN messages m ON m.n = t.n
WHERE t.source = :source AND t.thread = :thread AND {_IS_LINE}
"""
THREAD_BEFORE = f"{_OF_THREAD} AND t.n < :position ORDER BY t.n DESC LIMIT :limit"
THREAD_AFTER = f"{_OF_THREAD} AND t.n > :position ORDER BY t.n LIMIT :limit"
EVERY_BEFORE = f"{_LINES} AND m.n < :position ORDER BY m.n DESC LIMIT :limit"
EVERY_AFTER = f"{_LINES} AND m.n > :position ORDER BY m.n LIMIT :limit"
NEWEST_OF_MAILBOX = "SELECT max(seq) FROM messages WHERE mailbox = ?"
NEWEST_OF_CHANNEL = "SELECT max(n) FROM messages WHERE source = ? AND channel = ?"
NEWEST_OF_THREAD = "SELECT max(n) FROM conversation_messages WHERE source = ? AND thread = ?"
NEWEST = "SELECT max(n) FROM messages"
CHANNELS_OF = f"""
SELECT source, channel, iif(:channel = '', 0, cleared_n) FROM channels
WHERE (:source = '' OR source = :source) AND (:channel = '' OR channel = :channel)
ORDER BY last_n DESC LIMIT {MAX_CHANNELS_OF_PLACE}
"""
CHANNEL_OF = "SELECT source, channel, cleared_n FROM channels WHERE source = ? AND channel = ?"
_SEEN_UP_TO = "coalesce((SELECT c.seq FROM cursors c WHERE c.consumer = 'watch' AND c.mailbox = {}), 0)"
_UNPROVEN = """NOT EXISTS (
    SELECT 1 FROM deliveries d
    WHERE d.consumer = 'watch' AND d.mailbox = m.mailbox AND d.seq = m.seq AND d.state <> 'offered')"""
# One bound, the higher of two: of several the index takes one, and it may be the one that is far away.
UNSEEN_OF_MAILBOX = f"""
SELECT m.id, m.n FROM messages m
WHERE m.mailbox = :mailbox AND m.seq > max(:since - 1, {_SEEN_UP_TO.format(":mailbox")}) AND m.seq <= :position
    AND {_UNPROVEN}
ORDER BY m.seq LIMIT :limit
"""
UNSEEN_OF_CHANNEL = f"""
SELECT m.id, m.n FROM (
    SELECT n, id, mailbox, seq FROM messages
    WHERE source = :source AND channel = :channel AND n BETWEEN max(:since, :cleared + 1) AND :position
    ORDER BY n DESC LIMIT :limit) m
WHERE {_NO_TRIAL} AND m.seq > {_SEEN_UP_TO.format("m.mailbox")} AND {_UNPROVEN}
"""
MAILBOXES = """
SELECT b.name, b.head, (SELECT m.received_at FROM messages m WHERE m.mailbox = b.name ORDER BY m.seq DESC LIMIT 1)
FROM mailboxes b WHERE b.name NOT LIKE 'trial:%' ORDER BY b.name
"""
OF_CHANNELS = """(c.source <> 'local' OR c.channel NOT IN ('', 'agent', 'cli', 'page', 'task'))
    AND (:source = '' OR c.source = :source) AND (:channel = '' OR c.channel = :channel)"""
CHANNELS = f"""
SELECT source, channel, count - cleared_count, last_n, last_at, cleared_count FROM channels c
WHERE {OF_CHANNELS} ORDER BY last_n DESC LIMIT :limit
"""
IS_CLEARED = "SELECT 1 FROM channels WHERE cleared_n > 0 LIMIT 1"
# The attention is written out: the index is only of messages that have it. What rules told of is found by its id.
FOR_PROMPTS = f"""
SELECT {COLUMNS}, m.n FROM (
    SELECT n FROM (
        SELECT n FROM messages WHERE mailbox = :mailbox AND attention = 'prompt' ORDER BY n DESC LIMIT :among) newest
    UNION
    SELECT t.n FROM (SELECT message FROM actions WHERE state = 'told' ORDER BY n DESC LIMIT :among) a
        CROSS JOIN messages t ON t.id = a.message WHERE +t.mailbox = :mailbox) p
CROSS JOIN messages m ON m.n = p.n WHERE m.channel NOT IN (SELECT value FROM json_each(:channels))
    AND m.sender_id NOT IN (SELECT value FROM json_each(:senders))
    AND m.sender_name NOT IN (SELECT value FROM json_each(:senders))
    AND (:has_cleared = 0 OR m.n > coalesce((
        SELECT c.cleared_n FROM channels c WHERE c.source = m.source AND c.channel = m.channel), 0))
ORDER BY m.n DESC LIMIT :limit
"""
RECEIVED = f"""
SELECT (m.received_at - :since) / :span, m.channel, count(*) FROM messages m
WHERE m.received_at >= :since AND {_NO_TRIAL} GROUP BY 1, 2 ORDER BY 1, 2
"""
TIMED = f"""
SELECT min(d.seen_at) - m.received_at FROM (
    SELECT id, mailbox, received_at FROM messages WHERE received_at >= :since
    ORDER BY received_at DESC LIMIT {MAX_TIMED}) m
JOIN deliveries d ON d.message = m.id
WHERE {_NO_TRIAL} AND d.seen_at IS NOT NULL AND d.consumer NOT IN ('watch', 'rules') AND d.surface <> 'own'
GROUP BY m.id, m.received_at
"""
_MICROS: Final = 1_000_000
# Where the person's unread begins: channels that were silent since then need not be looked at.
FIRST_UNREAD = """
SELECT min((SELECT m.n FROM messages m WHERE m.mailbox = c.mailbox AND m.seq > c.seq ORDER BY m.seq LIMIT 1))
FROM cursors c JOIN mailboxes b ON b.name = c.mailbox
WHERE c.consumer = 'watch' AND c.seq < b.head AND c.mailbox NOT LIKE 'trial:%'
"""


def part(
    connection: SqlConnection, place: TimelineScope, limit: int, *, before: int, after: int | None
) -> TimelinePart:
    """Return part of a timeline."""
    if after is not None:
        lines = _walk(connection, place, limit + 1, after, is_forward=True)
        newest = lines[limit - 1][0] if len(lines) > limit else max(after, _newest(connection, place))
        return TimelinePart(lines=lines[:limit], newest=newest)
    lines = _walk(connection, place, limit + 1, before or MAX, is_forward=False)
    kept = lines[:limit][::-1]
    newest = _newest(connection, place) if not before else kept[-1][0] if kept else 0
    return TimelinePart(lines=kept, newest=newest, has_older=len(lines) > limit)


def _walk(
    connection: SqlConnection, place: TimelineScope, limit: int, position: int, *, is_forward: bool
) -> list[tuple[int, Message]]:
    """Return the lines that are nearest to a position, on one side of it, the nearest first."""
    named: dict[str, object] = {"position": position, "limit": limit}
    if place.mailbox:
        sql = MAILBOX_AFTER if is_forward else MAILBOX_BEFORE
        found = map(from_row, connection.execute(sql, {**named, "mailbox": place.mailbox}))
        return [(message.seq, message) for message in found]
    if place.thread:
        sql = THREAD_AFTER if is_forward else THREAD_BEFORE
        rows = connection.execute(sql, {**named, "source": place.source, "thread": place.thread}).fetchall()
    elif place.source or place.channel:
        sql = CHANNEL_AFTER if is_forward else CHANNEL_BEFORE
        named["among"] = None if place.among is None else encode_json(place.among)
        rows = [
            row
            for source, channel, cleared in _channels(connection, place)
            for row in connection.execute(sql, {**named, "source": source, "channel": channel, "cleared": cleared})
        ]
        rows.sort(key=lambda row: row[MESSAGE_WIDTH], reverse=not is_forward)
    else:
        rows = connection.execute(EVERY_AFTER if is_forward else EVERY_BEFORE, named).fetchall()
    return [(row[MESSAGE_WIDTH], from_row(row)) for row in rows[:limit]]


def _channels(connection: SqlConnection, place: TimelineScope) -> list[tuple[str, str, int]]:
    """Return the channels of a place, each with the position up to which it is cleared."""
    if place.source and place.channel:
        return connection.execute(CHANNEL_OF, (place.source, place.channel)).fetchall()
    named = {"source": place.source, "channel": place.channel}
    return connection.execute(CHANNELS_OF, named).fetchall()


def _newest(connection: SqlConnection, place: TimelineScope) -> int:
    if place.mailbox:
        rows = [connection.execute(NEWEST_OF_MAILBOX, (place.mailbox,)).fetchone()]
    elif place.thread:
        rows = [connection.execute(NEWEST_OF_THREAD, (place.source, place.thread)).fetchone()]
    elif place.source or place.channel:
        pairs = [(source, channel) for source, channel, _ in _channels(connection, place)]
        rows = [connection.execute(NEWEST_OF_CHANNEL, pair).fetchone() for pair in pairs]
    else:
        rows = [connection.execute(NEWEST).fetchone()]
    return max((int(row[0]) for row in rows if row and row[0]), default=0)


def unseen(
    connection: SqlConnection, place: TimelineScope, up_to: int, limit: int, *, since: int = 0
) -> list[MessageId]:
    """Return what the person has not seen."""
    if place.thread and not place.mailbox:
        key = ConversationKey(source=place.source, thread=place.thread)
        return conversations.unseen(connection, key, since, up_to, limit)
    named = {"since": since, "position": up_to, "limit": limit}
    if place.mailbox:
        rows = connection.execute(UNSEEN_OF_MAILBOX, {**named, "mailbox": place.mailbox}).fetchall()
    else:
        rows = [
            row
            for source, channel, cleared in _channels(connection, place)
            for row in connection.execute(
                UNSEEN_OF_CHANNEL, {**named, "source": source, "channel": channel, "cleared": cleared}
            )
        ]
    return [MessageId(row[0]) for row in sorted(rows, key=lambda row: int(row[1]))]


def mailboxes(connection: SqlConnection) -> list[MailboxState]:
    """Return every mailbox."""
    rows = connection.execute(MAILBOXES)
    return [MailboxState(name=Mailbox(row[0]), head=row[1], last_at=optional_moment(row[2])) for row in rows]


def channels(connection: SqlConnection, limit: int, *, source: str = "", channel: str = "") -> list[ChannelState]:
    """Return the channels, the last active first."""
    named = {"limit": limit, "source": source, "channel": channel}
    first = connection.execute(FIRST_UNREAD).fetchone()[0]
    begin = MAX if first is None else int(first)
    return [
        ChannelState(
            source=of,
            channel=name,
            count=count,
            unread=_unread(connection, of, name) if last_n >= begin else 0,
            last_at=from_micros(last_at),
            cleared=cleared,
        )
        for of, name, count, last_n, last_at, cleared in connection.execute(CHANNELS, named).fetchall()
    ]


def _unread(connection: SqlConnection, source: str, channel: str) -> int:
    return len(unseen(connection, TimelineScope(source=source, channel=channel), MAX, MAX_UNREAD_OF_CHANNEL))


def for_prompts(
    connection: SqlConnection, mailboxes: Collection[Mailbox], limit: int, mutes: MuteFilter
) -> list[Message]:
    """Return the newest messages that go with prompts."""
    if mutes.is_total:
        return []
    has_cleared = connection.execute(IS_CLEARED).fetchone() is not None
    is_partial = bool(mutes.channels or mutes.senders or has_cleared)
    named = {
        "limit": limit,
        "among": MAX_MUTED_AMONG_PROMPTS if is_partial else limit,
        "channels": encode_json(sorted(mutes.channels)),
        "senders": encode_json(sorted(mutes.senders)),
        "has_cleared": has_cleared,
    }
    rows = [row for name in mailboxes for row in connection.execute(FOR_PROMPTS, {**named, "mailbox": name})]
    newest = sorted(rows, key=lambda row: int(row[MESSAGE_WIDTH]))[-limit:]
    return [from_row(row) for row in newest]


def activity(connection: SqlConnection, since: datetime, span: timedelta) -> ActivityCounts:
    """Return what happened since a time."""
    begin, width = to_micros(since), span // timedelta(microseconds=1)
    counts = connection.execute(RECEIVED, {"since": begin, "span": width}).fetchall()
    timed: Sequence[Any] = connection.execute(TIMED, {"since": begin}).fetchall()
    return ActivityCounts(
        counts=[
            HourlyCount(begin=from_micros(begin + number * width), channel=channel, count=count)
            for number, channel, count in counts
        ],
        # A clock that was set back in between makes no message seen before it came.
        seconds_to_seen=sorted(max(0, row[0]) / _MICROS for row in timed),
    )


class SqlTimeline:
    """The contract of `TimelineStore`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._readers = readers
        self._threads = conversations.ConversationIndex(writer, readers)

    async def part(
        self, place: TimelineScope, limit: int, *, before: int = 0, after: int | None = None
    ) -> TimelinePart:
        """Return part of a timeline."""
        run = self._threads.read if place.thread else self._readers.run
        return await run(lambda db: part(db, place, limit, before=before, after=after))

    async def unseen(self, place: TimelineScope, up_to: int, limit: int, *, since: int = 0) -> Sequence[MessageId]:
        """Return what the person has not seen."""
        run = self._threads.read if place.thread else self._readers.run
        return await run(lambda db: unseen(db, place, up_to, limit, since=since))

    async def mailboxes(self) -> Sequence[MailboxState]:
        """Return every mailbox."""
        return await self._readers.run(mailboxes)

    async def channels(self, limit: int, *, source: str = "", channel: str = "") -> Sequence[ChannelState]:
        """Return the channels."""
        return await self._readers.run(lambda db: channels(db, limit, source=source, channel=channel))

    async def for_prompts(self, mailboxes: Collection[Mailbox], limit: int, mutes: MuteFilter) -> Sequence[Message]:
        """Return the newest messages that go with prompts."""
        return await self._readers.run(lambda db: for_prompts(db, mailboxes, limit, mutes))

    async def activity(self, since: datetime, span: timedelta) -> ActivityCounts:
        """Return what happened since a time."""
        return await self._readers.run(lambda db: activity(db, since, span))
