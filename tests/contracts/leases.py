"""The part of the store suite about leases: tenures, fences, and what is written too late."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import anyio
import pytest

from harken.errors import Conflict
from harken.model import Mailbox
from harken.store.contract import Store
from harken.store.contract.leases import LEASES, Lease, OldFence, under
from harken.store.contract.messages import Checkpoint
from harken.testing import FakeClock
from tests.contracts.store_suite import Journal, StoreSuite, fill, new_message, texts

LIFE: Final = timedelta(seconds=15)
JUDGE: Final = "rules"


async def take(store: Store, *held: Lease) -> Lease:
    """Take or renew the lease of the judge."""
    (lease,) = await store.leases.take([JUDGE], LIFE, held)
    return lease


class TenureSuite(StoreSuite):
    """What one daemon sees of leases."""

    async def test_a_lease_that_is_renewed_keeps_its_fence(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """Work under it goes on for weeks; and it is renewed every few seconds, which is nothing to tell about."""
        first = await take(store)
        assert first.expires_at == clock.now() + LIFE
        clock.advance(5)
        renewed = await take(store, first)
        assert (renewed.fence, renewed.expires_at) == (first.fence, clock.now() + LIFE)
        clock.advance(100)
        assert (await take(store, renewed)).fence == first.fence, "nobody wanted it meanwhile"
        assert (journal.events, await store.leases.list()) == ([], [await take(store, renewed)])

    async def test_an_earlier_life_of_the_daemon_has_another_fence(self, store: Store) -> None:
        """A process that hangs, and the one that took its place, are the same daemon by name."""
        first = await take(store)
        second = await take(store)
        assert second.fence > first.fence
        with under(first), pytest.raises(OldFence):
            await fill(store, "late")
        with under(second):
            await fill(store, "in time")
        assert await texts(store) == ["in time"]

    async def test_many_are_taken_together_in_order(self, store: Store) -> None:
        """A daemon renews everything that it does in one transaction."""
        names = [f"source {number}" for number in range(70)]
        assert [each.name for each in await store.leases.take(names, LIFE)] == names
        assert len({each.name for each in await store.leases.list()}) == len(names)

    async def test_what_was_given_back_is_refused_and_rung_for(self, store: Store, clock: FakeClock) -> None:
        """Another daemon takes over at once, and need not wonder what is still on its way."""
        rung: list[Mailbox] = []
        lease = await take(store)
        with store.changes.listen(rung.extend, only=[LEASES]):
            await store.leases.resign([lease])
            await store.leases.resign([lease])
            await anyio.wait_all_tasks_blocked()
        assert rung == [LEASES]
        (left,) = await store.leases.list()
        assert left.expires_at == clock.now()
        with under(lease), pytest.raises(OldFence):
            await fill(store, "late")
        assert (await take(store, lease)).fence > lease.fence

    async def test_nothing_of_a_late_write_is_stored_and_others_are(self, store: Store) -> None:
        """Writes that meet share a transaction; the fence of one is not the fault of another."""
        late = await take(store)
        await take(store)
        failed: list[str] = []

        async def write(text: str, lease: Lease | None) -> None:
            if lease is None:
                await fill(store, text)
                return
            with under(lease):
                try:
                    await store.messages.append([new_message(text)], Checkpoint("teams", "chats", text))
                except Conflict:
                    failed.append(text)

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(write, f"late {number}", late)
                tasks.start_soon(write, f"mail {number}", None)
        assert sorted(failed) == [f"late {number}" for number in range(10)]
        assert sorted(await texts(store)) == [f"mail {number}" for number in range(10)]
        assert await store.checkpoints.get("teams", "chats") == ""
        with under(late), pytest.raises(OldFence):
            await store.rules.pause(is_on=True)
        assert not (await store.rules.state()).is_paused
