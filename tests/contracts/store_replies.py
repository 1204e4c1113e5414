"""The part of the store suite about replies and access: the outbox, decisions about senders, mutes."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from harken.errors import NotFound
from harken.model import INBOX, DeliveryState, MessageId, OutboxId, SenderRule, Trust
from harken.store.contract import Store
from harken.store.contract.outbox import CallKey, OutboxRow
from harken.store.contract.people import Mute
from harken.store.contract.retention import Limits
from harken.testing import FakeClock
from tests.contracts.store_suite import (
    AGENT,
    LEASE_SECONDS,
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
    place,
)


class ReplySuite(StoreSuite):
    """Replies, from the agent to the source."""

    @pytest.fixture(autouse=True)
    async def enrolled(self, store: Store, clock: FakeClock) -> None:
        """Let an agent read the inbox from its beginning, which has a question."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        await fill(store, "question")

    async def test_reply_waits_in_the_outbox_and_answers_the_delivery(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """A reply is accepted like a message: stored, due at once, and the ledger says answered."""
        question = await store.messages.get("#1")
        [given] = await offer(store, clock)
        clock.advance(5)
        row = await store.outbox.add(question.id, "done\0", author="claude", consumer=AGENT)
        assert row == OutboxRow(
            id=row.id,
            message=question,
            body="done\0",
            state="queued",
            attempts=0,
            created_at=clock.now(),
            due_at=clock.now(),
            author="claude",
        )
        assert await store.outbox.due(10) == [row]
        assert await store.outbox.list() == [row]
        [delivery] = [
            each for each in await store.deliveries.ledger(question.id) if each.state is not DeliveryState.QUEUED
        ]
        assert (delivery.id, delivery.state, delivery.answered_at) == (
            given.delivery_id,
            DeliveryState.ANSWERED,
            clock.now(),
        )
        assert (await place(store)).cursor == 1
        assert len(journal.of("answered")) == 1

    async def test_reply_to_a_message_that_was_never_offered_answers_it(self, store: Store, clock: FakeClock) -> None:
        """Whoever answers has read it, and must not be given it again."""
        await store.outbox.add((await store.messages.get("#1")).id, "done", author="claude", consumer=AGENT)
        assert (await store.deliveries.unread(READER)).count == 0
        assert await offer(store, clock) == []

    async def test_reply_to_an_unknown_message_is_not_found(self, store: Store) -> None:
        """A reply to nothing cannot leave, so it is not accepted."""
        with pytest.raises(NotFound):
            await store.outbox.add(MessageId("unknown"), "done", author="claude", consumer=AGENT)
        assert await store.outbox.list() == []

    async def test_request_sent_again_is_done_once(self, store: Store) -> None:
        """An edge repeats unanswered requests after a restart of the daemon; the person must get one reply."""
        question = (await store.messages.get("#1")).id
        rows = list[OutboxRow]()

        async def reply() -> None:
            call = CallKey(edge="e1", request="7")
            rows.append(await store.outbox.add(question, "done", author="claude", consumer=AGENT, call=call))

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(reply)
        last = await store.events.last()
        await reply()
        assert len(rows) == 11
        assert await store.outbox.list() == rows[:1]
        assert all(row == rows[0] for row in rows)
        assert await store.events.last() == last

    async def test_other_requests_are_done(self, store: Store) -> None:
        """A request is named by edge and number together, and one without a name is always new."""
        question = (await store.messages.get("#1")).id
        for call in (CallKey(edge="e", request="1"), CallKey(edge="e", request="2"), CallKey(edge="f", request="1")):
            await store.outbox.add(question, "done", author="claude", consumer=AGENT, call=call)
        for _ in range(2):
            await store.outbox.add(question, "done", author="claude", consumer=AGENT)
        assert len(await store.outbox.list()) == 5

    async def test_request_is_remembered_after_its_reply_has_left(self, store: Store) -> None:
        """The repetition may come late; it must see what became of the reply."""
        question, call = (await store.messages.get("#1")).id, CallKey(edge="e", request="1")
        row = await store.outbox.add(question, "done", author="claude", consumer=AGENT, call=call)
        await store.outbox.sent(row.id, "up-1")
        again = await store.outbox.add(question, "done", author="claude", consumer=AGENT, call=call)
        assert (again.id, again.state) == (row.id, "sent")
        assert await store.outbox.due(10) == []

    async def test_sent_reply_is_recorded_once(self, store: Store, journal: Journal) -> None:
        """Two senders may report the same success."""
        [row] = await self._replies(store, 1)
        for _ in range(2):
            await store.outbox.sent(row.id, "up-1")
        [sent] = await store.outbox.list(state="sent")
        assert (sent.id, sent.upstream_id, sent.error) == (row.id, "up-1", "")
        assert await store.outbox.due(10) == []
        assert await store.outbox.list(state="queued") == []
        assert len(journal.of("replied")) == 1

    async def test_ids_of_what_left_are_known_by_source(self, store: Store) -> None:
        """A source must know its own words after a restart: the newest ones, in the order in which they left."""
        await store.messages.append([replace(new_message("elsewhere"), source="other")])
        first, second, third, waiting = await self._replies(store, 4)
        for number, row in enumerate((first, second, third)):
            await store.outbox.sent(row.id, f"up-{number}")
        strange = await store.outbox.add((await store.messages.get("#2")).id, "done", author="claude", consumer=AGENT)
        await store.outbox.sent(strange.id, "up-other")
        source = waiting.message.source
        assert await store.outbox.sent_ids(source, 10) == ["up-0", "up-1", "up-2"]
        assert await store.outbox.sent_ids(source, 2) == ["up-1", "up-2"]
        assert await store.outbox.sent_ids("other", 10) == ["up-other"]
        [unseen] = await self._replies(store, 1)
        await store.outbox.sent(unseen.id, "")
        assert await store.outbox.sent_ids(source, 10) == ["up-0", "up-1", "up-2"]

    async def test_failed_reply_is_due_again_later(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """A source that is away for a minute must not cost a reply."""
        [row] = await self._replies(store, 1)
        await store.outbox.failed(row.id, "503", due_at=later(clock, 60))
        [waiting] = await store.outbox.list(state="queued")
        assert (waiting.attempts, waiting.error, waiting.due_at) == (1, "503", later(clock, 60))
        assert await store.outbox.due(10) == []
        clock.advance(61)
        assert await store.outbox.due(10) == [waiting]
        assert journal.of("parked") == []

    async def test_parked_reply_stays_visible(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """What keeps failing stops trying and waits for a person."""
        [row] = await self._replies(store, 1)
        await store.outbox.failed(row.id, "410 gone", due_at=None)
        clock.advance(1e6)
        assert await store.outbox.due(10) == []
        [parked] = await store.outbox.list(state="parked")
        assert (parked.id, parked.attempts, parked.error) == (row.id, 1, "410 gone")
        [event] = journal.of("parked")
        assert mentions(event, row.id)

    async def test_parked_reply_can_be_tried_again_by_hand(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """Whoever has put things right need not write the answer anew."""
        [row] = await self._replies(store, 1)
        await store.outbox.trying(row.id)
        await store.outbox.failed(row.id, "410 gone", due_at=None, is_uncertain=True)
        clock.advance(1e6)
        [again] = await store.outbox.retry([row.id])
        # What may have been sent must still be looked for, unless somebody has.
        assert (again.state, again.attempts, again.error, again.tried_at) == ("queued", 0, "", row.created_at)
        assert await store.outbox.due(10) == [again]
        assert [event.data for event in journal.of("retried")] == [{"reply": row.id, "is_unsent": False}]
        assert await store.outbox.retry([row.id]) == [again]
        await store.outbox.sent(row.id, "up-1")
        [sent] = await store.outbox.retry([row.id])
        assert (sent.state, len(journal.of("retried"))) == ("sent", 1)

    async def test_person_may_know_that_it_was_not_sent(self, store: Store) -> None:
        """Some services cannot be asked: only a person can look."""
        [row] = await self._replies(store, 1)
        await store.outbox.trying(row.id)
        await store.outbox.failed(row.id, "it may have been sent", due_at=None, is_uncertain=True)
        [again] = await store.outbox.retry([row.id], is_unsent=True)
        assert (again.state, again.tried_at) == ("queued", None)

    async def test_unknown_reply_cannot_be_tried_again(self, store: Store) -> None:
        """And those named beside it stay as they are."""
        [row] = await self._replies(store, 1)
        await store.outbox.failed(row.id, "410 gone", due_at=None)
        with pytest.raises(NotFound):
            await store.outbox.retry([row.id, OutboxId("r-unknown")])
        assert [each.state for each in await store.outbox.list()] == ["parked"]

    async def test_due_replies_come_oldest_first(self, store: Store, clock: FakeClock) -> None:
        """A conversation must not be answered in the wrong order."""
        first, second, third = await self._replies(store, 3)
        assert [row.id for row in await store.outbox.due(2)] == [first.id, second.id]
        await store.outbox.failed(first.id, "later", due_at=later(clock, 60))
        assert [row.id for row in await store.outbox.due(10)] == [second.id, third.id]

    async def test_due_replies_come_by_source(self, store: Store) -> None:
        """Each source sends by itself, and what belongs to none must not be forgotten."""
        await store.messages.append([replace(new_message("elsewhere"), source="mail")])
        [chat] = await self._replies(store, 1)
        mail = await store.outbox.add((await store.messages.get("#2")).id, "done", author="claude", consumer=AGENT)
        assert [row.id for row in await store.outbox.due(10, source="teams")] == [chat.id]
        assert [row.id for row in await store.outbox.due(10, source="mail")] == [mail.id]
        assert [row.id for row in await store.outbox.due(10, without=["teams", "bot"])] == [mail.id]
        assert [row.id for row in await store.outbox.due(1, without=["mail"])] == [chat.id]

    async def test_try_is_remembered_until_it_surely_failed(self, store: Store, clock: FakeClock) -> None:
        """Between the note and the answer of a service lies whatever a crash hides."""
        [row] = await self._replies(store, 1)
        began = clock.now()
        await store.outbox.trying(row.id)
        clock.advance(60)
        await store.outbox.failed(row.id, "no answer", due_at=clock.now(), is_uncertain=True)
        assert [each.tried_at for each in await store.outbox.due(10)] == [began]
        await store.outbox.trying(row.id)
        assert [each.tried_at for each in await store.outbox.due(10)] == [clock.now()]
        await store.outbox.failed(row.id, "too many requests", due_at=clock.now())
        assert [each.tried_at for each in await store.outbox.due(10)] == [None]

    async def test_outbox_shows_the_newest_two_hundred(self, store: Store) -> None:
        """The list is for people: bounded, and what just happened is in it."""
        rows = await self._replies(store, 201)
        shown = {row.id for row in await store.outbox.list()}
        assert shown == {row.id for row in rows[1:]}

    async def test_reply_that_has_not_left_is_kept(self, store: Store, clock: FakeClock) -> None:
        """Retention must cut off neither a reply that waits for its source nor one that waits for a person."""
        await fill(store, "another question")
        [waiting] = await self._replies(store, 1)
        parked = await store.outbox.add((await store.messages.get("#2")).id, "done", author="claude", consumer=AGENT)
        await store.outbox.failed(parked.id, "410 gone", due_at=None)
        await fill(store, "newest", mailbox=TASK)
        clock.advance(1e6)
        for _ in range(3):
            await store.retention.prune(Limits(max_count=100, max_age_seconds=1))
        assert waiting in await store.outbox.due(10)
        assert [row.id for row in await store.outbox.list(state="parked")] == [parked.id]

    async def test_late_failure_of_a_sent_reply_changes_nothing(self, store: Store, journal: Journal) -> None:
        """A time-out may be reported after the success; the reply must not leave twice, nor be called parked."""
        [row] = await self._replies(store, 1)
        await store.outbox.sent(row.id, "up-1")
        await store.outbox.failed(row.id, "timed out", due_at=None)
        assert [each.state for each in await store.outbox.list()] == ["sent"]
        assert journal.of("parked") == []

    async def test_proof_after_the_answer_changes_nothing(self, store: Store, clock: FakeClock) -> None:
        """Answered says more than seen."""
        [given] = await offer(store, clock)
        await store.outbox.add(given.message.id, "done", author="claude", consumer=AGENT)
        assert await store.deliveries.prove([given.delivery_id], "transcript") == []
        assert await store.deliveries.acknowledge(READER, [given.message.id], "ack") == []
        clock.advance(LEASE_SECONDS + 1)
        assert await offer(store, clock, SECOND) == []
        [delivery] = [
            each for each in await store.deliveries.ledger(given.message.id) if each.state is not DeliveryState.QUEUED
        ]
        assert delivery.state is DeliveryState.ANSWERED

    @staticmethod
    async def _replies(store: Store, count: int) -> list[OutboxRow]:
        question = (await store.messages.get("#1")).id
        return [await store.outbox.add(question, str(n), author="claude", consumer=AGENT) for n in range(count)]


class AccessSuite(StoreSuite):
    """What the person decided."""

    async def test_what_was_put_away_is_known_until_it_is_taken_back(self, store: Store, journal: Journal) -> None:
        """A list that shows again what somebody has put away is put away as a whole."""
        await store.people.put_away(["a", "b"], is_on=True)
        await store.people.put_away(["b"], is_on=True)
        await store.people.put_away(["a", "none"], is_on=False)
        assert await store.people.put_away_keys() == {"b"}
        assert [event.data["is_on"] for event in journal.of("put_away")] == [True, True, False]

    async def test_newest_decision_about_a_sender_counts(self, store: Store, journal: Journal) -> None:
        """A person may change their mind; one sender has one rule."""
        await store.people.set_sender(SenderRule("teams", "ann", Trust.UNKNOWN))
        await store.people.set_sender(SenderRule("teams", "*", Trust.KNOWN))
        await store.people.set_sender(SenderRule("mail", "ann", Trust.KNOWN))
        await store.people.set_sender(SenderRule("teams", "ann", Trust.OWNER))
        assert sorted(await store.people.senders(), key=lambda rule: (rule.source, rule.sender)) == [
            SenderRule("mail", "ann", Trust.KNOWN),
            SenderRule("teams", "*", Trust.KNOWN),
            SenderRule("teams", "ann", Trust.OWNER),
        ]
        assert len(journal.of("access")) == 4

    async def test_decision_about_a_sender_can_be_taken_back(self, store: Store, journal: Journal) -> None:
        """To undo a refusal is not to allow: the sender is again somebody about whom nothing was decided."""
        await store.people.set_sender(SenderRule("teams", "ann", Trust.UNKNOWN))
        await store.people.set_sender(SenderRule("mail", "ann", Trust.KNOWN))
        await store.people.forget_sender("teams", "ann")
        await store.people.forget_sender("teams", "ann")
        assert await store.people.senders() == [SenderRule("mail", "ann", Trust.KNOWN)]
        assert [event.data["trust"] for event in journal.of("access")] == ["unknown", "known", None]

    async def test_mute_holds_until_its_end(self, store: Store, clock: FakeClock) -> None:
        """A mute that nobody ends must end by itself."""
        ends, stays = Mute("session", "s1", later(clock, 60)), Mute("channel", "ci", None)
        for mute in (ends, stays):
            await store.people.set_mute(mute, is_on=True)
        assert sorted(await store.people.mutes(), key=lambda mute: mute.kind) == [stays, ends]
        clock.advance(61)
        assert await store.people.mutes() == [stays]

    async def test_mute_begins_and_ends_once(self, store: Store, journal: Journal) -> None:
        """Pressing the switch twice is the same as once, and one name does not speak for another."""
        mute, other = Mute("sender", "ann", None), Mute("channel", "ann", None)
        for each in (mute, mute, other):
            await store.people.set_mute(each, is_on=True)
        assert len(await store.people.mutes()) == 2
        for _ in range(2):
            await store.people.set_mute(mute, is_on=False)
        assert await store.people.mutes() == [other]
        assert {"muted", "unmuted"} <= set(journal.kinds())
