"""The part of the store suite about scheduled messages: in no mailbox before, in it once, withdrawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harken.errors import Forbidden, NotFound
from harken.model import (
    INBOX,
    SCHEDULE,
    WATCH,
    Mailbox,
    MessageId,
    NewMessage,
    Occasion,
    Schedule,
    ScheduledMessage,
    SessionKey,
    timestamp,
)
from harken.store.contract import Store
from harken.store.contract.messages import MAX_SCHEDULED
from harken.testing import FakeClock
from tests.contracts.store_suite import EVERYTHING, READER, TASK, Backend, Journal, StoreSuite, later, new_message

TURN = Schedule(occasion=Occasion.TURN, turns={SessionKey("claude-code:7"): "t1"})


def rich() -> NewMessage:
    """Return a message in which all fields that may be kept are set."""
    return replace(
        new_message("ship it ✓", key=b"\x00\xff"),
        channel="ci",
        conversation="c",
        author=WATCH,
        upstream_id="u-1",
        meta={"a": "b"},
    )


class ScheduleSuite(StoreSuite):
    """Messages that wait for their time."""

    async def test_nothing_tells_of_a_message_before_its_time(self, store: Store, clock: FakeClock) -> None:
        """Counts, lists, searches and offers would each be a way in which an agent hears of it too early."""
        await store.deliveries.enroll(READER.consumer, INBOX, clock.now())
        heard = set[Mailbox]()
        with store.changes.listen(heard.update):
            added = await store.schedule.add(new_message("later"), Schedule(due_at=later(clock, 60)))
        assert heard <= {SCHEDULE}
        assert (added.is_new, added.message.seq, added.message.text) == (True, 0, "later")
        assert (await store.deliveries.unread(READER)).count == 0
        assert await store.deliveries.peek(READER, 10) == []
        assert await store.messages.page(EVERYTHING, 10) == []
        await store.messages.index(10)
        assert await store.messages.search("later", EVERYTHING, 10) == []

    async def test_released_message_enters_its_mailbox_once_with_the_id_it_was_given(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """Its sender was told the id; and two daemons may find it due in the same moment."""
        added = await store.schedule.add(rich(), Schedule(due_at=later(clock, 60)))
        await store.messages.append([new_message("meanwhile")])
        clock.advance(60)
        [released] = await store.schedule.release([added.message.id])
        assert released == replace(added.message, seq=2, received_at=clock.now())
        assert await store.messages.get(added.message.id) == released
        assert await store.schedule.release([added.message.id]) == []
        assert await store.schedule.list() == []
        with pytest.raises(NotFound):
            await store.schedule.get(added.message.id)
        assert [event.message.text for event in journal.of("received") if event.message] == ["meanwhile", "ship it ✓"]
        # Its author has it, as with any other.
        [entry] = await store.deliveries.ledger(released.id)
        assert (entry.consumer, entry.evidence) == (WATCH, "own")

    async def test_same_upstream_id_is_accepted_once_before_and_after(self, store: Store, clock: FakeClock) -> None:
        """A client that asks again after a broken connection must not have it said twice."""
        first = await store.schedule.add(rich(), Schedule(due_at=later(clock, 60)))
        again = await store.schedule.add(rich(), Schedule(due_at=later(clock, 90)))
        assert (again.is_new, again.message) == (False, first.message)
        [plain] = await store.messages.append([rich()])
        assert (plain.is_new, plain.message.id) == (False, first.message.id)
        [released] = await store.schedule.release([first.message.id])
        known = await store.schedule.add(rich(), TURN)
        assert (known.is_new, known.message) == (False, released)

    async def test_waiting_ones_are_listed_in_the_order_in_which_they_are_due(
        self, store: Store, clock: FakeClock
    ) -> None:
        """What has no time comes last: it is not known when its occasion is."""
        times = {"c": None, "b": later(clock, 90), "a": later(clock, 60)}
        for text, due_at in times.items():
            schedule = TURN if due_at is None else Schedule(due_at=due_at)
            await store.schedule.add(new_message(text, mailbox=TASK if text == "b" else INBOX), schedule)
        found = await store.schedule.list()
        assert [each.message.text for each in found] == ["a", "b", "c"]
        assert found[2] == ScheduledMessage(message=found[2].message, schedule=TURN)
        assert [each.message.text for each in await store.schedule.list(TASK)] == ["b"]
        assert [each.message.text for each in await store.schedule.list(limit=1)] == ["a"]
        assert [m.text for m in await store.schedule.release([each.message.id for each in found])] == ["a", "b", "c"]

    async def test_withdrawn_message_never_enters_and_says_who_withdrew_it(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """What was accepted may not vanish without a trace."""
        added = await store.schedule.add(new_message("no"), TURN)
        withdrawn = await store.schedule.withdraw(added.message.id, "owner")
        assert (withdrawn.withdrawn_by, withdrawn.withdrawn_at) == ("owner", clock.now())
        assert await store.schedule.withdraw(added.message.id, "other") == withdrawn
        assert await store.schedule.get(added.message.id[:8]) == withdrawn
        assert await store.schedule.list() == []
        assert await store.schedule.release([added.message.id]) == []
        assert [event.data["change"] for event in journal.of("scheduled")] == ["accepted", "withdrawn"]
        with pytest.raises(NotFound):
            await store.schedule.withdraw(MessageId("m-none"), "owner")

    async def test_journal_says_when_and_whose_but_shows_no_text(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """The text is in the part of the line that is for a recovery alone."""
        due_at = later(clock, 60)
        added = await store.schedule.add(new_message("secret plan"), Schedule(due_at=due_at))
        [event] = journal.of("scheduled")
        shown = {name: value for name, value in event.data.items() if name != "recovery"}
        assert shown == {
            "message_id": added.message.id,
            "change": "accepted",
            "mailbox": "inbox",
            "by": added.message.sender.id,
            "due_at": timestamp(due_at),
            "occasion": "time",
        }

    async def test_no_more_than_a_bound_wait(self, store: Store) -> None:
        """An agent in a loop must not fill the store with what is still to come."""
        added = [await store.schedule.add(new_message(f"{n}"), TURN) for n in range(MAX_SCHEDULED)]
        with pytest.raises(Forbidden):
            await store.schedule.add(new_message("one more"), TURN)
        await store.schedule.withdraw(added[0].message.id, "owner")
        await store.schedule.add(new_message("one more"), TURN)

    async def test_scheduled_message_survives_a_restart(
        self, backend: Backend, tmp_path: Path, clock: FakeClock, journal: Journal
    ) -> None:
        """It was accepted: it is delivered late rather than never."""
        folder = tmp_path / "again"
        folder.mkdir()
        async with backend(folder, clock, journal) as store:
            added = await store.schedule.add(rich(), TURN)
            before = await store.schedule.get(added.message.id)
        clock.advance(86_400)
        async with backend(folder, clock, journal) as store:
            assert await store.schedule.list() == [before]
            [released] = await store.schedule.release([added.message.id])
            assert released.received_at == clock.now()
