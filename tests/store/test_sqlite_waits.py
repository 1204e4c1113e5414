"""Readers that wait, when the commit that concerns them fails: nobody is forgotten, and nothing is kept for nobody."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from harken.errors import Unavailable
from harken.model import INBOX, Consumer, Reader, SessionKey
from harken.store.contract import Store
from harken.store.contract.events import Event
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.contracts.store_suite import AGENT, READER, WAIT_SECONDS, fill, texts
from tests.contracts.store_waits import Poll, settled


@dataclass(frozen=True, slots=True)
class Gate:
    """Holds one commit until the test lets it go on, or fail."""

    fails: bool = True
    entered: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)


class Disk:
    """What becomes of the next commits; those that have no gate go through."""

    def __init__(self) -> None:
        self.gates: list[Gate] = []

    def fail_once(self) -> None:
        """Let the next commit fail at once."""
        gate = Gate()
        gate.opened.set()
        self.gates.append(gate)

    def opener(self, path: str) -> sqlite3.Connection:
        """Open a connection on this disk."""
        disk = self

        class Gated(sqlite3.Connection):
            def execute(self, sql: str, parameters: sqlite3._Parameters = (), /) -> sqlite3.Cursor:
                if sql == "COMMIT" and disk.gates:
                    gate = disk.gates.pop(0)
                    gate.entered.set()
                    assert gate.opened.wait(WAIT_SECONDS)
                    if gate.fails:
                        raise sqlite3.OperationalError("disk I/O error")
                return super().execute(sql, parameters)

        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Gated)


@pytest.fixture
def disk() -> Disk:
    """A disk that works until it is told otherwise."""
    return Disk()


@pytest.fixture
async def store(tmp_path: Path, disk: Disk) -> AsyncIterator[Store]:
    """A store on that disk, which an agent reads."""
    async with open_store(tmp_path / "harken.db", FakeClock(), opener=disk.opener) as opened:
        await opened.deliveries.enroll(AGENT, INBOX, FakeClock().now())
        yield opened


async def test_a_wait_that_could_not_begin_is_told_and_leaves_nobody_behind(store: Store, disk: Disk) -> None:
    """A reader that is gone would take the next message with it, under a lease that nobody answers for."""
    disk.fail_once()
    with pytest.raises(Unavailable):
        await Poll(store).run()
    await fill(store, "after")
    unread = await store.deliveries.unread(READER)
    assert (unread.count, unread.leased) == (1, 0)
    poll = Poll(store, seconds=0)
    await poll.run()
    assert poll.texts == ["after"]


async def test_whoever_was_served_by_a_commit_that_fails_still_waits(store: Store, disk: Disk) -> None:
    """The message was not accepted, so it was given to nobody; the next one is."""
    poll = Poll(store)
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poll.run)
            await settled(store)
            disk.fail_once()
            with pytest.raises(Unavailable):
                await fill(store, "lost")
            assert poll.texts is None
            await fill(store, "kept")
    assert poll.texts == ["kept"]
    assert await texts(store) == ["kept"]


async def test_a_wait_that_ends_during_a_commit_that_fails_got_nothing(store: Store, disk: Disk) -> None:
    """What was about to be offered was never accepted: returning it would show a message that does not exist."""
    begin, accept = Gate(fails=False), Gate()
    disk.gates += [begin, accept]
    is_serving = threading.Event()
    poll = Poll(store, seconds=0)
    poll.on_rank = is_serving.set

    async def refused() -> None:
        with pytest.raises(Unavailable):
            await fill(store, "lost")

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poll.run)
            assert await anyio.to_thread.run_sync(begin.entered.wait, WAIT_SECONDS)
            tasks.start_soon(refused)
            await anyio.wait_all_tasks_blocked()
            begin.opened.set()
            # The loop stands still here on purpose: the wait is served before it can notice that its time is over.
            assert is_serving.wait(WAIT_SECONDS)
            assert await anyio.to_thread.run_sync(accept.entered.wait, WAIT_SECONDS)
            await anyio.wait_all_tasks_blocked()
            assert poll.texts is None
            accept.opened.set()
    assert poll.texts == []
    assert await texts(store) == []
    await fill(store, "after")
    unread = await store.deliveries.unread(READER)
    assert (unread.count, unread.leased) == (1, 0)


async def test_an_observer_that_fails_holds_nobody_up(tmp_path: Path) -> None:
    """It must not raise; if it does, what is committed is committed, and the next write goes on."""

    def fail(_events: Sequence[Event]) -> None:
        raise RuntimeError("broken")

    with anyio.fail_after(WAIT_SECONDS):
        async with open_store(tmp_path / "harken.db", FakeClock(), after_commit=fail) as store:
            for text in ("one", "two"):
                await fill(store, text)
            assert await texts(store) == ["one", "two"]


async def test_readers_left_over_are_served_when_the_disk_is_back(store: Store, disk: Disk) -> None:
    """More wait than one commit serves, and the commit for the rest fails: they are tried again by themselves."""
    polls = [Poll(store, Reader(consumer=Consumer(f"c{i}"), session=SessionKey(f"s{i}"))) for i in range(40)]
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            for poll in polls:
                tasks.start_soon(poll.run)
            await settled(store)
            accepted = Gate(fails=False)
            accepted.opened.set()
            disk.gates.append(accepted)
            disk.fail_once()
            await fill(store, "hello")
    assert [poll.texts for poll in polls] == [["hello"]] * 40
