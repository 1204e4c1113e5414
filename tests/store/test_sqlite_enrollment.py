"""How a consumer begins in SQLite: what it costs those who wait to write, and who began before anything was counted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from harken.model import INBOX, Consumer, Mailbox, Reader, SessionKey
from harken.store.contract.deliveries import ConsumerState, Omission
from harken.store.sqlite import open_store
from harken.store.sqlite.connection import connect, migrations
from harken.testing import FakeClock
from tests.contracts.store_suite import AGENT, OTHER, READER, fill, new_message, place

FEW: Final = 500
MANY: Final = 8_000
MAX: Final = 100
BATCH: Final = 500
PROJECT: Final = Mailbox("project:shop")
COUNTED_FROM: Final = 8  # the schema in which consumers have a count of what they were not given
# A deeper tree costs a few steps more per lookup; counting everything would cost fourteen times as much.
TOLERANCE: Final = 1.3

BEFORE: Final = """
INSERT INTO mailboxes VALUES ('inbox', 3);
INSERT INTO cursors (consumer, mailbox, seq) VALUES ('claude-code', 'inbox', 3), ('watch', 'inbox', 0);
"""


class CountedWriter:
    """Opens the connection that writes, and counts the steps that SQLite takes in it."""

    def __init__(self) -> None:
        self.steps = 0

    def open(self, path: str) -> sqlite3.Connection:
        """Open a file."""
        connection = connect(path)
        connection.set_progress_handler(self._count, 1)
        return connection

    def _count(self) -> int:
        self.steps += 1
        return 0


async def steps_to_begin(folder: Path, count: int, mailbox: Mailbox, hours: int, most: int | None) -> int:
    """Return what it costs the writer that a consumer begins among so many messages."""
    writer, clock = CountedWriter(), FakeClock()
    async with open_store(folder / f"{count}.db", clock, opener=writer.open) as store:
        for _ in range(count // BATCH):
            await store.messages.append([new_message(mailbox=mailbox) for _ in range(BATCH)])
        before = writer.steps
        assert await store.deliveries.enroll(AGENT, mailbox, clock.now() - timedelta(hours=hours), most=most)
        return writer.steps - before


@pytest.mark.parametrize(
    ("mailbox", "hours", "most"),
    [
        pytest.param(INBOX, 24, MAX, id="more than it may begin with"),
        pytest.param(INBOX, -1, MAX, id="everything is older"),
        pytest.param(INBOX, -1, None, id="everything is older, without a bound"),
        pytest.param(PROJECT, 24, None, id="everything is given"),
    ],
)
async def test_beginning_holds_up_writing_no_longer_with_more_stored(
    tmp_path: Path, mailbox: Mailbox, hours: int, most: int | None
) -> None:
    """There is one writer: a new agent among a million messages must not stop mail from being accepted."""
    few = await steps_to_begin(tmp_path, FEW, mailbox, hours, most)
    many = await steps_to_begin(tmp_path, MANY, mailbox, hours, most)
    assert few > 20, "nothing was written"
    assert many <= few * TOLERANCE


async def test_what_arrives_between_counting_and_beginning_is_counted(tmp_path: Path) -> None:
    """Counting holds up nobody, so mail may come in meanwhile; then more is over the bound than was counted."""
    clock = FakeClock()
    writers = list[ArrivingMail]()

    def opener(path: str) -> sqlite3.Connection:
        writers.append(sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=ArrivingMail))
        return writers[0]

    async with open_store(tmp_path / "harken.db", clock, opener=opener) as store:
        await fill(store, "1", "2", "3", "4")
        writers[0].is_due = True
        await store.deliveries.enroll(AGENT, INBOX, clock.now(), most=2)
        assert await place(store) == ConsumerState(
            consumer=AGENT, mailbox=INBOX, cursor=4, head=6, unread=2, left_out=Omission(surplus=4, up_to=4)
        )


class ArrivingMail(sqlite3.Connection):
    """A connection in which two messages are stored at the beginning of the next transaction."""

    is_due = False

    def execute(self, sql: str, parameters: sqlite3._Parameters = (), /) -> sqlite3.Cursor:
        """Run a statement, and store what arrives."""
        done = super().execute(sql, parameters)
        if self.is_due and sql.startswith("BEGIN"):
            self.is_due = False
            super().execute("UPDATE mailboxes SET head = 6")
            for seq in (5, 6):
                super().execute(ARRIVE, (f"m-{seq}", seq))
        return done


ARRIVE: Final = """
INSERT INTO messages (id, mailbox, seq, received_at, source, channel, conversation, thread, kind, trust, attention,
    priority, sender_id, sender_name, upstream_id, meta, text)
SELECT ?, mailbox, ?, received_at, source, channel, conversation, thread, kind, trust, attention, priority, sender_id,
    sender_name, upstream_id, meta, text FROM messages WHERE seq = 4
"""


async def test_who_began_before_it_was_counted_is_shown_with_nothing(tmp_path: Path) -> None:
    """Nobody knows what it was not given: "nothing" would be a claim."""
    path, clock = tmp_path / "harken.db", FakeClock()
    with closing(connect(str(path))) as connection:
        for number, script in migrations():
            if number < COUNTED_FROM:
                connection.executescript(script)
        connection.executescript(BEFORE)
        connection.execute(f"PRAGMA user_version = {COUNTED_FROM - 1}")
    async with open_store(path, clock) as store:
        await fill(store, "4")
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        await store.deliveries.enroll(OTHER, INBOX, clock.now())
        left_out = {each.consumer: each.left_out for each in await store.deliveries.consumers()}
        assert left_out == {AGENT: None, Consumer("watch"): None, OTHER: Omission()}
        assert await store.deliveries.omissions(READER) == {}
        assert await store.deliveries.omissions(Reader(consumer=OTHER, session=SessionKey("o"))) == {}
