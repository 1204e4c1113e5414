"""From a question that nobody answers to the phone, over a real store, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from harken.dispatch.escalation import TRY_AGAIN, Escalation, LadderStep, ReminderLadder, ReminderWay, Tell
from harken.errors import Unavailable
from harken.model import INBOX, MessageId
from harken.store.contract import Store
from harken.store.contract.events import Event
from harken.store.contract.questions import Question
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.contracts.questions import ask, asked
from tests.contracts.store_suite import AGENT, READER, Journal, new_message

MINUTE = timedelta(minutes=1)
LADDER = ReminderLadder(
    rungs=(
        LadderStep(ReminderWay.AGENT, 15 * MINUTE),
        LadderStep(ReminderWay.TOAST, 30 * MINUTE),
        LadderStep(ReminderWay.PHONE, 120 * MINUTE),
    )
)


@dataclass
class EscalationFixture:
    """A store with questions, and who was told of them."""

    store: Store
    clock: FakeClock
    journal: Journal
    told: list[tuple[ReminderWay, list[str]]] = field(default_factory=list)
    deaf: set[ReminderWay] = field(default_factory=set)
    broken: set[ReminderWay] = field(default_factory=set)
    settles: list[MessageId] = field(default_factory=list)

    def escalation(self) -> Escalation:
        """Return the loop, as after a start of the daemon."""
        return Escalation(self.store.questions, self.clock, LADDER, {way: self._telling(way) for way in ReminderWay})

    def _telling(self, way: ReminderWay) -> Tell:
        async def tell(questions: Sequence[Question]) -> bool:
            if way in self.broken:
                raise Unavailable("The service is away.", "Wait.")
            self.told.append((way, [question.message.text for question in questions]))
            await self.store.questions.settle(self.settles, "you")
            return way not in self.deaf

        return tell

    async def after(self, minutes: int, loop: Escalation | None = None) -> list[tuple[ReminderWay, list[str]]]:
        """Let time pass minute by minute, with a look at each; return who was told meanwhile."""
        loop = loop or self.escalation()
        before = len(self.told)
        await loop.look()
        for _ in range(minutes):
            self.clock.advance(60)
            await loop.look()
        return self.told[before:]

    async def have_seen(self, message: MessageId) -> None:
        """Let an agent have seen a message."""
        await self.store.deliveries.enroll(AGENT, INBOX, self.clock.now())
        await self.store.deliveries.acknowledge(READER, [message], "ack")

    def escalated(self) -> list[Event]:
        """Return what the journal says."""
        return [event for event in self.journal.events if event.kind in {"reminded", "escalated"}]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[EscalationFixture]:
    """An empty store."""
    clock, journal = FakeClock(), Journal()
    async with open_store(tmp_path / "harken.db", clock, after_commit=journal) as store:
        yield EscalationFixture(store, clock, journal)


async def test_answer_that_cannot_be_sent_does_not_end_it(rig: EscalationFixture) -> None:
    """Whoever asked has heard nothing."""
    [message] = await ask(rig.store, asked("how?"))
    row = await rig.store.outbox.add(message, "so", author="claude", consumer=AGENT)
    await rig.after(40)
    await rig.store.outbox.failed(row.id, "refused", due_at=None)
    assert (ReminderWay.TOAST, ["how?"]) in await rig.after(20)


async def test_person_who_answers_upstream_ends_it(rig: EscalationFixture) -> None:
    """Many answer where they were asked."""
    await ask(rig.store, asked("how?", "chat"))
    await rig.after(20)
    await rig.store.messages.append([replace(new_message("so"), conversation="chat", is_answer=True)])
    assert await rig.after(300) == []


async def test_questions_that_are_due_together_are_told_together(rig: EscalationFixture) -> None:
    """A burst is one toast, with the oldest first."""
    await ask(rig.store, asked("one"), asked("two"), asked("three"))
    assert await rig.after(31) == [(ReminderWay.TOAST, ["one", "two", "three"])]


async def test_restart_repeats_nothing(rig: EscalationFixture) -> None:
    """How far each question got is stored."""
    await ask(rig.store, asked("how?"))
    assert await rig.after(31) == [(ReminderWay.TOAST, ["how?"])]
    for _ in range(3):
        assert await rig.after(5, rig.escalation()) == []


async def test_phone_that_cannot_be_reached_is_tried_again(rig: EscalationFixture) -> None:
    """It is the last step: giving up silently would be losing the question."""
    await ask(rig.store, asked("how?"))
    rig.broken.add(ReminderWay.PHONE)
    assert await rig.after(125) == [(ReminderWay.TOAST, ["how?"])]
    rig.broken.clear()
    rig.deaf.add(ReminderWay.PHONE)
    tries = await rig.after(11)
    assert tries == [(ReminderWay.PHONE, ["how?"])] * len(tries)
    assert 2 <= len(tries) <= 1 + timedelta(minutes=11) // TRY_AGAIN
    rig.deaf.clear()
    assert await rig.after(6) == [(ReminderWay.PHONE, ["how?"])]
    assert await rig.after(60) == []


async def test_desktop_that_shows_nothing_is_passed_over(rig: EscalationFixture) -> None:
    """A server has no desktop; the phone comes at its time, and the journal claims no toast."""
    await ask(rig.store, asked("how?"))
    rig.deaf.add(ReminderWay.TOAST)
    assert await rig.after(121) == [(ReminderWay.TOAST, ["how?"]), (ReminderWay.PHONE, ["how?"])]
    assert [event.data["how"] for event in rig.escalated()] == ["phone"]


async def test_clock_that_was_ahead_silences_nothing(rig: EscalationFixture) -> None:
    """What was put off until next year is looked at again when the clock is right."""
    await ask(rig.store, asked("how?"))
    loop = rig.escalation()
    rig.clock.advance(365 * 86_400)
    await loop.look()
    rig.clock.set_back(365 * 86_400)
    assert [way for way, _ in await rig.after(125, loop)] == [ReminderWay.PHONE]


async def test_restart_after_a_late_step_keeps_the_pause(rig: EscalationFixture) -> None:
    """A laptop that is opened after five hours shows a toast; that it starts anew a minute later rings no phone."""
    await ask(rig.store, asked("how?"))
    rig.clock.advance(5 * 3600)
    assert await rig.after(0) == [(ReminderWay.TOAST, ["how?"])]
    rig.clock.advance(60)
    assert await rig.after(0, rig.escalation()) == []
    rig.clock.set_back(1)
    assert await rig.after(80) == []
    assert await rig.after(10) == [(ReminderWay.PHONE, ["how?"])]


async def test_what_is_answered_while_others_are_told_is_not_told(rig: EscalationFixture) -> None:
    """A toast and a call take their time."""
    first, second = await ask(rig.store, asked("phone"), asked("toast"))
    loop = rig.escalation()
    await rig.store.questions.move([first], due_at=rig.clock.now(), way="toast")
    rig.clock.advance(121 * 60)
    rig.settles = [second]
    await loop.look()
    assert rig.told == [(ReminderWay.PHONE, ["phone"])]
