"""Decisions of the person: who is trusted, what is muted, put away or cleared."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from harken.clock import Clock
from harken.model import SenderRule, Trust, timestamp
from harken.store.contract.people import ClearedChannel, Mute
from harken.store.sql.timeline import OF_CHANNELS
from harken.store.sql.transaction import (
    Readers,
    SqlConnection,
    Transaction,
    optional_micros,
    optional_moment,
    to_micros,
)
from harken.store.sql.writer import Writer

SET_SENDER = """
INSERT INTO senders (source, sender, trust) VALUES (?, ?, ?)
ON CONFLICT (source, sender) DO UPDATE SET trust = excluded.trust
"""
FORGET_SENDER = "DELETE FROM senders WHERE source = ? AND sender = ?"
SENDERS = "SELECT source, sender, trust FROM senders ORDER BY source, sender"
SET_MUTE = """
INSERT INTO mutes (kind, name, until) VALUES (?, ?, ?) ON CONFLICT (kind, name) DO UPDATE SET until = excluded.until
"""
END_MUTE = "DELETE FROM mutes WHERE kind = ? AND name = ?"
MUTES = "SELECT kind, name, until FROM mutes WHERE until IS NULL OR until > ? ORDER BY kind, name"

PUT_AWAY = "INSERT INTO put_away (key, at) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET at = excluded.at"
TAKE_BACK = "DELETE FROM put_away WHERE key = ?"
AWAY = "SELECT key FROM put_away ORDER BY at DESC LIMIT 10000"

CLEARABLE = f"""
SELECT c.source, c.channel, c.count - c.cleared_count, m.id
FROM channels c JOIN messages m ON m.n = (
    SELECT max(t.n) FROM messages t
    WHERE t.source = c.source AND t.channel = c.channel AND t.mailbox NOT LIKE 'trial:%')
WHERE {OF_CHANNELS} AND m.n > c.cleared_n ORDER BY c.last_n DESC
"""
CLEAR = """
UPDATE channels AS c SET cleared_n = m.n, cleared_count = (
    SELECT count(*) FROM messages t
    WHERE t.source = c.source AND t.channel = c.channel AND t.n <= m.n AND t.mailbox NOT LIKE 'trial:%')
FROM messages m WHERE m.id = ? AND c.source = m.source AND c.channel = m.channel AND c.cleared_n < m.n
"""


def set_sender(tx: Transaction, rule: SenderRule) -> None:
    """Store a decision about a sender."""
    tx.execute(SET_SENDER, (rule.source, rule.sender, rule.trust.value))
    tx.note("access", {"source": rule.source, "sender": rule.sender, "trust": rule.trust.value})


def forget_sender(tx: Transaction, source: str, sender: str) -> None:
    """Remove a decision about a sender."""
    if tx.execute(FORGET_SENDER, (source, sender)).rowcount:
        tx.note("access", {"source": source, "sender": sender, "trust": None})


def senders(connection: SqlConnection) -> list[SenderRule]:
    """Return all decisions."""
    return [SenderRule(row[0], row[1], Trust(row[2])) for row in connection.execute(SENDERS)]


def set_mute(tx: Transaction, mute: Mute, *, is_on: bool) -> None:
    """Begin or end a mute."""
    if is_on:
        tx.execute(SET_MUTE, (mute.kind, mute.name, optional_micros(mute.until)))
        until = None if mute.until is None else timestamp(mute.until)
        tx.note("muted", {"what": mute.kind, "name": mute.name, "until": until})
    elif tx.execute(END_MUTE, (mute.kind, mute.name)).rowcount:
        tx.note("unmuted", {"what": mute.kind, "name": mute.name})


def mutes(connection: SqlConnection, now: datetime) -> list[Mute]:
    """Return the mutes in force."""
    return [Mute(row[0], row[1], optional_moment(row[2])) for row in connection.execute(MUTES, (to_micros(now),))]


def put_away(tx: Transaction, keys: Collection[str], *, is_on: bool) -> None:
    """Put entries away, or take them back."""
    for key in keys:
        tx.execute(*((PUT_AWAY, (key, tx.now_micros)) if is_on else (TAKE_BACK, (key,))))
    if keys:
        tx.note("put_away", {"keys": list(keys), "is_on": is_on})


def clear_channels(tx: Transaction, source: str, channel: str) -> list[ClearedChannel]:
    """Let channels begin after what they hold now."""
    found = tx.connection.execute(CLEARABLE, {"source": source, "channel": channel}).fetchall()
    for of, name, count, newest in found:
        tx.execute(CLEAR, (newest,))
        tx.note("cleared", {"source": of, "channel": name, "count": count, "message_id": newest})
    return [ClearedChannel(source=of, channel=name, count=count) for of, name, count, _ in found]


class SqlPeople:
    """The contract of `PeopleStore`."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def set_sender(self, rule: SenderRule) -> None:
        """Decide about a sender."""
        await self._writer.run(lambda tx: set_sender(tx, rule))

    async def forget_sender(self, source: str, sender: str) -> None:
        """Take a decision about a sender back."""
        await self._writer.run(lambda tx: forget_sender(tx, source, sender))

    async def senders(self) -> list[SenderRule]:
        """Return all decisions."""
        return await self._readers.run(senders)

    async def set_mute(self, mute: Mute, *, is_on: bool) -> None:
        """Begin or end a mute."""
        await self._writer.run(lambda tx: set_mute(tx, mute, is_on=is_on))

    async def mutes(self) -> list[Mute]:
        """Return the mutes in force."""
        return await self._readers.run(lambda db: mutes(db, self._clock.now()))

    async def put_away(self, keys: Collection[str], *, is_on: bool) -> None:
        """Put entries away, or take them back."""
        await self._writer.run(lambda tx: put_away(tx, keys, is_on=is_on))

    async def clear_channels(self, *, source: str = "", channel: str = "") -> Sequence[ClearedChannel]:
        """Let channels begin after what they hold now."""
        return await self._writer.run(lambda tx: clear_channels(tx, source, channel))

    async def put_away_keys(self) -> frozenset[str]:
        """Return what was put away."""
        return await self._readers.run(lambda db: frozenset(row[0] for row in db.execute(AWAY)))
