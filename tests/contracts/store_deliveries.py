"""The part of the store suite about deliveries: offering, proof, leases and what a new consumer begins with."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from harken.errors import NotFound
from harken.model import (
    INBOX,
    WATCH,
    Consumer,
    Delivery,
    DeliveryId,
    DeliveryState,
    MessageId,
    Offer,
    Priority,
    Reader,
    SessionKey,
)
from harken.store.contract import Store
from harken.store.contract.deliveries import ConsumerState, Omission, OpenOffer, Unread
from harken.store.contract.messages import Filter
from harken.store.contract.retention import Limits
from harken.testing import FakeClock
from tests.contracts.store_suite import (
    AGENT,
    EVERYTHING,
    LEASE_SECONDS,
    LONG_SECONDS,
    OTHER,
    OTHER_READER,
    READER,
    SECOND,
    TASK,
    WAIT_SECONDS,
    Journal,
    StoreSuite,
    fill,
    later,
    mentions,
    new_message,
    offer,
    offered_texts,
    place,
    waits_for,
)


class DeliverySuite(StoreSuite):
    """The fixture of everything here: two consumers that read the inbox from its beginning."""

    @pytest.fixture(autouse=True)
    async def enrolled(self, store: Store, clock: FakeClock) -> None:
        """Let two agents begin with an empty inbox."""
        for consumer in (AGENT, OTHER):
            await store.deliveries.enroll(consumer, INBOX, clock.now())


class EnrollSuite(StoreSuite):
    """What a new consumer begins with."""

    async def test_consumer_is_enrolled_once(self, store: Store, clock: FakeClock) -> None:
        """Every session says who it is; only the first one may set the place to begin."""
        await fill(store, "one")
        assert await store.deliveries.enroll(AGENT, INBOX, later(clock, -60))
        assert not await store.deliveries.enroll(AGENT, INBOX, later(clock, 60))
        assert await store.deliveries.enroll(AGENT, TASK, clock.now())
        assert await store.deliveries.enroll(OTHER, INBOX, later(clock, -60))
        assert (await store.deliveries.unread(READER)).count == 1

    async def test_new_consumer_begins_with_recent_mail_no_agent_has_seen(self, store: Store, clock: FakeClock) -> None:
        """Old mail would drown a new agent, handled mail would be handled twice; what a person saw is still open."""
        watch = Reader(consumer=WATCH, session=SessionKey("w"))
        for consumer in (AGENT, WATCH):
            await store.deliveries.enroll(consumer, INBOX, clock.now())
        await fill(store, "old", "older still")
        clock.advance(25 * 3600)
        await fill(store, "seen by an agent", "seen by the person", "only offered", "new")
        await store.deliveries.acknowledge(READER, [(await store.messages.get("#3")).id], "ack")
        await store.deliveries.acknowledge(
            watch, [(await store.messages.get("#4")).id, (await store.messages.get("#1")).id], "ack"
        )
        await offer(store, clock, READER)
        clock.advance(3600)
        await store.deliveries.enroll(OTHER, INBOX, later(clock, -24 * 3600))
        assert await store.deliveries.unread(OTHER_READER) == Unread(count=3, oldest=later(clock, -3600))
        assert offered_texts(await offer(store, clock, OTHER_READER)) == ["seen by the person", "only offered", "new"]

    async def test_what_an_agent_sees_later_still_reaches_the_new_consumer(
        self, store: Store, clock: FakeClock
    ) -> None:
        """The beginning is decided once; later each consumer has its own account."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        await fill(store, "one")
        await store.deliveries.enroll(OTHER, INBOX, later(clock, -60))
        await store.deliveries.acknowledge(READER, [(await store.messages.get("#1")).id], "ack")
        assert offered_texts(await offer(store, clock, OTHER_READER)) == ["one"]

    async def test_skipped_mail_is_not_shown_as_queued(self, store: Store, clock: FakeClock) -> None:
        """The ledger and the unread count must tell the same story."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        await fill(store, "old")
        clock.advance(3600)
        await fill(store, "seen", "open")
        await store.deliveries.acknowledge(READER, [(await store.messages.get("#2")).id], "ack")
        await store.deliveries.enroll(OTHER, INBOX, later(clock, -60))
        page = await store.messages.page(EVERYTHING, 10)
        assert [message.text for message in page if OTHER in await waits_for(store, message.id)] == ["open"]
        assert (await store.deliveries.unread(OTHER_READER)).count == 1

    async def test_person_reads_every_mailbox_from_its_beginning(self, store: Store) -> None:
        """Mail of a mailbox that no agent reads must wait for somebody, or it could go unread and unseen."""
        await fill(store, "one", mailbox=TASK)
        assert await waits_for(store, (await store.messages.get("task:a#1")).id) == {WATCH}
        assert await store.deliveries.consumers() == [
            ConsumerState(consumer=WATCH, mailbox=TASK, cursor=0, head=1, unread=1)
        ]

    async def test_nothing_waits_in_a_mailbox_whose_mail_is_gone(self, store: Store, clock: FakeClock) -> None:
        """A new consumer must not be told of mail that retention deleted before it came."""
        await fill(store, "1", "2", "3", mailbox=TASK)
        await fill(store, "kept")
        clock.advance(100)
        for _ in range(2):
            await store.retention.prune(Limits(max_count=100, max_age_seconds=60))
        await store.deliveries.enroll(AGENT, TASK, later(clock, -LONG_SECONDS))
        reader = Reader(consumer=AGENT, session=SessionKey("s1"), mailboxes=(TASK,))
        assert await store.deliveries.unread(reader) == Unread(count=0)
        assert await place(store, AGENT, TASK) == ConsumerState(
            consumer=AGENT, mailbox=TASK, cursor=3, head=3, unread=0
        )

    async def test_new_consumer_begins_with_the_newest_of_too_many(self, store: Store, clock: FakeClock) -> None:
        """What is not given must be counted: "0 unread" about thousands that nobody was given would be a lie."""
        await fill(store, "old", "older still")
        clock.advance(3600)
        await fill(store, *(f"recent {number}" for number in range(5)))
        await store.deliveries.enroll(AGENT, INBOX, later(clock, -60), most=3)
        assert offered_texts(await offer(store, clock)) == ["recent 2", "recent 3", "recent 4"]
        left_out = Omission(older=2, surplus=2, up_to=4)
        assert await place(store) == ConsumerState(
            consumer=AGENT, mailbox=INBOX, cursor=4, head=7, unread=3, leased=3, left_out=left_out
        )
        assert [message.seq for message in await store.messages.page(Filter(before=left_out.up_to + 1), 10)] == [
            1,
            2,
            3,
            4,
        ]

    @pytest.mark.parametrize(
        ("seconds", "most", "left_out"),
        [
            pytest.param(LONG_SECONDS, None, Omission(), id="everything"),
            pytest.param(LONG_SECONDS, 100, Omission(), id="fewer than it may begin with"),
            pytest.param(LONG_SECONDS, 7, Omission(), id="exactly as many"),
            pytest.param(LONG_SECONDS, 6, Omission(surplus=1, up_to=1), id="one too many"),
            pytest.param(LONG_SECONDS, 0, Omission(surplus=7, up_to=7), id="nothing that is there"),
            pytest.param(60, None, Omission(older=2, up_to=2), id="what is recent"),
            pytest.param(60, 5, Omission(older=2, up_to=2), id="what is recent, and no more"),
            pytest.param(60, 6, Omission(older=2, up_to=2), id="with room for more"),
            pytest.param(-60, None, Omission(older=7, up_to=7), id="nothing is recent"),
            pytest.param(-60, 2, Omission(older=7, up_to=7), id="nothing is recent, and too much"),
        ],
    )
    async def test_what_a_consumer_is_not_given_is_counted_by_its_reason(
        self, store: Store, clock: FakeClock, seconds: float, most: int | None, left_out: Omission
    ) -> None:
        """People change the setting that is to blame, and look for what is below a number."""
        await fill(store, "old", "older still")
        clock.advance(3600)
        await fill(store, *"12345")
        await store.deliveries.enroll(AGENT, INBOX, later(clock, -seconds), most=most)
        state = await place(store)
        assert state.left_out == left_out
        assert state.unread == 7 - left_out.older - left_out.surplus
        assert (await store.deliveries.unread(READER)).count == state.unread

    async def test_one_message_with_a_wrong_clock_is_counted_for_what_it_says(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Each message that was left out has one reason, and what is given has none."""
        await fill(store, "recent")
        clock.set_back(LONG_SECONDS)
        await fill(store, "with a wrong clock")
        clock.advance(LONG_SECONDS)
        await fill(store, "recent too", "and this")
        for consumer, most in ((AGENT, 3), (OTHER, 2)):
            await store.deliveries.enroll(consumer, INBOX, later(clock, -60), most=most)
        assert (await place(store)).left_out == Omission(older=1, surplus=1, up_to=2)
        assert (await place(store, OTHER)).left_out == Omission(older=1, surplus=1, up_to=2)

    async def test_what_is_gone_was_not_left_out(self, store: Store, clock: FakeClock) -> None:
        """Retention had removed it: nobody could look for it, and the bound is for what there is."""
        await fill(store, *"abcd", mailbox=TASK)
        await fill(store, "kept")
        clock.advance(100)
        for _ in range(2):
            await store.retention.prune(Limits(max_count=100, max_age_seconds=60))
        await fill(store, "e", "f", mailbox=TASK)
        for consumer, most in ((AGENT, 2), (OTHER, 1)):
            await store.deliveries.enroll(consumer, TASK, later(clock, -LONG_SECONDS), most=most)
        assert (await place(store, AGENT, TASK)).left_out == Omission()
        assert (await place(store, OTHER, TASK)).left_out == Omission(surplus=1, up_to=5)

    @pytest.mark.parametrize(
        ("kept", "given"),
        [
            pytest.param([2, 3], ["7", "8"], id="between what is kept"),
            pytest.param([5], ["7", "8"], id="just before what is new"),
            pytest.param([1], ["7", "8"], id="just after the first"),
        ],
    )
    async def test_new_consumer_is_told_of_no_more_than_there_is(
        self, store: Store, clock: FakeClock, kept: list[int], given: list[str]
    ) -> None:
        """Retention leaves gaps around what is still needed: one that began below would be told of what is gone."""
        watch = Reader(consumer=WATCH, session=SessionKey("w"))
        await fill(store, *(f"{number}" for number in range(1, 9)))
        page = await store.messages.page(EVERYTHING, 10)
        for number in kept:
            await store.outbox.add(page[number - 1].id, "done", author="you", consumer=WATCH)
        await store.deliveries.acknowledge(watch, [message.id for message in page], "ack")
        await store.retention.prune(Limits(max_count=2, max_age_seconds=LONG_SECONDS))
        assert [message.seq for message in await store.messages.page(EVERYTHING, 10)] == [*kept, 7, 8]
        await store.deliveries.enroll(AGENT, INBOX, later(clock, -LONG_SECONDS))
        assert await store.deliveries.unread(READER, by_channel=True) == Unread(
            count=2, oldest=clock.now(), by_channel={"": 2}
        )
        assert (await place(store)).left_out == Omission(surplus=len(kept), up_to=6)
        assert offered_texts(await offer(store, clock)) == given

    async def test_nothing_waits_where_only_what_retention_needs_is_left(self, store: Store, clock: FakeClock) -> None:
        """The newest of a mailbox may be gone too, when another one has grown since."""
        await fill(store, "kept", "gone", mailbox=TASK)
        watch = Reader(consumer=WATCH, session=SessionKey("w"), mailboxes=(TASK,))
        first, second = await store.messages.page(EVERYTHING, 10)
        await store.outbox.add(first.id, "done", author="you", consumer=WATCH)
        await store.deliveries.acknowledge(watch, [first.id, second.id], "ack")
        await fill(store, "newest of all")
        clock.advance(100)
        await store.retention.prune(Limits(max_count=100, max_age_seconds=60))
        await store.deliveries.enroll(AGENT, TASK, later(clock, -LONG_SECONDS))
        reader = Reader(consumer=AGENT, session=SessionKey("s1"), mailboxes=(TASK,))
        assert await store.deliveries.unread(reader) == Unread(count=0)
        assert (await place(store, AGENT, TASK)).left_out == Omission(surplus=1, up_to=2)

    async def test_what_was_left_out_stays_what_it_was(self, store: Store, clock: FakeClock) -> None:
        """It says how the consumer began, whatever is received, read or removed afterwards."""
        await fill(store, "1", "2", "3")
        await store.deliveries.enroll(AGENT, INBOX, later(clock, -60), most=1)
        await store.deliveries.enroll(AGENT, INBOX, later(clock, -60), most=3)
        await fill(store, "4", "5")
        watch = Reader(consumer=WATCH, session=SessionKey("w"))
        ids = [message.id for message in await store.messages.page(EVERYTHING, 10)]
        for reader in (READER, watch):
            await store.deliveries.acknowledge(reader, ids, "ack")
        assert (await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))).deleted == 4
        assert (await place(store)).left_out == Omission(surplus=2, up_to=2)

    async def test_beginning_is_journaled_with_what_was_left_out(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """Whoever looks back finds when it was, and that it was decided then."""
        await fill(store, "1", "2", "3")
        await store.deliveries.enroll(AGENT, INBOX, later(clock, -60), most=1)
        [event] = [event for event in journal.events if event.kind == "consumer"]
        assert event.data == {
            "consumer": AGENT,
            "mailbox": INBOX,
            "begins_after": 2,
            "left_out": {"older": 0, "surplus": 2, "up_to": 2},
        }

    async def test_a_reader_is_told_where_something_was_left_out(self, store: Store, clock: FakeClock) -> None:
        """An agent reads several mailboxes as one, and has to look for the rest where it is."""
        for mailbox in (INBOX, TASK):
            await fill(store, "1", "2", mailbox=mailbox)
        await store.deliveries.enroll(AGENT, INBOX, later(clock, -60), most=1)
        await store.deliveries.enroll(AGENT, TASK, later(clock, -60), most=2)
        await store.deliveries.enroll(OTHER, TASK, later(clock, 60))
        both = Reader(consumer=AGENT, session=SessionKey("s1"), mailboxes=(INBOX, TASK))
        others = Reader(consumer=OTHER, session=SessionKey("s2"), mailboxes=(INBOX, TASK))
        assert await store.deliveries.omissions(both) == {INBOX: Omission(surplus=1, up_to=1)}
        assert await store.deliveries.omissions(others) == {TASK: Omission(older=2, up_to=2)}
        assert (
            await store.deliveries.omissions(Reader(consumer=WATCH, session=SessionKey("w"), mailboxes=(INBOX, TASK)))
            == {}
        )

    async def test_empty_mailbox_has_a_place(self, store: Store, clock: FakeClock) -> None:
        """A consumer that waits for its first message must be visible."""
        await store.deliveries.enroll(AGENT, TASK, clock.now())
        assert await store.deliveries.consumers() == [
            ConsumerState(consumer=AGENT, mailbox=TASK, cursor=0, head=0, unread=0)
        ]


class OfferSuite(DeliverySuite):
    """Handing out."""

    async def test_offer_hands_out_each_message_once(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """While a lease runs nobody else of that consumer gets the message; another consumer does."""
        await fill(store, "one", "two")
        page = await store.messages.page(EVERYTHING, 10)
        first = await offer(store, clock)
        assert [(each.message, each.is_repeat) for each in first] == [(message, False) for message in page]
        assert len({each.delivery_id for each in first}) == 2
        assert await offer(store, clock) == []
        assert await offer(store, clock, SECOND) == []
        assert offered_texts(await offer(store, clock, OTHER_READER)) == ["one", "two"]
        for each in first:
            assert any(mentions(event, each.delivery_id) for event in journal.of("offered"))

    async def test_offer_is_visible_in_the_ledger(self, store: Store, clock: FakeClock) -> None:
        """At any time it can be seen who has been given what, and who has not."""
        await fill(store, "one")
        clock.advance(5)
        [given] = await offer(store, clock)
        [delivery] = [
            each for each in await store.deliveries.ledger(given.message.id) if each.state is not DeliveryState.QUEUED
        ]
        assert delivery == Delivery(
            id=given.delivery_id,
            message_id=given.message.id,
            consumer=AGENT,
            state=DeliveryState.OFFERED,
            surface="pull",
            session=READER.session,
            offered_at=clock.now(),
        )
        assert await waits_for(store, given.message.id) == {AGENT, OTHER, WATCH}
        await store.deliveries.prove([given.delivery_id], "ack")
        assert await waits_for(store, given.message.id) == {OTHER, WATCH}

    async def test_high_priority_goes_first(self, store: Store, clock: FakeClock) -> None:
        """What is urgent must not wait behind what is old; everything else keeps its order."""
        for text, priority in [
            ("low", Priority.LOW),
            ("normal", Priority.NORMAL),
            ("high 1", Priority.HIGH),
            ("high 2", Priority.HIGH),
        ]:
            await store.messages.append([new_message(text, priority=priority)])
        assert offered_texts(await offer(store, clock, limit=1)) == ["high 1"]
        assert offered_texts(await offer(store, clock)) == ["high 2", "low", "normal"]

    async def test_offer_keeps_to_channel_and_after(self, store: Store, clock: FakeClock) -> None:
        """Whoever asks for a part gets that part, and the rest stays untouched."""
        await store.messages.append([new_message(str(n), channel="ci" if n % 2 else "mail") for n in range(6)])
        second = (await store.messages.get("#2")).id
        assert offered_texts(await offer(store, clock, channel="ci", after=second)) == ["3", "5"]
        assert offered_texts(await offer(store, clock, after=second)) == ["2", "4"]
        assert offered_texts(await offer(store, clock, channel="ci")) == ["1"]
        assert offered_texts(await offer(store, clock, channel="c%")) == []
        assert offered_texts(await offer(store, clock)) == ["0"]

    async def test_offer_spans_the_mailboxes_of_the_reader(self, store: Store, clock: FakeClock) -> None:
        """A reader of several mailboxes gets them as one list in order of receipt, and nothing of others."""
        await store.deliveries.enroll(AGENT, TASK, clock.now())
        await store.messages.append([new_message(str(n), mailbox=TASK if n % 2 else INBOX) for n in range(4)])
        both = Reader(consumer=AGENT, session=SessionKey("s1"), mailboxes=(INBOX, TASK))
        second = (await store.messages.get("task:a#1")).id
        assert [message.text for message in await store.deliveries.peek(both, 10)] == ["0", "1", "2", "3"]
        assert [message.text for message in await store.deliveries.peek(both, 10, after=second)] == ["2", "3"]
        assert (await store.deliveries.unread(both)).count == 4
        assert offered_texts(await offer(store, clock, READER)) == ["0", "2"]
        assert offered_texts(await offer(store, clock, both)) == ["1", "3"]

    async def test_peek_shows_what_an_offer_would_give_and_changes_nothing(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Looking is free: a bell or a count must never consume mail."""
        await store.messages.append([new_message("low"), new_message("high", priority=Priority.HIGH)])
        last = await store.events.last()
        for _ in range(2):
            assert [message.text for message in await store.deliveries.peek(READER, 10)] == ["low", "high"]
        assert await store.events.last() == last
        [given] = await offer(store, clock, limit=1)
        assert given.message.text == "high"
        assert [message.text for message in await store.deliveries.peek(READER, 10)] == ["low"]
        assert [message.text for message in await store.deliveries.peek(OTHER_READER, 10)] == ["low", "high"]

    async def test_peek_keeps_to_limit_channel_and_after(self, store: Store) -> None:
        """It takes the same conditions as the offer it announces."""
        await store.messages.append([new_message(str(n), channel="ci" if n % 2 else "mail") for n in range(6)])
        first = (await store.messages.get("#1")).id
        assert [message.text for message in await store.deliveries.peek(READER, 2)] == ["0", "1"]
        assert [message.text for message in await store.deliveries.peek(READER, 2, after=first)] == ["1", "2"]
        assert [message.text for message in await store.deliveries.peek(READER, 9, channel="ci")] == ["1", "3", "5"]

    async def test_concurrent_sessions_never_get_the_same_message(self, store: Store, clock: FakeClock) -> None:
        """Two sessions of a host must not both do what one message asks."""
        await fill(store, *(str(n) for n in range(60)))
        given, in_flight, most_in_flight = list[Offer](), 0, 0

        async def take(session: str) -> None:
            nonlocal in_flight, most_in_flight
            reader = Reader(consumer=AGENT, session=SessionKey(session))
            for _ in range(3):
                in_flight += 1
                most_in_flight = max(most_in_flight, in_flight)
                given.extend(await offer(store, clock, reader, limit=2, carrier=session))
                in_flight -= 1

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                for session in range(20):
                    group.start_soon(take, f"s{session}")
        assert most_in_flight == 20
        assert sorted(int(each.message.text) for each in given) == list(range(60))

    async def test_answer_of_another_consumer_is_told(self, store: Store, clock: FakeClock) -> None:
        """The second agent must know that the question has its answer."""
        await fill(store, "question", "open")
        await store.outbox.add((await store.messages.get("#1")).id, "done", author="copilot", consumer=OTHER)
        assert [each.answered_by for each in await offer(store, clock)] == [OTHER, None]

    async def test_unread_counts_what_is_not_final(self, store: Store, clock: FakeClock) -> None:
        """An offer is no proof: what was only handed out still waits."""
        assert await store.deliveries.unread(READER) == Unread(count=0)
        oldest = clock.now()
        await store.messages.append([new_message("1", channel="ci")])
        second = clock.advance(60)
        await store.messages.append([new_message("2", channel="mail"), new_message("3", channel="ci")])
        given = await offer(store, clock)
        assert await store.deliveries.unread(READER) == Unread(count=3, leased=3, oldest=oldest)
        assert await store.deliveries.unread(READER, by_channel=True) == Unread(
            count=3, leased=3, oldest=oldest, by_channel={"ci": 2, "mail": 1}
        )
        await store.deliveries.prove([given[0].delivery_id], "transcript")
        assert await store.deliveries.unread(READER, by_channel=True) == Unread(
            count=2, leased=2, oldest=second, by_channel={"ci": 1, "mail": 1}
        )
        clock.advance(LEASE_SECONDS + 1)
        assert await store.deliveries.unread(READER) == Unread(count=2, oldest=second)
        assert (await store.deliveries.unread(OTHER_READER)).count == 3


class ProofSuite(DeliverySuite):
    """What moves a delivery to its end."""

    async def test_proof_makes_an_offer_seen_once(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """Evidence arrives several times; only the first changes anything and is recorded."""
        await fill(store, "one")
        [given] = await offer(store, clock)
        offered_at, seen_at = clock.now(), clock.advance(30)
        [seen] = await store.deliveries.prove([given.delivery_id, DeliveryId("unknown")], "transcript")
        clock.advance(30)
        assert await store.deliveries.prove([given.delivery_id], "later prompt") == []
        assert await store.deliveries.prove([], "nothing") == []
        assert seen == Delivery(
            id=given.delivery_id,
            message_id=given.message.id,
            consumer=AGENT,
            state=DeliveryState.SEEN,
            surface="pull",
            session=READER.session,
            offered_at=offered_at,
            seen_at=seen_at,
            evidence="transcript",
        )
        assert seen in await store.deliveries.ledger(given.message.id)
        [event] = journal.of("seen")
        assert mentions(event, "transcript")

    async def test_cursor_moves_only_over_what_is_final_without_a_gap(self, store: Store, clock: FakeClock) -> None:
        """A cursor that steps over an open message has lost it."""
        await fill(store, "1", "2", "3", "4")
        one, two, three, _ = await offer(store, clock)
        cursors = list[tuple[int, int]]()
        for proof in ([two.delivery_id], [three.delivery_id], [one.delivery_id]):
            await store.deliveries.prove(proof, "ack")
            here = await place(store)
            cursors.append((here.cursor, here.unread))
        assert cursors == [(0, 3), (0, 2), (3, 1)]
        assert await place(store) == ConsumerState(consumer=AGENT, mailbox=INBOX, cursor=3, head=4, unread=1, leased=1)
        assert (await place(store, OTHER)).cursor == 0

    async def test_seen_message_is_not_offered_again(self, store: Store, clock: FakeClock) -> None:
        """Proof ends a delivery, whatever becomes of the lease."""
        await fill(store, "one", "two")
        first, _ = await offer(store, clock)
        await store.deliveries.prove([first.delivery_id], "ack")
        clock.advance(LEASE_SECONDS + 1)
        assert offered_texts(await offer(store, clock, SECOND)) == ["two"]

    async def test_late_proof_counts(self, store: Store, clock: FakeClock) -> None:
        """A turn may take longer than a lease; what the model got, it got, also when another session has it by now."""
        await fill(store, "one", "two")
        first, second = await offer(store, clock)
        clock.advance(LEASE_SECONDS + 1)
        assert [each.state for each in await store.deliveries.prove([first.delivery_id], "ack")] == [DeliveryState.SEEN]
        await offer(store, clock, SECOND)
        assert [each.state for each in await store.deliveries.prove([second.delivery_id], "ack")] == [
            DeliveryState.SEEN
        ]
        assert (await store.deliveries.unread(READER)).count == 0

    async def test_message_can_be_acknowledged_without_an_offer(self, store: Store, clock: FakeClock) -> None:
        """A person or agent that read it elsewhere says so, once or twice."""
        await fill(store, "one", "two")
        first = (await store.messages.get("#1")).id
        [seen] = await store.deliveries.acknowledge(READER, [first], "channel ack")
        assert (seen.message_id, seen.consumer, seen.state) == (first, AGENT, DeliveryState.SEEN)
        assert (seen.seen_at, seen.evidence) == (clock.now(), "channel ack")
        assert await store.deliveries.acknowledge(READER, [first], "channel ack") == []
        assert (await place(store)).cursor == 1
        assert offered_texts(await offer(store, clock)) == ["two"]
        assert (await store.deliveries.unread(OTHER_READER)).count == 2

    async def test_acknowledged_offer_is_seen(self, store: Store, clock: FakeClock) -> None:
        """An ack that names an offered message is the proof of that offer."""
        await fill(store, "one")
        [given] = await offer(store, clock)
        [seen] = await store.deliveries.acknowledge(READER, [given.message.id], "ack")
        assert (seen.id, seen.state) == (given.delivery_id, DeliveryState.SEEN)
        assert await store.deliveries.prove([given.delivery_id], "transcript") == []
        assert (await store.deliveries.unread(READER)).count == 0

    async def test_acknowledging_an_unknown_message_changes_nothing(self, store: Store) -> None:
        """A mistake in a list must not be half done."""
        await fill(store, "one")
        last = await store.events.last()
        with pytest.raises(NotFound):
            await store.deliveries.acknowledge(
                READER, [(await store.messages.get("#1")).id, MessageId("unknown")], "ack"
            )
        assert (await store.deliveries.unread(READER)).count == 1
        assert await store.events.last() == last


class LeaseSuite(DeliverySuite):
    """How what is unproven comes back."""

    async def test_expired_lease_is_offered_again_as_a_repeat(self, store: Store, clock: FakeClock) -> None:
        """A session that went silent must not keep a message; the next one learns that it is not the first."""
        await fill(store, "one")
        [first] = await offer(store, clock)
        clock.advance(LEASE_SECONDS - 1)
        assert await offer(store, clock, SECOND) == []
        again_at = clock.advance(2)
        [again] = await offer(store, clock, SECOND)
        expected = Offer(message=first.message, delivery_id=first.delivery_id, offered_at=again_at, is_repeat=True)
        assert again == expected
        [row] = [each for each in await store.deliveries.ledger(first.message.id) if each.consumer == AGENT]
        assert (row.state, row.session, row.offers, row.offered_at) == (
            DeliveryState.OFFERED,
            SECOND.session,
            2,
            again_at,
        )
        assert await offer(store, clock) == []

    async def test_lease_holds_against_a_shorter_one(self, store: Store, clock: FakeClock) -> None:
        """Surfaces lease for different times; whoever asks for less must not be given what another holds."""
        await fill(store, "one")
        await offer(store, clock)
        assert await offer(store, clock, SECOND, lease_seconds=60) == []
        clock.advance(120)
        assert await offer(store, clock, SECOND, lease_seconds=60) == []

    async def test_small_correction_of_the_clock_ends_no_lease(self, store: Store, clock: FakeClock) -> None:
        """Clocks are corrected by fractions of a second every day: that must not hand out mail twice."""
        await fill(store, "one")
        await offer(store, clock)
        clock.set_back(0.5)
        assert await offer(store, clock, SECOND) == []

    async def test_withdrawn_offer_never_happened(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """A caller that had gone has seen nothing: the next one must not be told of a repeat."""
        await fill(store, "proven", "first", "second", "held by another")
        [proven] = await offer(store, clock, limit=1, carrier="a")
        await store.deliveries.prove([proven.delivery_id], "ack")
        [first] = await offer(store, clock, limit=1, carrier="old")
        await store.deliveries.release(READER.session, ["old"])
        await offer(store, clock, limit=2, carrier="a")
        await offer(store, clock, SECOND, carrier="a")
        assert await store.deliveries.withdraw(READER.session, "a") == 2
        assert len(journal.of("withdrawn")) == 1
        again = await offer(store, clock, carrier="b")
        assert [(each.message.text, each.is_repeat) for each in again] == [("first", True), ("second", False)]
        assert again[0].delivery_id == first.delivery_id
        assert await store.deliveries.withdraw(READER.session, "a") == 0
        assert (await store.deliveries.unread(READER)).leased == 3

    async def test_offer_that_was_not_handed_over_is_undone_under_every_name_of_its_session(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """The name of a session may become known between an offer and its undoing."""
        await fill(store, "old", "new", "another's")
        [old] = await offer(store, clock, limit=1, carrier="before")
        await store.deliveries.release(READER.session)
        given = await offer(store, clock, limit=2, carrier="a")
        await offer(store, clock, carrier="b")
        await store.deliveries.transfer(READER.session, SessionKey("named"))
        assert await store.deliveries.undo([each.delivery_id for each in given], "a") == 2
        assert await store.deliveries.undo([each.delivery_id for each in given], "a") == 0
        assert [each.data["session"] for each in journal.of("withdrawn")] == ["named"]
        again = await offer(store, clock, SECOND)
        assert [(each.message.text, each.is_repeat) for each in again] == [("old", True), ("new", False)]
        assert again[0].delivery_id == old.delivery_id

    async def test_release_ends_the_leases_of_the_named_carriers(self, store: Store, clock: FakeClock) -> None:
        """A cancelled call consumes nothing, and does not touch what other calls carry."""
        await fill(store, "one", "two", "three")
        await offer(store, clock, limit=1, carrier="a")
        await offer(store, clock, limit=1, carrier="b")
        await offer(store, clock, SECOND, limit=1, carrier="a")
        assert await store.deliveries.release(READER.session, ["a", "unknown"]) == 1
        [again] = await offer(store, clock, SECOND)
        assert (again.message.text, again.is_repeat) == ("one", True)
        assert await store.deliveries.release(READER.session, []) == 0
        assert await store.deliveries.peek(READER, 10) == []

    async def test_released_delivery_that_arrived_late_is_leased_again(self, store: Store, clock: FakeClock) -> None:
        """Only what is nobody's: what was proven or offered meanwhile stays as it is."""
        await fill(store, "one", "two", "three")
        ids = [each.delivery_id for each in await offer(store, clock, carrier="a")]
        await store.deliveries.release(READER.session)
        await store.deliveries.prove(ids[:1], "ack")
        await offer(store, clock, SECOND, limit=1, carrier="b")
        until = later(clock, LEASE_SECONDS)
        renewed = await store.deliveries.renew(
            READER.session, [*ids, DeliveryId("d-none")], carrier="a", lease_until=until
        )
        assert (renewed, await store.deliveries.peek(READER, 10)) == (1, [])
        assert await store.deliveries.open_offers(READER.session) == [OpenOffer(delivery_id=ids[2], carrier="a")]

    async def test_release_without_carriers_ends_all_leases_of_the_session(
        self, store: Store, clock: FakeClock
    ) -> None:
        """A session that ends gives everything back that was not proven, and nothing else."""
        await fill(store, "one", "two", "three")
        one, _ = await offer(store, clock, limit=2)
        await offer(store, clock, SECOND)
        await store.deliveries.prove([one.delivery_id], "ack")
        assert await store.deliveries.release(READER.session) == 1
        assert await store.deliveries.release(READER.session) == 0
        again = await offer(store, clock, SECOND)
        assert [(each.message.text, each.is_repeat) for each in again] == [("two", True)]

    async def test_sessions_that_are_gone_give_back_their_mail(self, store: Store, clock: FakeClock) -> None:
        """When the daemon starts it knows who is alive; the others hold nothing."""
        await fill(store, "one", "two")
        await offer(store, clock, limit=1)
        await offer(store, clock, SECOND, limit=1)
        await offer(store, clock, OTHER_READER)
        assert await store.deliveries.release_except([SECOND.session, SessionKey("never met")]) == 3
        assert [(each.message.text, each.is_repeat) for each in await offer(store, clock)] == [("one", True)]
        assert len(await offer(store, clock, OTHER_READER)) == 2
        assert await store.deliveries.release_except([]) == 4

    async def test_sessions_of_a_kind_give_back_their_mail(self, store: Store, clock: FakeClock) -> None:
        """What came over a request ends with the daemon; the sessions of agents may still come back."""
        await fill(store, "one", "two")
        request = replace(READER, session=SessionKey("http:1"))
        await offer(store, clock, request, limit=1)
        await offer(store, clock, SECOND, limit=1)
        assert await store.deliveries.release_except([SessionKey("http:1")], kinds=["http:", "cli:"]) == 0
        assert await store.deliveries.release_except([], kinds=["htt:"]) == 0
        assert await store.deliveries.release_except([], kinds=["http:", "cli:"]) == 1
        assert [(each.message.text, each.is_repeat) for each in await offer(store, clock)] == [("one", True)]

    async def test_open_offers_are_those_without_proof(self, store: Store, clock: FakeClock) -> None:
        """The proof of an offer is found by its carrier, also after the lease."""
        await fill(store, "one", "two", "three")
        [one] = await offer(store, clock, limit=1, carrier="a")
        [two] = await offer(store, clock, limit=1, carrier="b")
        await offer(store, clock, SECOND, carrier="c")
        expected = [
            OpenOffer(delivery_id=one.delivery_id, carrier="a"),
            OpenOffer(delivery_id=two.delivery_id, carrier="b"),
        ]
        assert sorted(await store.deliveries.open_offers(READER.session), key=lambda each: each.carrier) == expected
        await store.deliveries.prove([one.delivery_id], "ack")
        clock.advance(LEASE_SECONDS + 1)
        assert await store.deliveries.open_offers(READER.session) == expected[1:]
        assert await store.deliveries.open_offers(SessionKey("never met")) == []

    async def test_clock_set_back_does_not_freeze_a_lease(self, store: Store, clock: FakeClock) -> None:
        """After the clock is corrected by a day, mail must come back after a lease, not after a day."""
        await fill(store, "one")
        await offer(store, clock)
        clock.set_back(86400)
        clock.advance(LEASE_SECONDS + 1)
        assert offered_texts(await offer(store, clock, SECOND)) == ["one"]

    async def test_cancelled_offer_loses_nothing(self, store: Store, clock: FakeClock) -> None:
        """Whoever goes away in the middle of an offer may hold the mail for a lease and not longer."""
        await fill(store, *(str(n) for n in range(10)))
        begun = 0
        async with anyio.create_task_group() as group:

            async def take(session: str) -> None:
                nonlocal begun
                begun += 1
                if begun == 10:
                    group.cancel_scope.cancel()
                await offer(store, clock, Reader(consumer=AGENT, session=SessionKey(session)), limit=1)

            for session in range(10):
                group.start_soon(take, str(session))
        assert group.cancel_scope.cancelled_caught
        clock.advance(LEASE_SECONDS + 1)
        assert offered_texts(await offer(store, clock)) == [str(n) for n in range(10)]
        assert (await place(store, Consumer(AGENT))).unread == 10
