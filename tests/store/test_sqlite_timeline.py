"""What a page costs in SQLite: counted in steps of its machine, which are the same on every computer."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from harken.model import INBOX, WATCH, Attention, Mailbox, MessageId, Reader, SessionKey
from harken.store.contract.deliveries import MuteFilter
from harken.store.contract.timeline import TimelineScope
from harken.store.sql import deliveries, messages, outbox, timeline
from harken.store.sql.store import SqlStore
from harken.store.sqlite import open_store
from harken.store.sqlite.connection import connect, migrations
from harken.testing import FakeClock
from tests.contracts.store_suite import AGENT, new_message
from tests.cost import Ask, steps_of

FEW: Final = 1_600
MANY: Final = 10_000
MAILBOXES: Final = 20
CHANNELS: Final = 4
RARE: Final = 12  # so many of the first messages are of a channel that was silent ever since
LINES: Final = 50
# A deeper tree costs a few steps more per lookup; reading everything would cost six times as much.
TOLERANCE: Final = 1.3

EARLIER: Final = """
INSERT INTO messages (id, mailbox, seq, received_at, source, channel, conversation, thread, kind, trust, attention,
    priority, sender_id, sender_name, upstream_id, meta, text)
VALUES (?, 'inbox', ?, 5000000, 'teams', 'c', '', '', 'message', 'known', 'wake', 'normal', 'ann', '', '', '{}', 'x')
"""


def newest_ids(connection: sqlite3.Connection) -> list[MessageId]:
    """Return what the first page shows."""
    part = timeline.part(connection, TimelineScope(mailbox=INBOX), LINES, before=0, after=None)
    return [message.id for _, message in part.lines]


def newest_seq(connection: sqlite3.Connection) -> int:
    """Return the position of the newest message."""
    return timeline.part(connection, TimelineScope(mailbox=INBOX), 1, before=0, after=None).newest


READS: Final[Mapping[str, Ask]] = {
    "newest of a mailbox": lambda db: timeline.part(db, TimelineScope(mailbox=INBOX), LINES, before=0, after=None),
    "older of a mailbox": lambda db: timeline.part(db, TimelineScope(mailbox=INBOX), LINES, before=250, after=None),
    "what follows in a mailbox": lambda db: timeline.part(db, TimelineScope(mailbox=INBOX), LINES, before=0, after=100),
    "a small mailbox": lambda db: timeline.part(db, TimelineScope(mailbox="task:7"), 5, before=0, after=None),
    "a channel of a source": lambda db: timeline.part(
        db, TimelineScope(source="teams", channel="c1"), LINES, before=0, after=None
    ),
    "a channel": lambda db: timeline.part(db, TimelineScope(channel="c1"), LINES, before=0, after=None),
    "a channel that was silent for long": lambda db: timeline.part(
        db, TimelineScope(channel="rare"), 5, before=0, after=None
    ),
    "older of a channel": lambda db: timeline.part(db, TimelineScope(channel="c1"), LINES, before=300, after=None),
    "what follows in a channel": lambda db: timeline.part(db, TimelineScope(channel="c1"), LINES, before=0, after=100),
    "everything": lambda db: timeline.part(db, TimelineScope(), LINES, before=0, after=None),
    "mailboxes": timeline.mailboxes,
    "consumers": partial(deliveries.consumers, now=0),
    "channels": lambda db: timeline.channels(db, 10),
    "unseen of a mailbox": lambda db: timeline.unseen(db, TimelineScope(mailbox=INBOX), 10**6, 100),
    "unseen of the last part of a mailbox": lambda db: timeline.unseen(
        db, TimelineScope(mailbox=INBOX), 10**6, 100, since=newest_seq(db) - LINES
    ),
    "unseen of a channel": lambda db: timeline.unseen(db, TimelineScope(channel="c1"), 10**6, 100),
    "messages": lambda db: messages.get_many(db, newest_ids(db)),
    "ledgers": lambda db: deliveries.ledgers(db, newest_ids(db), ""),
    "referring": lambda db: messages.referring(db, newest_ids(db)),
    "replies": lambda db: outbox.of_messages(db, newest_ids(db)),
}


@asynccontextmanager
async def filled(folder: Path, count: int) -> AsyncIterator[SqlStore]:
    """A store of so many messages in so many mailboxes, some of them seen by an agent and by the person."""
    clock = FakeClock()
    async with open_store(folder / f"{count}.db", clock) as store:
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        for begin in range(0, count, 500):
            batch = [
                new_message(
                    f"message {number}",
                    mailbox=Mailbox(f"task:{number // 2 % MAILBOXES}") if number % 2 else INBOX,
                    channel=f"c{number // 2 % CHANNELS}" if number >= RARE else "rare",
                )
                for number in range(begin, min(count, begin + 500))
            ]
            await store.messages.append(
                [replace(each, source="mail" if i % 3 else "teams") for i, each in enumerate(batch)]
            )
        ids = [
            message.id for _, message in (await store.timeline.part(TimelineScope(mailbox=INBOX), 100, after=1)).lines
        ]
        for consumer in (AGENT, WATCH):
            await store.deliveries.acknowledge(Reader(consumer=consumer, session=SessionKey("")), ids, "test")
        yield store


async def test_a_page_costs_what_it_shows_and_not_what_is_stored(tmp_path: Path) -> None:
    """With years of mail the page must open as on the first day."""
    for count in (FEW, MANY):
        async with filled(tmp_path, count):
            pass
    few = {name: steps_of(tmp_path / f"{FEW}.db", ask) for name, ask in READS.items()}
    many = {name: steps_of(tmp_path / f"{MANY}.db", ask) for name, ask in READS.items()}
    dear = {name: (few[name], many[name]) for name in READS if many[name] > few[name] * TOLERANCE}
    assert all(taken > 20 for taken in few.values()), "nothing was read"
    assert dear == {}


async def test_the_pulse_costs_what_came_in_its_time(tmp_path: Path) -> None:
    """Old mail must not make the chart of today dear."""
    clock = FakeClock()
    async with open_store(tmp_path / "harken.db", clock) as store:
        for _ in range(20):
            await store.messages.append([new_message() for _ in range(500)])
        since = clock.advance(3600)
        await store.messages.append([new_message() for _ in range(10)])
    taken = steps_of(tmp_path / "harken.db", lambda db: timeline.activity(db, since, timedelta(hours=1)))
    assert 20 < taken < 2_000


async def test_what_goes_with_prompts_costs_nothing_of_what_does_not(tmp_path: Path) -> None:
    """It is looked for at every prompt of every agent: mail of people since then must not make that dear."""
    async with open_store(tmp_path / "harken.db", FakeClock()) as store:
        await store.messages.append([replace(new_message(), attention=Attention.PROMPT) for _ in range(10)])
        for _ in range(10):
            await store.messages.append([new_message() for _ in range(500)])
    taken = steps_of(tmp_path / "harken.db", lambda db: timeline.for_prompts(db, [INBOX], 5, MuteFilter()))
    assert 20 < taken < 1_000


@pytest.mark.parametrize("version", [1, 2])
async def test_channels_of_an_earlier_database_are_counted_once_it_is_opened(tmp_path: Path, version: int) -> None:
    """Whoever comes from an earlier version has mail already, which must be in the list."""
    path = tmp_path / "harken.db"
    with closing(connect(str(path))) as connection:
        for number, script in migrations():
            if number <= version:
                connection.executescript(script)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.executemany(EARLIER, [("m-1", 1), ("m-2", 2)])
    async with open_store(path, FakeClock()) as store:
        [state] = await store.timeline.channels(10)
    assert (state.source, state.channel, state.count) == ("teams", "c", 2)
