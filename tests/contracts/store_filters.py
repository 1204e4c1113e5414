"""The part of the store suite about filters: what a surface may carry, whose a lease is, who hears of mail in advance.

It knows `OfferFilter`, `transfer`, `surfaces` and `BeforeCommit` of the contract; what hooks, bells and wakes make of
them is tested beside those.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from harken.model import (
    INBOX,
    Attention,
    DeliveryId,
    DeliveryState,
    Mailbox,
    MessageId,
    NewMessage,
    Offer,
    Priority,
    Reader,
    Sender,
    SessionKey,
    Trust,
)
from harken.store.contract import Store
from harken.store.contract.deliveries import MuteFilter, OfferFilter, OpenOffer, SurfaceRecord
from harken.testing import FakeClock
from tests.contracts.store_deliveries import DeliverySuite
from tests.contracts.store_suite import (
    AGENT,
    EVERYTHING,
    LONG_SECONDS,
    OTHER,
    OTHER_READER,
    READER,
    SECOND,
    TASK,
    Backend,
    Journal,
    StoreSuite,
    fill,
    later,
    new_message,
    offer,
    offered_texts,
    place,
    texts,
)

EVERY_ATTENTION = frozenset(Attention)


def letter(
    text: str,
    *,
    attention: Attention = Attention.WAKE,
    trust: Trust = Trust.KNOWN,
    sender: Sender | None = None,
    channel: str = "",
    priority: Priority = Priority.NORMAL,
) -> NewMessage:
    """Return a message whose attention and trust matter."""
    plain = new_message(text, channel=channel, priority=priority)
    return replace(plain, attention=attention, trust=trust, sender=sender or plain.sender)


async def hand_out(
    store: Store,
    clock: FakeClock,
    where: OfferFilter,
    *,
    reader: Reader = READER,
    limit: int = 100,
    surface: str = "hook: tool",
    carrier: str = "c-1",
) -> list[Offer]:
    """Offer within a filter; what would be offered is looked at first and must be the same."""
    shown = await store.deliveries.peek(reader, limit, where=where)
    given = await store.deliveries.offer(
        reader, limit, surface=surface, carrier=carrier, lease_until=later(clock, 900), where=where
    )
    assert sorted(message.text for message in shown) == sorted(offered_texts(given.whole))
    return list(given.whole)


class OfferFilterSuite(DeliverySuite):
    """What may go through a surface."""

    @pytest.mark.parametrize("wanted", [{each} for each in Attention] + [{Attention.WAKE, Attention.BOUNDARY}])
    async def test_only_the_asked_attentions_are_given(
        self, store: Store, clock: FakeClock, wanted: set[Attention]
    ) -> None:
        """A surface that interrupts must not be handed what may only wait for a prompt; all four were waiting."""
        await store.messages.append([letter(each.value, attention=each) for each in Attention])
        given = await hand_out(store, clock, OfferFilter(attentions=frozenset(wanted)))
        assert offered_texts(given) == [each.value for each in Attention if each in wanted]

    async def test_what_is_only_counted_needs_to_be_asked_for(self, store: Store, clock: FakeClock) -> None:
        """An unknown sender must not get in by a surface that forgot to name its attentions."""
        await store.messages.append([letter(each.value, attention=each) for each in Attention])
        assert offered_texts(await hand_out(store, clock, OfferFilter())) == ["wake", "boundary", "prompt"]

    async def test_without_a_reach_everything_is_given(self, store: Store, clock: FakeClock) -> None:
        """Whoever pulls by hand sees all mail, also what pushes nowhere."""
        await store.messages.append([letter(each.value, attention=each) for each in Attention])
        assert len(await store.deliveries.peek(READER, 10)) == 4
        assert len(await offer(store, clock)) == 4

    async def test_only_the_asked_trusts_are_given(self, store: Store, clock: FakeClock) -> None:
        """Where a text speaks with the user's voice, no other's words may be in it."""
        await store.messages.append([letter(each.value, trust=each) for each in Trust])
        given = await hand_out(store, clock, OfferFilter(attentions=EVERY_ATTENTION, trusts=frozenset({Trust.OWNER})))
        assert offered_texts(given) == ["owner"]

    async def test_hushed_channels_and_senders_are_left_out(self, store: Store, clock: FakeClock) -> None:
        """A mute names a channel, or a sender by id or by name: each of the three must hold."""
        await store.messages.append(
            [
                letter("noisy channel", channel="ci"),
                letter("muted id", sender=Sender("bob", "Robert")),
                letter("muted name", sender=Sender("b-2", "Loud Bob")),
                letter("heard", channel="teams", sender=Sender("ann", "Ann")),
            ]
        )
        mutes = MuteFilter(channels=frozenset({"ci"}), senders=frozenset({"bob", "Loud Bob"}))
        assert offered_texts(await hand_out(store, clock, OfferFilter(mutes=mutes))) == ["heard"]
        assert (await store.deliveries.unread(READER)).count == 4

    async def test_total_hush_gives_nothing(self, store: Store, clock: FakeClock) -> None:
        """A muted session is told nothing, whatever waits; nothing is lost by that."""
        await store.messages.append([letter("one", trust=Trust.OWNER, priority=Priority.HIGH)])
        assert (
            await hand_out(store, clock, OfferFilter(attentions=EVERY_ATTENTION, mutes=MuteFilter(is_total=True))) == []
        )
        assert offered_texts(await offer(store, clock)) == ["one"]

    async def test_only_names_what_may_be_given(self, store: Store, clock: FakeClock) -> None:
        """What was chosen to fit is offered, not whatever else came meanwhile."""
        await fill(store, "one", "two", "three")
        chosen = (await store.messages.get("#2")).id
        given = await hand_out(store, clock, OfferFilter(only=frozenset({chosen})))
        assert offered_texts(given) == ["two"]
        assert offered_texts(await offer(store, clock, SECOND)) == ["one", "three"]

    async def test_only_nothing_gives_nothing(self, store: Store, clock: FakeClock) -> None:
        """An empty choice is a choice; it must not turn into everything."""
        await fill(store, "one")
        assert await hand_out(store, clock, OfferFilter(only=frozenset())) == []

    async def test_only_does_not_open_what_is_taken_or_final(self, store: Store, clock: FakeClock) -> None:
        """Naming a message is no key to it: another session has it, or it is dealt with."""
        await fill(store, "theirs", "seen", "free")
        everything = frozenset(message.id for message in await store.messages.page(EVERYTHING, 10))
        theirs = (await store.messages.get("#1")).id
        await hand_out(store, clock, OfferFilter(only=frozenset({theirs})), reader=SECOND)
        await store.deliveries.acknowledge(READER, [(await store.messages.get("#2")).id], "ack")
        assert offered_texts(await hand_out(store, clock, OfferFilter(only=everything))) == ["free"]

    async def test_only_of_strangers_is_ignored(self, store: Store, clock: FakeClock) -> None:
        """Ids that mean nothing, or mail of a mailbox that the reader does not read, are no error."""
        await fill(store, "elsewhere", mailbox=TASK)
        elsewhere = (await store.messages.get("task:a#1")).id
        where = OfferFilter(only=frozenset({elsewhere, MessageId("m-none"), MessageId("' OR 1=1 --")}))
        assert await hand_out(store, clock, where) == []

    async def test_urgent_mail_goes_first_within_a_reach(self, store: Store, clock: FakeClock) -> None:
        """A surface that has room for one must be given the urgent one, though it came last."""
        await store.messages.append(
            [
                letter("first"),
                letter("urgent noise", attention=Attention.PROMPT, priority=Priority.HIGH),
                letter("urgent", attention=Attention.BOUNDARY, priority=Priority.HIGH),
            ]
        )
        pushing = OfferFilter(attentions=frozenset({Attention.WAKE, Attention.BOUNDARY}))
        assert offered_texts(await hand_out(store, clock, pushing, limit=1)) == ["urgent"]
        assert offered_texts(await hand_out(store, clock, pushing)) == ["first"]

    async def test_what_a_reach_left_out_stays_unread_behind_the_cursor(self, store: Store, clock: FakeClock) -> None:
        """The cursor may not step over mail that one surface could not carry."""
        await store.messages.append([letter("noise", attention=Attention.PROMPT), letter("ask")])
        (given,) = await hand_out(store, clock, OfferFilter(attentions=frozenset({Attention.WAKE})))
        await store.deliveries.prove([given.delivery_id], "later step")
        assert (await place(store)).unread == 1
        assert offered_texts(await offer(store, clock)) == ["noise"]


class TransferSuite(DeliverySuite):
    """A session whose own name is known only later."""

    async def test_open_offers_change_hands(self, store: Store, clock: FakeClock) -> None:
        """Under the new name a session must find what it was given, prove it, and let go of it."""
        await fill(store, "one", "two")
        first, second = await offer(store, clock, READER, carrier="hook: tool/c-1")
        assert await store.deliveries.transfer(READER.session, SessionKey("codex:t1")) == 2
        assert await store.deliveries.open_offers(READER.session) == []
        assert sorted(
            await store.deliveries.open_offers(SessionKey("codex:t1")), key=lambda each: each.delivery_id
        ) == sorted(
            [OpenOffer(delivery_id=each.delivery_id, carrier="hook: tool/c-1") for each in (first, second)],
            key=lambda each: each.delivery_id,
        )
        await store.deliveries.prove([first.delivery_id], "later step")
        assert await store.deliveries.release(SessionKey("codex:t1")) == 1
        again = await offer(store, clock, SECOND)
        assert [(each.message.text, each.is_repeat) for each in again] == [("two", True)]

    async def test_the_lease_is_not_prolonged_or_ended_by_it(self, store: Store, clock: FakeClock) -> None:
        """A new name is no proof and no loss: the message stays leased exactly as long as before."""
        await fill(store, "one")
        await offer(store, clock, READER, lease_seconds=900)
        clock.advance(899)
        await store.deliveries.transfer(READER.session, SECOND.session)
        assert await offer(store, clock, OTHER_READER) != []
        assert await offer(store, clock, SECOND) == []
        clock.advance(2)
        assert [each.is_repeat for each in await offer(store, clock, SECOND)] == [True]

    async def test_what_is_final_stays_with_whom_it_was(self, store: Store, clock: FakeClock) -> None:
        """The ledger says who saw a message; a later rename must not rewrite that."""
        await fill(store, "one")
        (given,) = await offer(store, clock, READER)
        await store.deliveries.prove([given.delivery_id], "later call")
        assert await store.deliveries.transfer(READER.session, SessionKey("codex:t1")) == 0
        assert [each.session for each in await store.deliveries.ledger(given.message.id)] == [READER.session]

    async def test_gone_sessions_are_those_under_the_new_name(self, store: Store, clock: FakeClock) -> None:
        """The chore that frees leases of gone sessions must know the session by its new name only."""
        await fill(store, "one")
        await offer(store, clock, READER)
        await store.deliveries.transfer(READER.session, SessionKey("codex:t1"))
        assert await store.deliveries.release_except([SessionKey("codex:t1")]) == 0
        assert await store.deliveries.release_except([READER.session]) == 1

    async def test_result_is_of_the_session_that_had_it(self, store: Store, clock: FakeClock) -> None:
        """Where conversations share a connection, a host tells later whose a result was: it is let go with that one."""
        await fill(store, "one", "two")
        first, second = await offer(store, clock, READER, carrier="e-1/5")
        mine = [first.delivery_id, DeliveryId("d-nobody")]
        given = await store.deliveries.reassign(
            mine, consumer=READER.consumer, session=SECOND.session, carrier="result/c-1"
        )
        assert given == [first.delivery_id]
        assert await store.deliveries.open_offers(READER.session) == [
            OpenOffer(delivery_id=second.delivery_id, carrier="e-1/5"),
        ]
        assert await store.deliveries.release(SECOND.session, ["result/c-1"]) == 1
        again = await offer(store, clock, SECOND)
        assert [(each.message.text, each.is_repeat) for each in again] == [("one", True)]

    async def test_nobody_takes_what_another_consumer_was_given(self, store: Store, clock: FakeClock) -> None:
        """What a host says it had may be anybody's: the lease of another reader must stay with whom it is."""
        await fill(store, "one")
        (given,) = await offer(store, clock, READER)
        named, other = [given.delivery_id], OTHER_READER
        assert (
            await store.deliveries.reassign(named, consumer=other.consumer, session=other.session, carrier="result/x")
            == []
        )
        await store.deliveries.prove(named, "later call")
        assert (
            await store.deliveries.reassign(named, consumer=READER.consumer, session=SECOND.session, carrier="result/x")
            == []
        )
        assert [each.session for each in await store.deliveries.ledger(given.message.id)] == [READER.session]

    async def test_unknown_session_has_nothing_to_transfer(self, store: Store, clock: FakeClock) -> None:
        """It is called whenever a name changes, also when nothing was ever offered."""
        await fill(store, "one")
        await offer(store, clock, SECOND)
        assert await store.deliveries.transfer(SessionKey("nobody"), SessionKey("codex:t1")) == 0
        assert len(await store.deliveries.open_offers(SECOND.session)) == 1


class SurfaceSuite(DeliverySuite):
    """What the ledger says about the surfaces themselves."""

    async def test_each_surface_of_each_consumer_has_its_record(self, store: Store, clock: FakeClock) -> None:
        """`doctor` says which surface works by what arrived through it, and by nothing else."""
        await fill(store, "1", "2", "3")
        start = clock.now()
        first, second, _third = await hand_out(store, clock, OfferFilter(), surface="hook: tool")
        shown_at = clock.advance(10)
        await store.deliveries.prove([first.delivery_id], "later step")
        seen_at = clock.advance(10)
        await store.deliveries.prove([second.delivery_id], "end of turn")
        await hand_out(store, clock, OfferFilter(), reader=OTHER_READER, limit=1, surface="wake: extension")
        assert shown_at < seen_at
        assert await store.deliveries.surfaces(start) == [
            SurfaceRecord(
                consumer=AGENT,
                surface="hook: tool",
                offered=3,
                seen=2,
                last_offered_at=start,
                last_seen_at=seen_at,
                evidence="end of turn",
            ),
            SurfaceRecord(
                consumer=OTHER,
                surface="wake: extension",
                offered=1,
                seen=0,
                last_offered_at=seen_at,
                last_seen_at=None,
                evidence="",
            ),
        ]

    async def test_what_is_older_does_not_count(self, store: Store, clock: FakeClock) -> None:
        """A surface that worked a year ago is not known to work now."""
        await fill(store, "old")
        (old,) = await hand_out(store, clock, OfferFilter(), surface="hook: tool")
        await store.deliveries.prove([old.delivery_id], "later step")
        clock.advance(100)
        assert await store.deliveries.surfaces(clock.now()) == []
        assert len(await store.deliveries.surfaces(later(clock, -100))) == 1

    async def test_a_repeat_counts_for_the_surface_that_gave_it_last(self, store: Store, clock: FakeClock) -> None:
        """Proof after a repeat is evidence for the way that it came by then."""
        await fill(store, "one")
        await hand_out(store, clock, OfferFilter(), surface="claude channel", carrier="c-1")
        await store.deliveries.release(READER.session, ["c-1"])
        (again,) = await hand_out(store, clock, OfferFilter(), surface="hook: prompt", carrier="c-2")
        await store.deliveries.prove([again.delivery_id], "later step")
        records = await store.deliveries.surfaces(later(clock, -1))
        assert [(each.surface, each.offered, each.seen) for each in records] == [("hook: prompt", 1, 1)]

    async def test_an_answered_message_counts_as_seen(self, store: Store, clock: FakeClock) -> None:
        """Whoever answers has read it: the surface worked, though no hook ever proved it."""
        await fill(store, "one")
        (given,) = await hand_out(store, clock, OfferFilter(), surface="hook: prompt")
        await store.outbox.add(given.message.id, "yes", author="agent", consumer=AGENT)
        (record,) = await store.deliveries.surfaces(later(clock, -1))
        assert (record.surface, record.offered, record.seen, record.evidence) == ("hook: prompt", 1, 1, "reply")

    async def test_an_acknowledgement_without_an_offer_is_evidence_for_no_surface(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Marking a message as read by hand says nothing about any way to the model."""
        await fill(store, "one")
        await store.deliveries.acknowledge(READER, [(await store.messages.get("#1")).id], "ack")
        assert await store.deliveries.surfaces(later(clock, -1)) == []

    async def test_a_withdrawn_offer_is_no_evidence(self, store: Store, clock: FakeClock) -> None:
        """What was never handed over cannot count against the surface."""
        await fill(store, "one")
        await hand_out(store, clock, OfferFilter(), carrier="c-1")
        await store.deliveries.withdraw(READER.session, "c-1")
        assert await store.deliveries.surfaces(later(clock, -1)) == []


class Town:
    """Hears every announcement, and notes how much was committed by then."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.heard: list[tuple[frozenset[Mailbox], int]] = []

    def __call__(self, grown: Collection[Mailbox]) -> None:
        """Note who is told what."""
        self.heard.append((frozenset(grown), len(self._journal.of("received"))))


def _broken(_grown: Collection[Mailbox]) -> None:
    raise OSError("no space for a bell")


class BeforeCommitSuite(StoreSuite):
    """Who hears of mail before it is there."""

    @pytest.fixture
    def town(self, journal: Journal) -> Town:
        """What the store calls before each commit."""
        return Town(journal)

    @pytest.fixture
    def opened(
        self, backend: Backend, tmp_path: Path, clock: FakeClock, journal: Journal, town: Town
    ) -> AbstractAsyncContextManager[Store]:
        """A store that calls it."""
        return backend(tmp_path / "heard", clock, journal, town)

    async def test_the_mailboxes_are_announced_before_the_commit(
        self, opened: AbstractAsyncContextManager[Store], town: Town, journal: Journal
    ) -> None:
        """A bell that is rung after the commit is missing when the daemon dies between the two."""
        async with opened as store:
            await store.messages.append([new_message("one"), new_message("two", mailbox=TASK)])
            await fill(store, "three")
            # The journal hears after each commit: had `before_commit` come later, it would have seen more.
            assert town.heard == [(frozenset({INBOX, TASK}), 0), (frozenset({INBOX}), 2)]
            assert len(journal.of("received")) == 3

    async def test_what_is_known_already_is_not_announced(
        self, opened: AbstractAsyncContextManager[Store], town: Town
    ) -> None:
        """A source that repeats itself must not ring for nothing."""
        async with opened as store:
            await store.messages.append([new_message("one", key=b"k")])
            town.heard.clear()
            await store.messages.append([new_message("one", key=b"k")])
            assert town.heard == []

    async def test_what_may_be_offered_again_is_announced(
        self, opened: AbstractAsyncContextManager[Store], town: Town, clock: FakeClock
    ) -> None:
        """A released message waits as a new one does: whoever is busy must be able to hear of it."""
        async with opened as store:
            await store.deliveries.enroll(AGENT, INBOX, clock.now())
            await fill(store, "one")
            await offer(store, clock, READER)
            town.heard.clear()
            await store.deliveries.release(READER.session)
            assert [grown for grown, _ in town.heard] == [frozenset({INBOX})]

    async def test_reading_and_proving_announce_nothing(
        self, opened: AbstractAsyncContextManager[Store], town: Town, clock: FakeClock
    ) -> None:
        """Every tool call would ring otherwise, and every ring costs a question."""
        async with opened as store:
            await store.deliveries.enroll(AGENT, INBOX, clock.now())
            await fill(store, "one")
            town.heard.clear()
            (given,) = await offer(store, clock, READER)
            await store.deliveries.prove([given.delivery_id, DeliveryId("d-none")], "later step")
            assert town.heard == []

    async def test_a_herald_that_raises_costs_no_message(
        self, backend: Backend, tmp_path: Path, clock: FakeClock, journal: Journal
    ) -> None:
        """A disk that is full for bells is no reason to refuse mail, now or for the next writer."""
        async with backend(tmp_path / "broken", clock, journal, _broken) as store:
            await store.deliveries.enroll(AGENT, INBOX, clock.now())
            (first,) = await store.messages.append([new_message("one")])
            await fill(store, "two")
            assert first.is_new
            assert await texts(store) == ["one", "two"]
            assert offered_texts(await offer(store, clock, READER, lease_seconds=LONG_SECONDS)) == ["one", "two"]
            assert [each.state for each in await store.deliveries.ledger(first.message.id)] == [DeliveryState.OFFERED]
