"""Tasks in a database file: what a kill leaves of them, and how they come into a database that has none yet.

`task_crash_child.py` lives through the life of a task and is killed before or after each of its commits.
"""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest

from harken.errors import NotFound
from harken.model import DeliveryState
from harken.store.contract import Store
from harken.store.sqlite import open_store
from harken.store.sqlite.connection import connect, migrations
from harken.testing import FakeClock
from tests.contracts.store_suite import READER, fill, offer, offered_texts, place, texts
from tests.contracts.tasks import ids_of, reader_of, states_of, task
from tests.store.conftest import Storyteller
from tests.store.task_crash_child import API, STEPS, WEB, live, steps

# What a database of the first release may hold: a message for the person, and one for a task that nobody had made.
FIRST_RELEASE = """
INSERT INTO mailboxes VALUES ('inbox', 1), ('task:early', 1);
INSERT INTO messages VALUES
    (1, 'm-1', 'inbox', 1, 1767603600000000, 'local', 'cli', '', '', 'message', 'owner', 'wake', 'normal', 'owner',
        'you', '', NULL, NULL, '{}', 'kept'),
    (2, 'm-2', 'task:early', 1, 1767603600000000, 'local', 'cli', '', '', 'message', 'owner', 'wake', 'normal', 'owner',
        'you', '', NULL, NULL, '{}', 'sent too early');
INSERT INTO cursors VALUES ('claude-code', 'inbox', 0), ('watch', 'inbox', 0), ('watch', 'task:early', 0);
INSERT INTO events VALUES
    (1, 1767603600000000, 'received', 'm-1', '{}'), (2, 1767603600000000, 'received', 'm-2', '{}');
"""


async def check_promises(store: Store, reached: int) -> None:
    """Check that everything up to a step of the story is there, whole, and nothing of the next."""
    done = set(STEPS[:reached])
    expected = {WEB.id} if "web" in done else set()
    expected |= {API.id} if "api" in done and "removed" not in done else set()
    stored = {each.id: each for each in await store.tasks.list(with_done=True)}
    assert set(stored) == expected
    if API.id in stored:
        api = stored[API.id]
        assert (api.peers, stored[WEB.id].peers) == ((WEB.id,), (API.id,))
        assert (api.started_at is not None, api.done_at is not None) == ("started" in done, "done" in done)
    first = DeliveryState.QUEUED if "offered" not in done else DeliveryState.OFFERED
    states = [first, DeliveryState.QUEUED] if "mail" in done else []
    if "done" in done:
        states = [DeliveryState.REFUSED] * (3 if "late" in done else 2)
    assert await states_of(store, API) == states
    events = [event.n for event in await store.events.after(0, 1000)]
    assert events == list(range(1, len(events) + 1))


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("commit", range(1, len(STEPS) + 1))
async def test_a_kill_leaves_every_step_of_a_task_whole(
    tmp_path: Path, storyteller: Storyteller, commit: int, side: str
) -> None:
    """A task that is done without its mail being refused would leave messages that nobody ever reads or sees fail."""
    path, clock = tmp_path / "harken.db", FakeClock()
    code, told = storyteller("tasks", path, commit, side)
    assert code == -signal.SIGKILL
    assert [line[0] for line in told if line[0] in STEPS] == list(STEPS[: commit - 1])
    async with open_store(path, clock) as store:
        await check_promises(store, commit if side == "after" else commit - 1)
        await live(store, clock)
        await check_promises(store, len(STEPS))
        assert await texts(store) == ["one", "two", "three"]


async def test_the_story_has_as_many_commits_as_are_tried(tmp_path: Path, storyteller: Storyteller) -> None:
    """If the story grows, the kills must grow with it."""
    code, told = storyteller("tasks", tmp_path / "harken.db", len(STEPS) + 1, "before")
    assert code == 0
    assert [line[0] for line in told if line[0] in STEPS] == list(STEPS)
    async with open_store(tmp_path / "other.db", FakeClock()) as store:
        assert tuple(steps(store, FakeClock())) == STEPS


async def test_a_database_without_tasks_gets_them_and_keeps_what_it_had(tmp_path: Path) -> None:
    """People who come from the first release lose no message, no place, and no mail that was sent to a task early."""
    path, clock = tmp_path / "harken.db", FakeClock()
    (_, script), *_rest = migrations()
    with closing(connect(str(path))) as connection:
        connection.executescript(script + FIRST_RELEASE)
        connection.execute("PRAGMA user_version = 1")
    early = task("early")
    async with open_store(path, clock) as store:
        assert await texts(store) == ["kept", "sent too early"]
        assert (await place(store)).unread == 1
        assert await store.tasks.list(with_done=True) == []
        with pytest.raises(NotFound):
            await store.tasks.get(early.id)
        await store.tasks.add(early)
        assert offered_texts(await offer(store, clock, reader_of(early))) == ["sent too early"]
        assert offered_texts(await offer(store, clock, READER)) == ["kept"]
        assert await store.tasks.finish(early.id) == 1
        await fill(store, "late", mailbox=early.mailbox)
        assert len(await ids_of(store, early)) == 2
        assert await states_of(store, early) == [DeliveryState.REFUSED, DeliveryState.REFUSED]
