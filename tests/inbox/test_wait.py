"""Long polls: who is woken, who stands back, and that a wait which is given up consumes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

from harken.model import Offer, Reader
from harken.sessions.session import Presence
from tests.inbox.rig import FIRST, OTHER, SECOND, WAIT_SECONDS, Bench, ids, reads


class Waiting:
    """A long poll that runs beside the test."""

    def __init__(self, bench: Bench, reader: Reader) -> None:
        self._bench = bench
        self._reader = reader
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.got: Sequence[Offer] = ()

    async def run(self) -> None:
        """Wait, and keep what came."""
        with self.scope:
            self.got = await self._bench.wait(self._reader)
        self.done.set()

    async def begun(self) -> None:
        """Return when the session is known to wait, and has looked."""
        session = self._bench.inbox.sessions.get(self._reader.session)
        while session is not None and session.presence is not Presence.WAITING:
            await anyio.lowlevel.checkpoint()
        # The first look of a wait goes through the store's writer: whatever is written now comes after it.
        await self._bench.store.events.record("marker", {})


async def test_every_waiting_consumer_is_woken(bench: Bench) -> None:
    """One message, two hosts: both have it."""
    waits = [Waiting(bench, reader) for reader in (FIRST, OTHER)]
    bench.connect(FIRST)
    bench.connect(OTHER)
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            for each in waits:
                tasks.start_soon(each.run)
                await each.begun()
            message = await bench.send()
    assert [ids(each.got) for each in waits] == [[message], [message]]


async def test_a_session_does_not_stand_back_for_one_that_cannot_read_the_mailbox(bench: Bench) -> None:
    """The window used last is in another folder: the project's mail would wait for nobody."""
    shop = reads(FIRST, "project:shop")
    bench.connect(shop)
    bench.connect(SECOND)
    first, second = Waiting(bench, shop), Waiting(bench, SECOND)
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            for each in (first, second):
                tasks.start_soon(each.run)
                await each.begun()
            message = await bench.send("deploy", to="project:shop")
            await first.done.wait()
            assert not second.done.is_set()
            second.scope.cancel()
    assert ids(first.got) == [message]


async def test_a_wait_that_ends_lets_the_one_behind_it_look(bench: Bench) -> None:
    """What the cancelled one would have got arrives at the session that stood back, at once."""
    bench.connect(FIRST)
    bench.connect(SECOND)
    first, second = Waiting(bench, FIRST), Waiting(bench, SECOND)
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            for each in (first, second):
                tasks.start_soon(each.run)
                await each.begun()
            second.scope.cancel()
            await second.done.wait()
            message = await bench.send()
    assert ids(first.got) == [message]


@pytest.mark.parametrize("way", ["release", "withdraw"])
async def test_what_is_given_back_wakes_a_wait(bench: Bench, way: str) -> None:
    """No new message rings for it."""
    bench.connect(SECOND)
    message = await bench.send()
    await bench.pull(FIRST)
    waiting = Waiting(bench, SECOND)
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.run)
            await waiting.begun()
            if way == "release":
                await bench.inbox.proofs.release(FIRST.session)
            else:
                await bench.inbox.proofs.withdraw(FIRST.session, "c1")
    assert [(offer.message.id, offer.is_repeat) for offer in waiting.got] == [(message, way == "release")]
