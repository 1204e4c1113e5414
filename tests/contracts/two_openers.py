"""The part of the store suite about sharing: two daemons on one store. It defines what a shared store is.

A backend that several daemons can share passes it, besides everything in `store.py`; its test module has a fixture
`open_store` that opens the same store each time it is called. A store with one writer leaves it out, and says why.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

import anyio
import pytest

from harken.automation import ACTIONS, ActionState
from harken.errors import Conflict
from harken.model import (
    APPROVALS,
    INBOX,
    OUTBOX,
    ApprovalChoice,
    ApprovalState,
    Consumer,
    Mailbox,
    Reader,
    Selection,
    SessionKey,
)
from harken.store.contract import Store
from harken.store.contract.deliveries import OfferFilter
from harken.store.contract.leases import LEASES, Lease, OldFence, under
from harken.store.contract.messages import Checkpoint
from harken.store.contract.retention import Limits
from harken.testing import FakeClock
from tests.contracts.approvals import PATIENCE, answer_to, request_of
from tests.contracts.leases import LIFE, take
from tests.contracts.rules import ORDER
from tests.contracts.runs import start
from tests.contracts.store_suite import (
    AGENT,
    EVERYTHING,
    LEASE_SECONDS,
    LONG_SECONDS,
    OTHER_READER,
    READER,
    SECOND,
    WAIT_SECONDS,
    fill,
    later,
    new_message,
    offer,
    offered_texts,
    place,
    texts,
)
from tests.contracts.store_waits import Poll, polling
from tests.contracts.tasks import task

MANY = 50
FEED = "teams", "chats"


class OpenStore(Protocol):
    """How the shared store is opened, as one daemon does it."""

    def __call__(self) -> AbstractAsyncContextManager[Store]:
        """Open the store; each call is another daemon."""
        ...


class Rings:
    """Keeps what an opening was rung for."""

    def __init__(self) -> None:
        self.mailboxes = set[Mailbox]()
        self._rang = anyio.Event()

    def __call__(self, grown: Collection[Mailbox]) -> None:
        """Keep the mailboxes."""
        self.mailboxes.update(grown)
        self._rang.set()

    async def wait_for(self, mailbox: Mailbox) -> None:
        """Return when a mailbox was rung for."""
        with anyio.fail_after(WAIT_SECONDS):
            while mailbox not in self.mailboxes:
                self._rang = anyio.Event()
                await self._rang.wait()


async def here(store: Store) -> int:
    """Return how many daemons are here."""
    return sum(each.is_here for each in await store.daemons.list())


class TwoOpenersSuite:
    """`first` and `second` are two daemons on one store."""

    @pytest.fixture
    async def first(self, open_store: OpenStore) -> AsyncIterator[Store]:
        """The store, as one daemon has it."""
        async with open_store() as store:
            yield store

    @pytest.fixture
    async def second(self, open_store: OpenStore) -> AsyncIterator[Store]:
        """The same store, as another daemon has it."""
        async with open_store() as store:
            yield store

    # -- messages ---------------------------------------------------------------------------------------------

    async def test_each_sees_what_the_other_accepted(self, first: Store, second: Store) -> None:
        """A read sees every write that returned before it began, whoever wrote."""
        await fill(first, "by the first")
        await fill(second, "by the second")
        assert await texts(first) == await texts(second) == ["by the first", "by the second"]
        assert (await second.messages.get("#1")).text == "by the first"

    async def test_numbers_are_one_without_gaps(self, first: Store, second: Store) -> None:
        """A reader that asks for `seq > n` would step over what another daemon commits later under a lower number."""
        async with anyio.create_task_group() as tasks:
            for store in (first, second):
                for number in range(MANY):
                    tasks.start_soon(fill, store, f"{number}")
        found = await first.messages.page(EVERYTHING, 10 * MANY)
        assert [each.seq for each in found] == list(range(1, 2 * MANY + 1))
        assert await second.messages.page(EVERYTHING, 10 * MANY) == found

    async def test_events_are_numbered_once(self, first: Store, second: Store) -> None:
        """Each line of a journal stands for one event for ever, in the order of commits."""
        async with anyio.create_task_group() as tasks:
            for store in (first, second):
                for number in range(MANY):
                    tasks.start_soon(fill, store, f"{number}")
        events = await first.events.after(0, 10 * MANY)
        assert [event.n for event in events] == list(range(1, len(events) + 1))
        assert await second.events.last() == len(events)

    async def test_events_of_one_do_not_wait_for_the_journal_of_the_other(self, first: Store, second: Store) -> None:
        """Whoever applies the limits may commit nothing else for weeks: events would be kept for ever."""
        own = await second.events.record("own", {})
        other = [await first.events.record("old", {}) for _ in range(2)]
        await second.events.continue_after(other[-1].n + 1_000_000)
        await second.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS, journaled=own.n - 1))
        kept = [event.n for event in await second.events.after(0, 100)]
        assert own.n in kept
        assert not {event.n for event in other} & set(kept)
        assert await first.events.own_after(0, 100) == []

    async def test_a_message_that_both_receive_is_stored_once(self, first: Store, second: Store) -> None:
        """Two daemons may be told of the same message by its service."""
        results = list[bool]()

        async def append(store: Store) -> None:
            (appended,) = await store.messages.append([new_message("once", key=b"the same")])
            results.append(appended.is_new)

        async with anyio.create_task_group() as tasks:
            for store in (first, second) * 8:
                tasks.start_soon(append, store)
        assert sorted(results) == [False] * 15 + [True]
        assert await texts(first) == ["once"]

    async def test_a_checkpoint_does_not_go_back(self, first: Store, second: Store) -> None:
        """A daemon that was thought dead comes back with what it read before: upstream would be read again from there.

        It is refused with everything that it brought: what the other one has read meanwhile is stored already.
        """
        await first.messages.append([new_message("one", key=b"1")], Checkpoint(*FEED, "after one"))
        assert await second.checkpoints.get(*FEED) == "after one"
        await second.messages.append([new_message("two", key=b"2")], Checkpoint(*FEED, "after two"))
        with pytest.raises(Conflict):
            await first.messages.append([new_message("late", key=b"3")], Checkpoint(*FEED, "after one and a bit"))
        assert await first.checkpoints.get(*FEED) == "after two"
        assert await texts(second) == ["one", "two"]
        await first.messages.append([new_message("late", key=b"3")], Checkpoint(*FEED, "after three"))
        assert await second.checkpoints.get(*FEED) == "after three"

    # -- leases -----------------------------------------------------------------------------------------------

    async def test_a_lease_has_one_holder_until_it_is_over(self, first: Store, second: Store, clock: FakeClock) -> None:
        """What both did, upstream would hear twice; what the first one still writes afterwards comes too late."""
        own = await take(first)
        clock.advance(LIFE.total_seconds() - 1)
        assert await take(second) == own
        with under(own):
            await fill(first, "in time")
        clock.advance(1)
        taken = await take(second)
        assert (taken.fence > own.fence, taken.holder != own.holder) == (True, True)
        with under(own), pytest.raises(OldFence):
            await fill(first, "late")
        assert await take(first, own) == taken
        assert await texts(first) == ["in time"]

    async def test_a_lease_that_is_given_back_is_taken_at_once(self, first: Store, second: Store) -> None:
        """A daemon that stops tells the others: nothing stands still until its lease would have ended."""
        rings = Rings()
        own = await take(first)
        assert (await take(second)).holder == own.holder
        with second.changes.listen(rings, only=[LEASES]):
            await first.leases.resign([own])
            await rings.wait_for(LEASES)
        assert (await take(second)).fence > own.fence

    async def test_many_that_want_a_lease_get_it_once(self, first: Store, second: Store) -> None:
        """Every daemon looks in the same second."""
        found = list[Lease]()

        async def want(store: Store) -> None:
            found.append(await take(store))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(want, first)
            tasks.start_soon(want, second)
        assert found[0] == found[1]

    # -- deliveries -------------------------------------------------------------------------------------------

    async def test_offers_are_exclusive(self, first: Store, second: Store, clock: FakeClock) -> None:
        """Two sessions of one consumer, on two machines, never get the same message at once."""
        await fill(first, *(str(number) for number in range(MANY)))
        given = list[str]()

        async def take(store: Store, reader: int) -> None:
            who = (READER, SECOND)[reader]
            while offers := await offer(store, clock, who, 3, carrier=f"call-{reader}"):
                given.extend(offered_texts(offers))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take, first, 0)
            tasks.start_soon(take, second, 1)
        assert sorted(given, key=int) == [str(number) for number in range(MANY)]

    async def test_what_one_proves_the_other_does_not_offer(
        self, first: Store, second: Store, clock: FakeClock
    ) -> None:
        """The cursor is the consumer's, not the daemon's."""
        await second.deliveries.enroll(AGENT, INBOX, clock.now())
        await fill(first, "one", "two")
        given = await offer(first, clock)
        await second.deliveries.prove([each.delivery_id for each in given], "a later call")
        clock.advance(LEASE_SECONDS + 1)
        assert await offer(second, clock, SECOND) == []
        assert (await place(first)).cursor == (await place(second)).cursor == 2

    async def test_leases_of_a_killed_daemon_return(self, open_store: OpenStore, clock: FakeClock) -> None:
        """What a daemon had on its way when it died is offered by another one, as a repeat, when the lease is over."""
        async with open_store() as killed:
            await fill(killed, "on its way")
            await offer(killed, clock)
        async with open_store() as other:
            assert await offer(other, clock, SECOND) == []
            clock.advance(LEASE_SECONDS + 1)
            (again,) = await offer(other, clock, SECOND)
            assert (again.message.text, again.is_repeat) == ("on its way", True)

    async def test_a_start_takes_nothing_from_the_sessions_of_the_other(
        self, first: Store, second: Store, clock: FakeClock
    ) -> None:
        """A daemon that starts lets go of what its own sessions had; it cannot know those of another one."""
        await fill(first, "on its way")
        (given,) = await offer(first, clock)
        assert await second.deliveries.release_except([]) == 0
        assert await offer(second, clock, SECOND) == []
        assert [each.delivery_id for each in await first.deliveries.open_offers(READER.session)] == [given.delivery_id]
        mine, theirs = [(await each.deliveries.ledger(given.message.id))[0].address for each in (first, second)]
        assert mine == ("", READER.session)
        assert theirs != mine

    async def test_sessions_with_the_same_key_are_apart(self, first: Store, second: Store, clock: FakeClock) -> None:
        """A key may be no more than the number of a process: what one of them lets go, the other one keeps."""
        await fill(first, "on its way")
        (given,) = await offer(first, clock)
        assert await second.deliveries.release(READER.session) == 0
        assert await second.deliveries.transfer(READER.session, SECOND.session) == 0
        assert await second.deliveries.open_offers(READER.session) == []
        assert [each.delivery_id for each in await first.deliveries.open_offers(READER.session)] == [given.delivery_id]

    async def test_a_daemon_that_is_not_heard_of_is_gone(self, first: Store, second: Store, clock: FakeClock) -> None:
        """Its sessions cannot be reached any more: what they were given is offered to others before the leases end."""
        life, began = timedelta(seconds=9), clock.now()
        one, other = (
            partial(each.daemons.report, machine="m", version="1", started_at=began, sessions="[]")
            for each in (first, second)
        )
        await fill(first, "on its way")
        await offer(first, clock)
        await one(gone_after=life)
        await other(gone_after=life)
        assert await here(second) == 2
        assert await offer(second, clock, SECOND) == []
        clock.advance(10)
        await other(gone_after=None)
        assert await here(second) == 2
        await other(gone_after=life)
        assert await here(second) == 1
        (again,) = await offer(second, clock, SECOND)
        assert (again.message.text, again.is_repeat) == ("on its way", True)
        # One that ends is gone at once; its sessions have as long to come back with it.
        await other(gone_after=life)
        await second.daemons.leave()
        await one(gone_after=life)
        assert [await offer(first, clock), await here(first)] == [[], 1]
        clock.advance(10)
        await one(gone_after=life)
        assert [each.is_repeat for each in await offer(first, clock)] == [True]

    async def test_a_reader_that_waits_is_given_what_the_other_accepts(self, first: Store, second: Store) -> None:
        """A long poll on one machine ends when a message arrives at another."""
        given = list[Selection]()

        async def wait() -> None:
            given.append(
                await second.deliveries.offer_when_ready(
                    OTHER_READER,
                    10,
                    surface="wait",
                    carrier="call-1",
                    lease=timedelta(seconds=LEASE_SECONDS),
                    rank=lambda: 0.0,
                    where=OfferFilter,
                    seconds=WAIT_SECONDS,
                )
            )

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await fill(first, "at the other machine")
        assert [each.message.text for each in given[0].whole] == ["at the other machine"]

    async def test_wait_gets_what_came_through_another_daemon_first(self, first: Store, second: Store) -> None:
        """The daemon that has a reader may not have heard of it yet when it stores the next message itself."""
        for number in range(MANY // 5):
            reader = Reader(consumer=Consumer(f"c{number}"), session=SessionKey(f"s{number}"))
            await second.deliveries.enroll(reader.consumer, INBOX, datetime.max.replace(tzinfo=UTC))
            poll = Poll(second, reader)
            async with polling(second, poll):
                await fill(first, f"first {number}")
                await fill(second, f"second {number}")
            assert [f"first {number}", f"second {number}"][: len(poll.texts or ())] == poll.texts

    # -- what leaves, and what is set in motion ---------------------------------------------------------------

    async def test_a_reply_is_sent_by_one(self, first: Store, second: Store, clock: FakeClock) -> None:
        """A reply that two daemons hand to its service is said twice."""
        await fill(first, "question")
        row = await first.outbox.add((await first.messages.get("#1")).id, "yes", author="a", consumer=AGENT)
        assert [each.id for each in await second.outbox.due(10)] == [row.id]
        await first.outbox.trying(row.id)
        assert await second.outbox.due(10) == []
        with pytest.raises(Conflict):
            await second.outbox.trying(row.id)
        await second.outbox.failed(row.id, "not mine", due_at=None)
        assert [each.state for each in await first.outbox.list()] == ["queued"]
        await first.outbox.failed(row.id, "not now", due_at=later(clock, -1))
        assert [each.id for each in await second.outbox.due(10)] == [row.id]
        with pytest.raises(Conflict):
            await second.outbox.trying(row.id, attempts=row.attempts)  # read before it was tried
        await first.outbox.trying(row.id, attempts=row.attempts + 1)
        await second.outbox.let_go()
        assert await second.outbox.due(10) == []
        await first.outbox.let_go()
        assert [each.tried_at for each in await second.outbox.due(10)] == [clock.now()], "it may have been sent"
        await first.outbox.trying(row.id, attempts=row.attempts + 1)
        await first.outbox.sent(row.id, "up-1")
        with pytest.raises(Conflict):
            await second.outbox.trying(row.id, attempts=row.attempts + 1)

    async def test_an_action_is_answered_and_started_once(self, first: Store, second: Store) -> None:
        """The same question is shown on both machines; the first answer counts, and one of them runs it."""
        await fill(first, "red")
        action = await first.actions.add((await first.messages.get("#1")).id, ORDER, "user", key="k")
        assert await second.actions.add(action.message, ORDER, "user", key="k") == action
        await second.actions.refuse(action.id, "there is no agent")
        with pytest.raises(Conflict):
            await first.actions.refuse(action.id, "there is no agent")
        assert (await first.actions.get(action.id)).state is ActionState.REFUSED

    async def test_what_a_host_asks_one_daemon_is_answered_at_the_other(self, first: Store, second: Store) -> None:
        """The person sits at another machine; a daemon that starts withdraws what it asked itself, and nothing else."""
        rings = Rings()
        asked = await first.approvals.ask(request_of(), PATIENCE)
        assert await second.approvals.list([ApprovalState.OPEN], is_own=True) == []
        assert await first.approvals.list([ApprovalState.OPEN], is_own=True) == [asked]
        with first.changes.listen(rings, only=[APPROVALS]):
            answered = await second.approvals.answer(answer_to(asked))
            await rings.wait_for(APPROVALS)
        assert await first.approvals.get(asked.id) == answered
        with pytest.raises(Conflict, match="answered already"):
            await first.approvals.answer(answer_to(asked, ApprovalChoice.NO))

    async def test_a_folder_is_that_of_a_machine(self, first: Store, second: Store, clock: FakeClock) -> None:
        """The same path is another folder on another machine: a task and a run in each, told of with its machine."""
        for store, name in ((first, "here"), (second, "there")):
            added = await store.tasks.add(task(name, "/w/shop"))
            run = await start(store, clock, name, "/w/shop")
            assert (added.machine, run.machine) == ("", "")
            assert await store.runs.own_running() == [run]
            with pytest.raises(Conflict):
                await store.tasks.add(task(f"{name} again", "/w/shop"))
        here, there = await first.tasks.list()
        assert (here.machine, there.machine != "") == ("", True)
        assert [bool(run.machine) for run in await first.runs.list(is_running=True)] == [True, False]

    async def test_changes_reach_the_other(self, first: Store, second: Store) -> None:
        """What is committed by one daemon is pushed, sent and run by the other without being asked for."""
        rings = Rings()
        with second.changes.listen(rings):
            await fill(first, "hello")
            await rings.wait_for(INBOX)
            message = (await first.messages.get("#1")).id
            await first.outbox.add(message, "hello", author="a", consumer=AGENT)
            await rings.wait_for(OUTBOX)
            await first.actions.add(message, ORDER, "user")
            await rings.wait_for(ACTIONS)
