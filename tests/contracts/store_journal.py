"""The part of the store suite about what happened and what is kept: events, the change feed, retention, restarts."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from harken.errors import NotFound
from harken.model import INBOX, OUTBOX, WATCH, DeliveryState, Mailbox, MessageId, Reader, SessionKey
from harken.store.contract import Store
from harken.store.contract.deliveries import ConsumerState
from harken.store.contract.events import RECOVERY
from harken.store.contract.messages import Checkpoint, Filter
from harken.store.contract.people import Mute
from harken.store.contract.retention import Limits, MailboxExcess, RetentionReport
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
    Backend,
    Journal,
    StoreSuite,
    fill,
    later,
    mentions,
    new_message,
    offer,
    offered_texts,
    place,
    texts,
    waits_for,
)


class Ear:
    """A listener that keeps what it was told, in which thread, and how long the journal was by then."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.rings: list[tuple[set[Mailbox], int, int]] = []
        self._rang = anyio.Event()

    def __call__(self, grown: Collection[Mailbox]) -> None:
        """Keep one ring."""
        self.rings.append((set(grown), threading.get_ident(), len(self.journal.events)))
        self._rang.set()

    async def heard(self) -> tuple[set[Mailbox], int, int]:
        """Wait for the next ring."""
        with anyio.fail_after(WAIT_SECONDS):
            while not self.rings:
                self._rang = anyio.Event()
                await self._rang.wait()
        return self.rings.pop(0)


class JournalSuite(StoreSuite):
    """Events, the journal and the change feed."""

    async def test_recorded_event_comes_back_unchanged(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """What the daemon notes about itself is part of the same, ordered record."""
        assert await store.events.last() == 0
        data = {"text": "a\n\0b", "count": 3, "list": ["x", None, True, 1.5], "inner": {"": "y"}}
        event = await store.events.record("started", data)
        assert (event.n, event.at, event.kind, event.data, event.message) == (1, clock.now(), "started", data, None)
        assert await store.events.after(0, 10) == [event]
        assert journal.events == [event]
        assert await store.events.last() == 1

    async def test_events_are_numbered_without_gaps_and_seen_by_the_observer(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """Whoever copies the journal by number must be able to know that nothing is missing."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())

        async def live(name: int) -> None:
            await store.messages.append([new_message(f"{name} {n}") for n in range(3)])
            reader = Reader(consumer=AGENT, session=SessionKey(str(name)))
            given = await offer(store, clock, reader, limit=2)
            await store.deliveries.prove([each.delivery_id for each in given], "ack")
            # A transaction that is rolled back must not leave a hole in the numbers.
            with pytest.raises(NotFound):
                await store.deliveries.acknowledge(reader, [given[0].message.id, MessageId("unknown")], "ack")
            await store.events.record("note", {"name": name})

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                for name in range(15):
                    group.start_soon(live, name)
        events = await store.events.after(0, 10_000)
        assert [event.n for event in events] == list(range(1, len(events) + 1))
        assert len(events) > 15 * 5
        assert journal.events == events
        assert await store.events.after(5, 3) == events[5:8]
        assert await store.events.last() == len(events)
        received = [event.message.seq for event in events if event.kind == "received" and event.message]
        assert received == list(range(1, 46))

    async def test_observer_has_the_events_before_the_method_returns(self, store: Store, journal: Journal) -> None:
        """The line is written before anyone can be told that the message was accepted."""
        lengths = list[int]()
        for _ in range(5):
            await fill(store, "one")
            lengths.append(len(journal.events))
        assert lengths == [1, 2, 3, 4, 5]

    async def test_observer_has_the_events_before_the_bell_rings(self, store: Store, journal: Journal) -> None:
        """A push about a message that the journal does not have yet would be lost in a crash."""
        ear = Ear(journal)
        with store.changes.listen(ear):
            for n in range(1, 6):
                await store.messages.append([new_message(), new_message(mailbox=TASK)])
                grown, thread, journaled = await ear.heard()
                assert grown == {INBOX, TASK}
                assert thread == threading.get_ident(), "listeners belong to the event loop"
                assert journaled == 2 * n

    async def test_no_mailbox_grows_without_a_ring(self, store: Store, journal: Journal) -> None:
        """Appends that are committed together must all be told."""
        ear, names = Ear(journal), {Mailbox(f"task:{number}") for number in range(20)}
        rung = set[Mailbox]()
        with store.changes.listen(ear):
            async with anyio.create_task_group() as group:
                for name in names:
                    group.start_soon(store.messages.append, [new_message(mailbox=name)])
            with anyio.fail_after(WAIT_SECONDS):
                while rung != names:
                    rung |= (await ear.heard())[0]
        assert len(await texts(store)) == 20

    async def test_new_reply_rings_for_the_outbox(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """Whoever sends replies sleeps until there is one."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        await fill(store, "question")
        ear = Ear(journal)
        with store.changes.listen(ear):
            await store.outbox.add((await store.messages.get("#1")).id, "done", author="claude", consumer=AGENT)
            grown, _, _ = await ear.heard()
        assert grown == {OUTBOX}

    async def test_listener_is_rung_while_it_listens(self, store: Store, journal: Journal) -> None:
        """Several wait at once, and whoever has left is not called."""
        stays, leaves = Ear(journal), Ear(journal)
        with store.changes.listen(stays):
            with store.changes.listen(leaves):
                await fill(store, "one")
                await stays.heard()
                await leaves.heard()
            stays.rings.clear()
            leaves.rings.clear()
            await fill(store, "two")
            await stays.heard()
        assert leaves.rings == []

    async def test_stats_count_what_there_is(self, store: Store, clock: FakeClock) -> None:
        """People compare these numbers with what they see."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        await fill(store, "one", "two")
        await fill(store, "three", mailbox=TASK)
        await offer(store, clock, limit=1)
        stats = await store.health.stats()
        assert (stats["messages"], stats["deliveries"], stats["mailboxes"]) == (3, 1, 2)
        assert stats["events"] == await store.events.last()
        assert stats["bytes"] > 0

    async def test_what_only_a_lost_database_needs_is_journaled_and_not_told(
        self, store: Store, journal: Journal
    ) -> None:
        """Without its key a message would come twice, without the checkpoint all would; people need not read that."""
        place, later = Checkpoint("teams", "chat", "p1"), Checkpoint("teams", "chat", "p2")
        await store.messages.append([new_message("one", key=b"\x01"), new_message("two", key=b"\x02")], place)
        await store.messages.append([new_message("two", key=b"\x02")], later)
        first, second = journal.of("received")
        assert first.data == {RECOVERY: {"key": "01"}}
        assert second.data == {RECOVERY: {"key": "02", "checkpoint": ["teams", "chat", "p1"]}}
        assert (first.told, second.told) == ({}, {})
        assert await store.events.after(0, 10) == [first, second]

    async def test_events_go_on_above_a_number_that_was_used(self, store: Store, journal: Journal) -> None:
        """A number stands for one event for ever, also when the database lost its last ones."""
        first = await store.events.record("test", {})
        await store.events.continue_after(first.n + 10)
        assert (await store.events.record("test", {})).n == first.n + 12
        assert [event.kind for event in await store.events.after(first.n, 10)] == ["recovered", "test"]
        await store.events.continue_after(first.n)
        assert await store.events.last() == first.n + 12
        assert journal.events[-2].data == {"events_lost": 10}


class RetentionSuite(StoreSuite):
    """What is kept, and how the rest goes."""

    @pytest.fixture(autouse=True)
    async def enrolled(self, store: Store, clock: FakeClock) -> None:
        """Let an agent read the inbox from its beginning."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())

    async def test_open_mail_expires_before_it_is_deleted(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """Mail that nobody read must be visible as such before it goes."""
        await fill(store, "seen", "offered", "kept")
        seen, offered, kept = await store.messages.page(EVERYTHING, 10)
        await store.deliveries.acknowledge(READER, [seen.id], "ack")
        await offer(store, clock, READER, limit=1)
        limits = Limits(max_count=1, max_age_seconds=LONG_SECONDS)
        assert await store.retention.prune(limits) == RetentionReport(expired=3, deleted=0)
        assert await texts(store) == ["seen", "offered", "kept"]
        states = {
            message.text: {each.consumer: each.state for each in await store.deliveries.ledger(message.id)}
            for message in (seen, offered)
        }
        assert states == {
            "seen": {AGENT: DeliveryState.SEEN, WATCH: DeliveryState.EXPIRED},
            "offered": {AGENT: DeliveryState.EXPIRED, WATCH: DeliveryState.EXPIRED},
        }
        for message in (seen, offered):
            assert any(mentions(event, message.id) for event in journal.of("expired"))
        assert await waits_for(store, kept.id) == {AGENT, WATCH}
        assert ((await store.deliveries.unread(READER)).count, (await place(store)).cursor) == (1, 2)
        assert await store.retention.prune(limits) == RetentionReport(expired=0, deleted=2)
        assert await texts(store) == ["kept"]
        assert journal.of("pruned")
        with pytest.raises(NotFound):
            await store.messages.get(offered.id)
        assert await store.retention.prune(limits) == RetentionReport(expired=0, deleted=0)

    async def test_what_only_its_author_has_expires_before_it_is_deleted(self, store: Store, journal: Journal) -> None:
        """Your own word is read for you, and for nobody else: that no agent got it must be seen first."""
        said = [replace(new_message(text, mailbox=Mailbox("project:x")), author=WATCH) for text in ("said", "kept")]
        await store.messages.append(said)
        first = (await store.messages.page(Filter(mailbox=Mailbox("project:x")), 10))[0]
        limits = Limits(max_count=1, max_age_seconds=LONG_SECONDS)
        assert await store.retention.prune(limits) == RetentionReport(expired=1, deleted=0)
        (row,) = await store.deliveries.ledger(first.id)
        assert (row.consumer, row.state) == (WATCH, DeliveryState.EXPIRED)
        assert any(mentions(event, first.id) for event in journal.of("expired"))
        assert await store.retention.prune(limits) == RetentionReport(expired=0, deleted=1)

    async def test_what_everyone_has_seen_is_deleted_at_once(self, store: Store) -> None:
        """Nobody waits for it, so nothing has to be said about it first."""
        await fill(store, "1", "2", "3")
        first = (await store.messages.get("#1")).id
        for reader in (READER, Reader(consumer=WATCH, session=SessionKey("w"))):
            await store.deliveries.acknowledge(reader, [first], "ack")
        limits = Limits(max_count=1, max_age_seconds=LONG_SECONDS)
        assert await store.retention.prune(limits) == RetentionReport(expired=2, deleted=1)
        assert await texts(store) == ["2", "3"]

    async def test_age_limit_counts_from_receipt(self, store: Store, clock: FakeClock) -> None:
        """Old mail goes although the mailbox is small."""
        await fill(store, "old")
        clock.advance(100)
        await fill(store, "young")
        limits = Limits(max_count=100, max_age_seconds=60)
        assert await store.retention.prune(limits) == RetentionReport(expired=2, deleted=0)
        assert await store.retention.prune(limits) == RetentionReport(expired=0, deleted=1)
        assert await texts(store) == ["young"]

    async def test_wrong_clock_makes_no_young_mail_old(self, store: Store, clock: FakeClock) -> None:
        """One message received while the clock was wrong must not take the mail before it along."""
        await fill(store, "young")
        clock.set_back(86400)
        await fill(store, "received with a wrong clock")
        clock.advance(86400)
        await fill(store, "newest")
        for _ in range(2):
            await store.retention.prune(Limits(max_count=100, max_age_seconds=3600))
        assert await waits_for(store, (await store.messages.get("#1")).id) == {AGENT, WATCH}

    async def test_limits_hold_for_each_mailbox(self, store: Store, clock: FakeClock) -> None:
        """A noisy mailbox must not push out the mail of a quiet one."""
        await store.deliveries.enroll(AGENT, TASK, clock.now())
        await fill(store, "i1", "i2", "i3")
        await fill(store, "t1", mailbox=TASK)
        for _ in range(2):
            await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))
        assert await texts(store) == ["i3", "t1"]

    async def test_proof_of_an_expired_delivery_is_ignored(self, store: Store, clock: FakeClock) -> None:
        """Expired is an end: what was journaled as such must not change afterwards."""
        await fill(store, "one")
        [given] = await offer(store, clock)
        await fill(store, "two")
        await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))
        assert await store.deliveries.prove([given.delivery_id], "late") == []
        [delivery] = [each for each in await store.deliveries.ledger(given.message.id) if each.consumer == AGENT]
        assert (delivery.id, delivery.state) == (given.delivery_id, DeliveryState.EXPIRED)

    async def test_numbers_go_on_after_everything_was_deleted(self, store: Store, clock: FakeClock) -> None:
        """A number names one message for ever, and no new mail hides below an old cursor."""
        await fill(store, "1", "2", "3")
        await fill(store, "newest", mailbox=TASK)
        clock.advance(100)
        for _ in range(2):
            await store.retention.prune(Limits(max_count=100, max_age_seconds=60))
        assert await texts(store, Filter(mailbox=INBOX)) == []
        await fill(store, "4")
        assert (await store.messages.get("#4")).text == "4"
        assert await place(store) == ConsumerState(consumer=AGENT, mailbox=INBOX, cursor=3, head=4, unread=1)
        assert offered_texts(await offer(store, clock)) == ["4"]
        await store.deliveries.enroll(OTHER, INBOX, later(clock, -LONG_SECONDS))
        assert (await store.deliveries.unread(OTHER_READER)).count == 1

    async def test_journal_can_be_read_after_its_messages_are_gone(self, store: Store) -> None:
        """Retention of messages must not tear holes into the record of what happened."""
        await fill(store, "1", "2", "3")
        for _ in range(2):
            await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))
        events = await store.events.after(0, 100)
        assert [event.n for event in events] == list(range(1, await store.events.last() + 1))
        assert [event.kind for event in events].count("received") == 3

    async def test_what_expired_unread_stays_to_be_seen(self, store: Store, clock: FakeClock) -> None:
        """Whoever comes back after a long time must be able to find what they missed."""
        await fill(store, "missed", "kept")
        missed = (await store.messages.get("#1")).id
        limits = Limits(max_count=1, max_age_seconds=LONG_SECONDS, expired_stays_seconds=60)
        assert await store.retention.prune(limits) == RetentionReport(expired=2, deleted=0)
        clock.advance(59)
        assert await store.retention.prune(limits) == RetentionReport(expired=0, deleted=0)
        assert {each.state for each in await store.deliveries.ledger(missed)} == {DeliveryState.EXPIRED}
        clock.advance(2)
        assert await store.retention.prune(limits) == RetentionReport(expired=0, deleted=1)
        assert await texts(store) == ["kept"]

    async def test_what_was_offered_and_expired_says_when_it_was_offered(self, store: Store, clock: FakeClock) -> None:
        """When it was handed to an agent does not change when it grows old; how long it is shown begins then."""
        await fill(store, "offered", "kept")
        offered_at = clock.now()
        await offer(store, clock, limit=1)
        message = (await store.messages.get("#1")).id
        clock.advance(3_600)
        limits = Limits(max_count=1, max_age_seconds=LONG_SECONDS, expired_stays_seconds=60)
        assert (await store.retention.prune(limits)).expired
        [line] = [each for each in await store.deliveries.ledger(message) if each.consumer == READER.consumer]
        assert (line.state, line.offered_at) == (DeliveryState.EXPIRED, offered_at)
        clock.advance(59)
        assert await store.retention.prune(limits) == RetentionReport(expired=0, deleted=0)
        clock.advance(2)
        assert await store.retention.prune(limits) == RetentionReport(expired=0, deleted=1)

    async def test_events_without_a_line_stay(self, store: Store) -> None:
        """Until the file has them, they are the only record of what happened."""
        old = [await store.events.record("old", {}) for _ in range(3)]
        await store.events.continue_after(old[-1].n + 1_000_000)
        before = [event.n for event in await store.events.after(0, 100)]
        await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS, journaled=old[0].n))
        assert [event.n for event in await store.events.after(0, 100)] == [n for n in before if n > old[0].n]
        await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))
        assert [event.kind for event in await store.events.after(0, 100)] == ["recovered"]


class RestartSuite(StoreSuite):
    """What a closed store remembers."""

    async def test_everything_survives_a_restart(self, backend: Backend, tmp_path: Path, clock: FakeClock) -> None:
        """The daemon may end at any time; nothing it promised lives in memory."""
        before, after = Journal(), Journal()
        async with backend(tmp_path, clock, before) as store:
            await store.deliveries.enroll(AGENT, INBOX, clock.now())
            await store.messages.append([new_message("one", key=b"k"), new_message("two")])
            [given] = await offer(store, clock, limit=1)
            await store.people.set_mute(Mute("channel", "ci", None), is_on=True)
            row = await store.outbox.add((await store.messages.get("#2")).id, "done", author="me", consumer=AGENT)
            page = await store.messages.page(EVERYTHING, 10)
        async with backend(tmp_path, clock, after) as store:
            assert await store.messages.page(EVERYTHING, 10) == page
            assert await store.outbox.due(10) == [row]
            assert await store.people.mutes() == [Mute("channel", "ci", None)]
            assert await offer(store, clock, SECOND) == [], "the lease did not survive"
            [again] = await store.messages.append([new_message("one", key=b"k")])
            assert (again.message, again.is_new) == (page[0], False)
            [seen] = await store.deliveries.prove([given.delivery_id], "ack")
            assert seen.state is DeliveryState.SEEN
            [fresh] = await store.messages.append([new_message("three")])
            assert fresh.message.seq == 3
            clock.advance(LEASE_SECONDS + 1)
            assert offered_texts(await offer(store, clock, SECOND)) == ["three"]
            events = await store.events.after(0, 100)
        assert before.events + after.events == events

    async def test_waiting_calls_end_with_the_store(self, backend: Backend, tmp_path: Path, clock: FakeClock) -> None:
        """A store that is closed while calls are under way must not leave a caller waiting for ever."""
        journal = Journal()
        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                async with backend(tmp_path, clock, journal) as store:
                    for n in range(10):
                        group.start_soon(fill, store, str(n))
                    await fill(store, "last")
                group.cancel_scope.cancel()
        async with backend(tmp_path, clock, journal) as store:
            assert len(await texts(store)) == len(journal.events)

    async def test_what_is_over_the_limits_is_what_prune_then_does(self, store: Store, clock: FakeClock) -> None:
        """People are told beforehand, and what they are told must come true."""
        await fill(store, "1", "2", "3", "4")
        first = (await store.messages.get("#1")).id
        for reader in (READER, Reader(consumer=WATCH, session=SessionKey("w"))):
            await store.deliveries.acknowledge(reader, [first], "ack")
        limits = Limits(max_count=1, max_age_seconds=LONG_SECONDS, expired_stays_seconds=60)
        assert await store.retention.excess(limits) == [
            MailboxExcess(mailbox=INBOX, stored=4, over=3, to_expire=4, to_delete=1)
        ]
        assert await store.retention.prune(limits) == RetentionReport(expired=4, deleted=1)
        assert await store.retention.excess(limits) == [
            MailboxExcess(mailbox=INBOX, stored=3, over=2, to_expire=0, to_delete=0)
        ]
        clock.advance(61)
        assert await store.retention.excess(limits) == [
            MailboxExcess(mailbox=INBOX, stored=3, over=2, to_expire=0, to_delete=2)
        ]
        assert await store.retention.prune(limits) == RetentionReport(expired=0, deleted=2)
        wide = Limits(max_count=9, max_age_seconds=LONG_SECONDS)
        assert await store.retention.excess(wide) == [
            MailboxExcess(mailbox=INBOX, stored=1, over=0, to_expire=0, to_delete=0)
        ]

    async def test_the_journal_names_what_was_removed(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """Whoever looks back must know since when a message is gone; what a reply keeps is not among it."""
        await fill(store, "1", "2", "3", "4", "5")
        await store.outbox.add((await store.messages.get("#2")).id, "done", author="me", consumer=AGENT)
        limits = Limits(max_count=1, max_age_seconds=LONG_SECONDS)
        while (await store.retention.prune(limits)) != RetentionReport(expired=0, deleted=0):
            clock.advance(1)
        assert [event.data for event in journal.of("pruned")] == [
            {"deleted": 3, "ranges": {INBOX: [(1, 1), (3, 4)]}},
        ]
