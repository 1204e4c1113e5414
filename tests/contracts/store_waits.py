"""The part of the store suite about readers that wait for something to be offered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel
import pytest

from harken.errors import NotFound
from harken.model import INBOX, Attention, Choose, Consumer, DeliveryId, MessageId, Reader, SessionKey
from harken.store.contract import Store
from harken.store.contract.deliveries import MAX_OFFER_CHARS, MuteFilter, OfferFilter
from harken.testing import FakeClock
from tests.contracts.store_choices import up_to
from tests.contracts.store_suite import (
    AGENT,
    LEASE_SECONDS,
    OTHER_READER,
    READER,
    SECOND,
    WAIT_SECONDS,
    Journal,
    StoreSuite,
    fill,
    new_message,
    offer,
    offered_texts,
)


class Poll:
    """A wait that runs beside the test."""

    def __init__(self, store: Store, reader: Reader = READER, *, rank: float = 0.0, seconds: float = 60.0) -> None:
        self._store = store
        self._reader = reader
        self.rank = rank
        self.mutes = MuteFilter()
        self.choose: Choose | None = None
        self.listed: frozenset[MessageId] = frozenset()
        self.cut: list[str] = []
        self._seconds = seconds
        self.scope = anyio.CancelScope()
        self.texts: list[str] | None = None
        self.on_rank: Callable[[], None] = lambda: None  # called in the thread that serves

    async def run(self) -> None:
        """Wait, and keep what came."""
        with self.scope:
            given = await self._store.deliveries.offer_when_ready(
                self._reader,
                10,
                surface="wait",
                carrier="call-1",
                lease=timedelta(seconds=LEASE_SECONDS),
                rank=self._asked_rank,
                where=lambda: OfferFilter(mutes=self.mutes, without=self.listed, choose=self.choose),
                seconds=self._seconds,
            )
            self.texts = [item.message.text for item in given.whole]
            self.cut = [item.message.text for item in given.cut]

    def waits(self) -> bool:
        """Whether nothing has come yet."""
        return self.texts is None

    def _asked_rank(self) -> float:
        self.on_rank()
        return self.rank


async def settled(store: Store) -> None:
    """Return when every wait that was begun has looked once: whatever is written now comes after it."""
    await anyio.wait_all_tasks_blocked()
    await store.events.record("marker", {})


@asynccontextmanager
async def polling(store: Store, *polls: Poll) -> AsyncIterator[None]:
    """Run the block while some wait, and end when each of them has got something."""
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            for poll in polls:
                tasks.start_soon(poll.run)
            await settled(store)
            yield


class WaitSuite(StoreSuite):
    """`offer_when_ready`."""

    async def test_what_is_there_is_offered_at_once(self, store: Store) -> None:
        """As with `offer`."""
        await fill(store, "one", "two")
        poll = Poll(store)
        await poll.run()
        assert poll.texts == ["one", "two"]

    async def test_what_comes_is_offered_to_everyone_who_waits(self, store: Store) -> None:
        """More readers than one transaction serves, and none is forgotten."""
        readers = [Reader(consumer=Consumer(f"c{i}"), session=SessionKey(f"s{i}")) for i in range(40)]
        polls = [Poll(store, reader) for reader in readers]
        async with polling(store, *polls):
            await fill(store, "hello")
        assert [poll.texts for poll in polls] == [["hello"]] * 40

    async def test_a_wait_and_a_message_that_come_together_meet(self, store: Store) -> None:
        """They may share a transaction, the wait first: it found nothing and must still be served."""
        with anyio.fail_after(WAIT_SECONDS):
            for number in range(50):
                poll = Poll(store, Reader(consumer=Consumer(f"c{number}"), session=SessionKey(f"s{number}")))
                await store.deliveries.enroll(Consumer(f"c{number}"), INBOX, datetime.max.replace(tzinfo=UTC))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(poll.run)
                    tasks.start_soon(fill, store, f"number {number}")
                assert poll.texts == [f"number {number}"]

    async def test_of_one_consumer_the_highest_rank_is_served(self, store: Store) -> None:
        """Asked when there is something, not when the wait began; the other waits for the next message."""
        first, second = Poll(store, READER, rank=1), Poll(store, SECOND, rank=2)
        async with polling(store, first, second):
            first.rank = 3
            await fill(store, "one")
            await fill(store, "two")
        assert (first.texts, second.texts) == (["one"], ["two"])

    async def test_nothing_within_the_time_is_empty_and_leaves_nothing(self, store: Store, clock: FakeClock) -> None:
        """A wait that is over is offered nothing any more."""
        poll = Poll(store, seconds=0)
        await poll.run()
        assert poll.texts == []
        await fill(store, "late")
        assert await store.deliveries.ledger((await store.messages.get("#1")).id) == []
        assert offered_texts(await offer(store, clock)) == ["late"]

    async def test_a_cancelled_wait_was_offered_nothing(self, store: Store, clock: FakeClock) -> None:
        """Neither before the message came nor in the moment it came: no row, no repeat."""
        poll = Poll(store)
        async with polling(store, poll):
            # Accepted and served, but the waiting task has not run since: it is cancelled with the offer in hand.
            await store.messages.append([new_message("now")])
            poll.scope.cancel()
        if poll.texts is None:
            assert [(o.message.text, o.is_repeat) for o in await offer(store, clock)] == [("now", False)]
        else:
            assert poll.texts == ["now"]
        early = Poll(store, OTHER_READER)
        async with polling(store, early):
            early.scope.cancel()
        assert early.texts in (None, ["now"])

    async def test_a_released_lease_serves_who_waits(self, store: Store, clock: FakeClock) -> None:
        """What a session that is gone had not proven goes to the one that waits, as a repeat."""
        await fill(store, "hello")
        await offer(store, clock)
        poll = Poll(store, SECOND)
        async with polling(store, poll):
            await store.deliveries.release(READER.session)
        assert poll.texts == ["hello"]

    async def test_only_the_consumer_itself_can_prove_when_asked_so(self, store: Store, clock: FakeClock) -> None:
        """A delivery id of another consumer proves nothing under this one's name."""
        await fill(store, "hello")
        given = (await offer(store, clock))[0].delivery_id
        assert await store.deliveries.prove([given], "ack", consumer=OTHER_READER.consumer) == []
        assert [
            d.consumer for d in await store.deliveries.prove([given, DeliveryId("d-none")], "ack", consumer=AGENT)
        ] == [AGENT]

    async def test_what_may_not_push_wakes_nobody(self, store: Store, clock: FakeClock) -> None:
        """Unknown senders are only counted, and muted ones wait to be pulled; what comes behind them is not held up."""
        counted = replace(new_message("spam"), attention=Attention.COUNT)
        muted = new_message("noise", channel="ci")
        poll = Poll(store)
        poll.mutes = MuteFilter(channels=frozenset({"ci"}))
        async with polling(store, poll):
            await store.messages.append([counted] * 20 + [muted])
            await settled(store)
            assert poll.waits()
            await fill(store, "hello")
        assert poll.texts == ["hello"]
        assert offered_texts(await offer(store, clock)) == ["spam"] * 20 + ["noise"]

    async def test_a_hushed_reader_is_not_woken(self, store: Store) -> None:
        """Whatever comes."""
        poll = Poll(store, seconds=0)
        poll.mutes = MuteFilter(is_total=True)
        await fill(store, "hello")
        await poll.run()
        assert poll.texts == []

    async def test_a_hushed_session_does_not_stand_before_another(self, store: Store) -> None:
        """The session used last is muted: the message goes to the other one of that consumer, not to nobody."""
        muted, other = Poll(store, READER, rank=2), Poll(store, SECOND, rank=1)
        muted.mutes = MuteFilter(is_total=True)
        async with polling(store, muted, other):
            await fill(store, "hello")
            while other.texts is None:
                await anyio.lowlevel.checkpoint()
            muted.scope.cancel()
        assert (muted.texts, other.texts) == (None, ["hello"])

    async def test_one_offer_carries_only_so_much(self, store: Store, clock: FakeClock) -> None:
        """What hands it over has a limit; the rest is offered with the next."""
        long = "x" * (MAX_OFFER_CHARS // 2)
        await fill(store, long, long, "short")
        assert offered_texts(await offer(store, clock)) == [long, long]
        assert offered_texts(await offer(store, clock, carrier="call-2")) == ["short"]

    async def test_the_journal_has_the_offer_before_the_wait_returns(self, store: Store, journal: Journal) -> None:
        """It is made in a transaction like any other."""
        poll = Poll(store)
        async with polling(store, poll):
            await fill(store, "hello")
        assert [kind for kind in journal.kinds() if kind in ("received", "offered")] == ["received", "offered"]

    async def test_failed_job_keeps_everyone_waiting(self, store: Store) -> None:
        """A use case that fails has stored nothing, and the next message still finds who waits."""
        poll = Poll(store)
        async with polling(store, poll):
            with pytest.raises(NotFound):
                await store.deliveries.acknowledge(READER, [MessageId("m-none")], "ack")
            await fill(store, "hello")
        assert poll.texts == ["hello"]

    async def test_what_is_too_long_ends_a_wait_and_is_not_offered(self, store: Store, journal: Journal) -> None:
        """Whoever waits must hear of it; but nothing of it counts as handed over."""
        poll = Poll(store)
        poll.choose = up_to(5)
        async with polling(store, poll):
            await fill(store, "too long")
        assert (poll.texts, poll.cut) == ([], ["too long"])
        assert journal.of("offered") == []
        assert await store.deliveries.ledger((await store.messages.get("#1")).id) == []

    async def test_what_was_listed_before_does_not_end_a_wait(self, store: Store) -> None:
        """An agent that does nothing but wait would ask again and again; what comes next still reaches it, whole."""
        await fill(store, "too long")
        poll = Poll(store)
        poll.choose, poll.listed = up_to(5), frozenset({(await store.messages.get("#1")).id})
        async with polling(store, poll):
            assert poll.waits()
            await fill(store, "hello")
        assert (poll.texts, poll.cut) == (["hello"], [])

    async def test_one_session_of_a_consumer_hears_of_what_is_too_long(self, store: Store) -> None:
        """Two that read it would both act on it; the other goes on waiting for the next message."""
        first, second = Poll(store, READER, rank=2), Poll(store, SECOND, rank=1)
        first.choose = second.choose = up_to(5)
        async with polling(store, first, second):
            await fill(store, "too long")
            while first.texts is None:
                await anyio.lowlevel.checkpoint()
            await settled(store)
            assert second.waits()
            second.listed = frozenset({(await store.messages.get("#1")).id})
            await fill(store, "hello")
        assert (first.cut, second.texts, second.cut) == (["too long"], ["hello"], [])

    async def test_session_with_more_room_gets_what_another_only_hears_of(self, store: Store) -> None:
        """A task may be worked on by two hosts: what one cannot show goes whole to the other."""
        small, large = Poll(store, READER, rank=2), Poll(store, SECOND, rank=1)
        small.choose, large.choose = up_to(5), up_to(50)
        async with polling(store, small, large):
            await fill(store, "too long")
        assert (small.texts, small.cut, large.texts, large.cut) == ([], ["too long"], ["too long"], [])

    async def test_what_does_not_fit_into_one_wait_goes_to_the_next_session(self, store: Store) -> None:
        """What one has no room for any more is not held back from another one that waits."""
        first, second = Poll(store, READER, rank=2), Poll(store, SECOND, rank=1)
        first.choose = second.choose = up_to(5)
        async with polling(store, first, second):
            await fill(store, "one", "two")
        assert (first.texts, second.texts) == (["one"], ["two"])
