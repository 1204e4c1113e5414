"""A loop that one daemon runs for all: under a lease, never beyond it, and given back at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio
import pytest
from anyio.abc import TaskGroup

from harken.daemon.leadership import LIFE, MARGIN, Leadership
from harken.daemon.neighbours import Neighbours
from harken.errors import Conflict
from harken.inbox.ticker import Ticker
from harken.sessions.registry import Sessions
from harken.store.contract import Store
from harken.store.contract.leases import LEASES
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.contracts.store_suite import fill, texts

NAME: Final = "rules"
BOUND: Final = 20.0


class LedWork:
    """A loop that says when it runs, and writes when it is told to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.running = 0
        self.refused = 0
        self._write = anyio.Event()

    async def __call__(self) -> None:
        """Run until cancelled, writing each time it is told to; what is on its way at the end is still written."""
        self.running += 1
        try:
            while True:
                await self._write.wait()
                self._write = anyio.Event()
                await fill(self._store, "by the loop")
        finally:
            self.running -= 1

    def write(self) -> None:
        """Let it write."""
        self._write.set()


@pytest.fixture
def clock() -> FakeClock:
    """The time of the store."""
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Store]:
    """A store."""
    async with open_store(tmp_path / "harken.db", clock) as opened:
        yield opened


@pytest.fixture
async def tasks() -> AsyncIterator[TaskGroup]:
    """Where loops run."""
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            yield group
            group.cancel_scope.cancel()


async def settled() -> None:
    """Let everything happen that can."""
    await anyio.wait_all_tasks_blocked()


async def test_a_loop_runs_while_its_lease_can_be_relied_on(store: Store, clock: FakeClock, tasks: TaskGroup) -> None:
    """A daemon that cannot renew has to stop before another one may begin."""
    leadership, work = Leadership(store, clock, ""), LedWork(store)
    tasks.start_soon(leadership.lead, NAME, work)
    await settled()
    assert (work.running, leadership.leads(NAME)) == (0, False)
    await leadership.look()
    await settled()
    assert (work.running, leadership.leads(NAME)) == (1, True)
    clock.advance((LIFE - MARGIN).total_seconds() - 1)
    leadership.drop_overdue()
    await settled()
    assert work.running == 1
    clock.advance(1)
    leadership.drop_overdue()
    await settled()
    assert (work.running, leadership.leads(NAME)) == (0, False)
    await leadership.look()
    await settled()
    assert work.running == 1, "nobody wanted it meanwhile"


async def test_a_loop_whose_lease_was_taken_over_ends_quietly(store: Store, clock: FakeClock, tasks: TaskGroup) -> None:
    """It was frozen, and does not know: the store refuses what it writes, which is no failure of anything."""
    leadership, work = Leadership(store, clock, ""), LedWork(store)
    tasks.start_soon(leadership.lead, NAME, work)
    await settled()
    await leadership.look()
    await settled()
    await store.leases.take([NAME], LIFE)  # as another life of it
    work.write()
    await until_stopped(work)
    assert (await texts(store), leadership.leads(NAME)) == ([], False)
    await leadership.look()
    await settled()
    work.write()
    while await texts(store) != ["by the loop"]:
        await anyio.lowlevel.checkpoint()


async def until_stopped(work: LedWork) -> None:
    """Return when the loop has ended."""
    while work.running:
        await anyio.lowlevel.checkpoint()


async def test_a_lease_is_given_back_when_the_last_loop_under_it_has_ended(store: Store, clock: FakeClock) -> None:
    """What a feed has read is still stored when the daemon stops; only then may another daemon read on."""
    rung: list[object] = []
    leadership, first, second = Leadership(store, clock, ""), LedWork(store), LedWork(store)
    with anyio.fail_after(BOUND), store.changes.listen(rung.append, only=[LEASES]):
        async with anyio.create_task_group() as outer:
            outer.start_soon(leadership.lead, NAME, first)
            async with anyio.create_task_group() as inner:
                inner.start_soon(leadership.lead, NAME, second)
                await settled()
                await leadership.look()
                await settled()
                assert (first.running, second.running) == (1, 1)
                inner.cancel_scope.cancel()
            assert (first.running, rung) == (1, [])
            outer.cancel_scope.cancel()
        await settled()
    (left,) = await store.leases.list()
    assert (left.expires_at == clock.now(), len(rung)) == (True, 1)


async def test_another_conflict_is_a_failure_while_the_lease_is_held(store: Store, clock: FakeClock) -> None:
    """The supervisor has to know of it; and no other daemon gets the lease only because of that."""
    leadership = Leadership(store, clock, "")

    async def fail() -> None:
        raise Conflict("It changes all the time.", "")

    with anyio.fail_after(BOUND), pytest.RaisesGroup(Conflict):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leadership.lead, NAME, fail)
            await settled()
            await leadership.look()
            await anyio.sleep_forever()
    assert leadership.leads(NAME)


async def test_what_another_daemon_changed_before_it_is_followed_is_read(store: Store, clock: FakeClock) -> None:
    """It is in no event that follows: a mute would hold on one machine only, until the next one."""
    await store.events.record("muted", {})
    is_read = anyio.Event()

    async def read() -> None:
        is_read.set()

    neighbours = Neighbours(store, Sessions(), clock, machine="here", daemon="")
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(neighbours.follow, Ticker(), {"muted": read})
            await is_read.wait()
            tasks.cancel_scope.cancel()
