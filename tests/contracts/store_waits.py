"""The part of the store suite about readers that wait for something to be offered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Final

import anyio
import anyio.lowlevel
import pytest

from harken.errors import NotFound
from harken.model import (
    INBOX,
    Attention,
    Choose,
    Consumer,
    DeliveryId,
    MessageId,
    NewMessage,
    Offer,
    Priority,
    Reader,
    SessionKey,
)
from harken.store.contract import Store
from harken.store.contract.deliveries import MAX_OFFER_CHARS, MuteFilter, OfferFilter
from harken.testing import FakeClock
from tests.contracts.store_choices import up_to
from tests.contracts.store_suite import (
    AGENT,
    EVERYTHING,
    LEASE_SECONDS,
    OTHER_READER,
    READER,
    SECOND,
    WAIT_SECONDS,
    Journal,
    StoreSuite,
    fill,
    later,
    new_message,
    offer,
    offered_texts,
)

MUTES: Final = (MuteFilter(), MuteFilter(channels=frozenset({"ci"})), MuteFilter(is_total=True))
Happening = tuple[float, MuteFilter, bool]
"""So many seconds pass, this is muted from then on, and whether some of what is stored is seen."""
HAPPENINGS: Final[Sequence[Happening]] = list(product((0, LEASE_SECONDS / 2, LEASE_SECONDS + 1), MUTES, (False, True)))


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
        self.offers: list[Offer] = []
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
            self.offers = list(given.whole)
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


async def _ids(store: Store) -> list[MessageId]:
    return [message.id for message in await store.messages.page(EVERYTHING, 1_000)]


class WaitStory:
    """Two consumers to whom the same happens: one waits for what comes, the other looks when it is there."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self._store = store
        self._clock = clock
        self._mutes = MuteFilter()
        self._number = 0

    async def begin(self) -> None:
        """Let both read from the beginning."""
        for reader in (SECOND, OTHER_READER):
            await self._store.deliveries.enroll(reader.consumer, INBOX, datetime.min.replace(tzinfo=UTC))

    async def go_on(self, before: Happening, meanwhile: Happening, count: int) -> None:
        """Let something happen to both, one wait and the other look, and compare what they get."""
        await self._happen(before)
        poll = Poll(self._store, SECOND)
        poll.mutes = self._mutes
        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(poll.run)
                await settled(self._store)
                if poll.waits():
                    await self._happen(meanwhile)
                    poll.mutes = self._mutes
                    await self._store.messages.append([self._message() for _ in range(count)])
                    await settled(self._store)
                poll.scope.cancel()
        looked = await self._store.deliveries.offer(
            OTHER_READER,
            10,
            surface="wait",
            carrier="call-1",
            lease_until=later(self._clock, LEASE_SECONDS),
            where=OfferFilter(mutes=self._mutes),
        )
        assert _given(poll.offers) == _given(looked.whole)

    async def _happen(self, what: Happening) -> None:
        seconds, self._mutes, is_proven = what
        self._clock.advance(seconds)
        if is_proven and (ids := await _ids(self._store)):
            for reader in (SECOND, OTHER_READER):
                await self._store.deliveries.acknowledge(reader, ids[-3::2], "ack")

    def _message(self) -> NewMessage:
        self._number += 1
        attention = list(Attention)[self._number % len(Attention)]
        priority = Priority.NORMAL if self._number % 5 else Priority.HIGH
        channel = ("ci", "mail")[self._number % 2]
        return replace(new_message(f"number {self._number}", channel=channel, priority=priority), attention=attention)


def _given(offers: Sequence[Offer]) -> list[tuple[str, bool]]:
    return [(each.message.text, each.is_repeat) for each in offers]


class WaitSuite(StoreSuite):
    """`offer_when_ready`."""

    async def test_what_is_there_is_offered_at_once(self, store: Store) -> None:
        """As with `offer`."""
        await fill(store, "one", "two")
        poll = Poll(store)
        await poll.run()
        assert poll.texts == ["one", "two"]

    @pytest.mark.parametrize("muted_since", [[], ["ci"]])
    async def test_what_comes_is_offered_to_everyone_who_waits(self, store: Store, muted_since: list[str]) -> None:
        """Also to more readers than one transaction looks something up for, and none is forgotten."""
        readers = [Reader(consumer=Consumer(f"c{i}"), session=SessionKey(f"s{i}")) for i in range(40)]
        polls = [Poll(store, reader) for reader in readers]
        async with polling(store, *polls):
            for poll in polls:
                poll.mutes = MuteFilter(channels=frozenset(muted_since))
            await fill(store, "hello")
        assert [poll.texts for poll in polls] == [["hello"]] * 40

    async def test_what_was_muted_comes_with_the_next(self, store: Store) -> None:
        """In the order of receipt: what came before goes before what has just come."""
        poll = Poll(store)
        poll.mutes = MuteFilter(channels=frozenset({"ci"}))
        await store.messages.append([new_message("noise", channel="ci")])
        async with polling(store, poll):
            poll.mutes = MuteFilter()
            await fill(store, "hello")
        assert poll.texts == ["noise", "hello"]

    async def test_lease_that_is_over_comes_with_the_next(self, store: Store, clock: FakeClock) -> None:
        """What another session was given and did not prove in time goes first, as a repeat."""
        await fill(store, "old")
        await offer(store, clock)
        poll = Poll(store, SECOND)
        async with polling(store, poll):
            clock.advance(LEASE_SECONDS + 1)
            await fill(store, "new")
        assert [(o.message.text, o.is_repeat) for o in poll.offers] == [("old", True), ("new", False)]

    async def test_what_comes_together_with_a_pull_is_given_once(self, store: Store, clock: FakeClock) -> None:
        """The two sessions of a consumer may share a transaction: one has it, and the other goes on waiting."""
        with anyio.fail_after(WAIT_SECONDS):
            for number in range(20):
                await store.deliveries.release(READER.session)
                await store.deliveries.acknowledge(READER, await _ids(store), "ack")
                poll, pulled = Poll(store, SECOND), list[str]()

                async def pull(into: list[str]) -> None:
                    into += offered_texts(await offer(store, clock))

                async with polling(store, poll):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(fill, store, f"number {number}")
                        tasks.start_soon(pull, pulled)
                    await settled(store)
                    poll.scope.cancel()
                assert [*(poll.texts or []), *pulled] == [f"number {number}"]

    async def test_what_a_reader_said_does_not_end_its_own_wait(self, store: Store) -> None:
        """It knows that; the others hear of it, and that its author has seen it."""
        own, other = Poll(store, READER), Poll(store, OTHER_READER)
        for reader in (READER, OTHER_READER):
            await store.deliveries.enroll(reader.consumer, INBOX, datetime.min.replace(tzinfo=UTC))
        async with polling(store, own, other):
            await store.messages.append([replace(new_message("mine"), author=AGENT)])
            await settled(store)
            assert own.waits()
            await fill(store, "hello")
        assert own.texts == ["hello"]
        assert [(o.message.text, o.seen_by) for o in other.offers] == [("mine", (AGENT,))]

    @pytest.mark.parametrize("count", [1, 2, 3])
    async def test_what_ends_a_wait_is_what_a_look_would_find(self, store: Store, clock: FakeClock, count: int) -> None:
        """Whatever happened while it waited. Another consumer, with the same past, does not wait but looks."""
        story = WaitStory(store, clock)
        await story.begin()
        for number in range(2 * len(HAPPENINGS)):
            before, meanwhile = (HAPPENINGS[number * step % len(HAPPENINGS)] for step in (7, 11))
            await story.go_on(before, meanwhile, count)

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
