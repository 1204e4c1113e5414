"""The part of the store suite about its own state: whether it can be written, and how much waits to leave."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import anyio

from harken.model import INBOX
from harken.store.contract import Store
from harken.store.contract.health import DAEMONS
from harken.testing import FakeClock
from tests.contracts.store_suite import AGENT, Journal, StoreSuite, fill


class VitalsSuite(StoreSuite):
    """What supervisors and metrics ask."""

    async def test_looking_whether_it_can_be_written_changes_nothing_for_anybody(
        self, store: Store, journal: Journal
    ) -> None:
        """A probe comes every few seconds, for years."""
        rung: list[object] = []
        with store.changes.listen(rung.append):
            await store.health.check_writable()
            await store.health.check_writable()
        assert (journal.events, rung, await store.events.last()) == ([], [], 0)
        assert await store.messages.index(10) == 0

    async def test_its_size_is_that_of_what_is_in_it(self, store: Store) -> None:
        """A person who looks at it wants to know how much room it takes."""
        await fill(store, "x" * 10_000)
        assert await store.health.size() == (await store.health.stats())["bytes"] > 10_000

    async def test_a_daemon_is_here_from_its_first_report_until_it_leaves(self, store: Store, clock: FakeClock) -> None:
        """Others see its sessions by that; a report that says nothing new wakes nobody."""
        rung: list[object] = []
        report = partial(
            store.daemons.report, machine="m", version="1", started_at=clock.now(), gone_after=timedelta(seconds=9)
        )
        with store.changes.listen(rung.append, only=[DAEMONS]):
            await report(sessions="[]")
            clock.advance(60)
            await report(sessions="[]")
            await anyio.wait_all_tasks_blocked()
            assert len(rung) == 1
            await report(sessions="[1]")
        (here,) = await store.daemons.list()
        assert (here.machine, here.sessions, here.seen_at) == ("m", "[1]", clock.now())
        await store.daemons.leave()
        assert [each.is_here for each in await store.daemons.list()] == [False]

    async def test_replies_are_counted_by_whether_they_wait_or_are_parked(self, store: Store, clock: FakeClock) -> None:
        """What was sent is nobody's worry any more."""
        assert await store.outbox.counts() == {"queued": 0, "parked": 0}
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        await fill(store, "question")
        question = await store.messages.get("#1")
        rows = [await store.outbox.add(question.id, text, author="a", consumer=AGENT) for text in ("x", "y", "z")]
        assert await store.outbox.counts() == {"queued": 3, "parked": 0}
        await store.outbox.failed(rows[0].id, "no such chat", due_at=None)
        await store.outbox.sent(rows[1].id, "up-1")
        assert await store.outbox.counts() == {"queued": 1, "parked": 1}

    async def test_a_store_is_the_same_as_long_as_nobody_restores_it(self, store: Store) -> None:
        """Homes and journals name it: two of them must not be taken for one."""
        first = await store.health.identity()
        assert (len(first.id) >= 12, first.epoch) == (True, 1)
        await fill(store, "one")
        assert await store.health.identity() == first
