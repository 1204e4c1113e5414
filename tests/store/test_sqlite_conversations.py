"""Conversations of a database that was made before there were any."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

from harken.model import INBOX, OWNER_ID
from harken.store.contract.conversations import ConversationView
from harken.store.sql.conversations import FOR_YOU, OF_STATE, UNREAD
from harken.store.sqlite import open_store
from harken.store.sqlite.connection import connect, migrations, prepare_file
from harken.testing import FakeClock

BEFORE: Final = 10
STORED: Final = """
INSERT INTO messages (id, mailbox, seq, received_at, source, channel, conversation, thread, kind, trust, attention,
    priority, sender_id, sender_name, upstream_id, refers_to, meta, text)
VALUES (?, ?, ?, 0, ?, '', '', ?, 'message', ?, 'wake', 'normal', ?, '', '', NULL, '{}', ?)
"""


async def test_what_was_seen_before_counts_as_done(tmp_path: Path) -> None:
    """Else the first look at the list would be at everything that ever came."""
    path = tmp_path / "harken.db"
    with closing(connect(str(path))) as connection:
        for number, script in migrations():
            if number < BEFORE:
                connection.executescript(script)
                connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("INSERT INTO mailboxes VALUES (?, 4)", (INBOX,))
        connection.execute("INSERT INTO cursors (consumer, mailbox, seq) VALUES ('watch', ?, 2)", (INBOX,))
        rows = [
            ("m-1", "teams", "seen", "known", "ann", "old"),
            ("m-2", "teams", "again", "known", "ann", "first"),
            ("m-3", "teams", "again", "known", "ann", "second"),
            ("m-4", "local", "", "owner", OWNER_ID, "mine"),
        ]
        for seq, (name, *rest) in enumerate(rows, 1):
            connection.execute(STORED, (name, INBOX, seq, *rest))
        connection.execute(STORED, ("m-5", "task:fix", 1, "local", "", "owner", OWNER_ID, "for the agent"))
    clock = FakeClock()
    async with open_store(path, clock) as store:
        found = {
            view.value: [
                (each.newest.text, each.count) for each in await store.conversations.list(view, 9, at=clock.now())
            ]
            for view in (ConversationView.OPEN, ConversationView.DONE, ConversationView.SENT)
        }
        kinds = [each.kind for each in await store.events.after(0, 9)]
    assert found == {"open": [("second", 2)], "done": [("old", 1)], "sent": [("mine", 1)]}
    assert kinds == ["sorted"]


def test_unread_of_a_long_conversation_is_counted_through_the_index(tmp_path: Path) -> None:
    """A chat of years must cost a list as much as one of today: a comparison that leaves the index reads all of it."""
    prepare_file(tmp_path / "harken.db")
    with closing(connect(str(tmp_path / "harken.db"))) as connection:
        for sql in (OF_STATE, UNREAD, FOR_YOU):
            named = {"state": "open", "before": 9, "limit": 9, "at": 9, "skipped": 0}
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", named)]
            assert "SEARCH t USING PRIMARY KEY (source=? AND thread=?)" in plan
            assert not [step for step in plan if step.startswith(("SCAN m", "SCAN t"))], sql
