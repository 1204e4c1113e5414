"""The ladder decides by the question, the steps and the time alone."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.automation import QuietHours
from harken.dispatch.escalation import (
    NEVER,
    SENDING,
    LadderStep,
    NextReminder,
    ReminderLadder,
    ReminderWay,
    climbing,
    next_move,
)
from harken.store.contract.questions import Question
from tests.builders import a_message

ASKED = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RUNGS = climbing(
    (
        LadderStep(ReminderWay.AGENT, 15 * MINUTE),
        LadderStep(ReminderWay.TOAST, 30 * MINUTE),
        LadderStep(ReminderWay.PHONE, 120 * MINUTE),
    )
)
LADDER = ReminderLadder(rungs=RUNGS)
NIGHT = ReminderLadder(rungs=RUNGS, quiet=QuietHours(time(22), time(7)), local=UTC)


def question(*tried: ReminderWay, is_seen: bool = True, has_reply: bool = False, asked: datetime = ASKED) -> Question:
    """Return a question that was asked at noon."""
    message = a_message("how?", received_at=asked)
    return Question(message=message, tried=frozenset(tried), due_at=asked, is_seen=is_seen, has_reply=has_reply)


@pytest.mark.parametrize(
    ("tried", "minutes", "expected"),
    [
        ((), 0, NextReminder(way=None, due_at=ASKED + 15 * MINUTE)),
        ((), 15, NextReminder(way=ReminderWay.AGENT, due_at=ASKED + 30 * MINUTE)),
        ((ReminderWay.AGENT,), 29, NextReminder(way=None, due_at=ASKED + 30 * MINUTE)),
        ((ReminderWay.AGENT,), 30, NextReminder(way=ReminderWay.TOAST, due_at=ASKED + 120 * MINUTE)),
        ((ReminderWay.AGENT, ReminderWay.TOAST), 120, NextReminder(way=ReminderWay.PHONE, due_at=NEVER)),
        ((ReminderWay.AGENT, ReminderWay.TOAST, ReminderWay.PHONE), 900, NextReminder(way=None, due_at=NEVER)),
    ],
)
def test_each_step_comes_at_its_time(tried: tuple[ReminderWay, ...], minutes: int, expected: NextReminder) -> None:
    """First whoever works on it, then whoever is at the desk, then whoever is not."""
    assert next_move(question(*tried), LADDER, ASKED + minutes * MINUTE) == expected


def test_agent_that_was_never_given_it_is_not_reminded() -> None:
    """There is nobody to remind; the person is told at the usual time."""
    unseen = question(is_seen=False)
    assert next_move(unseen, LADDER, ASKED + 15 * MINUTE) == NextReminder(way=None, due_at=ASKED + 30 * MINUTE)
    assert next_move(unseen, LADDER, ASKED + 30 * MINUTE).way is ReminderWay.TOAST


def test_way_that_is_configured_later_is_gone_and_no_other_again() -> None:
    """Settings change while things wait."""
    toast_only = ReminderLadder(rungs=(LadderStep(ReminderWay.TOAST, 30 * MINUTE),))
    assert next_move(question(ReminderWay.TOAST), toast_only, ASKED + 500 * MINUTE).way is None
    assert next_move(question(ReminderWay.TOAST), LADDER, ASKED + 500 * MINUTE).way is ReminderWay.AGENT
    assert (
        next_move(question(ReminderWay.TOAST, ReminderWay.AGENT), LADDER, ASKED + 500 * MINUTE).way is ReminderWay.PHONE
    )


def test_question_of_the_future_is_due() -> None:
    """The clock was ahead when it was asked, and is right now: it must not wait for a year."""
    late = question(asked=ASKED + timedelta(days=365))
    assert next_move(late, LADDER, ASKED).way is ReminderWay.AGENT
    assert (
        next_move(question(ReminderWay.AGENT, asked=late.message.received_at), LADDER, ASKED).way is ReminderWay.TOAST
    )


def test_answer_on_its_way_holds_everything_back() -> None:
    """It leaves within seconds, usually; a phone must not ring for that."""
    now = ASKED + 500 * MINUTE
    assert next_move(question(has_reply=True), LADDER, now) == NextReminder(way=None, due_at=now + SENDING)


def test_steps_that_are_late_keep_their_distance() -> None:
    """A laptop that was closed for a day does not remind, toast and call in one second when it is opened."""
    now = ASKED + 1440 * MINUTE
    move = next_move(question(), LADDER, now)
    assert move == NextReminder(way=ReminderWay.AGENT, due_at=now + 15 * MINUTE)
    assert next_move(question(ReminderWay.AGENT), LADDER, move.due_at).due_at == move.due_at + 90 * MINUTE


def test_person_is_left_alone_in_quiet_hours() -> None:
    """Toasts and calls wait for the morning; an agent has no night."""
    asked = datetime(2026, 3, 2, 23, 0, tzinfo=UTC)
    morning = datetime(2026, 3, 3, 7, 0, tzinfo=UTC)
    late = question(ReminderWay.AGENT, asked=asked)
    assert next_move(late, NIGHT, asked + 40 * MINUTE) == NextReminder(way=None, due_at=morning)
    assert next_move(late, NIGHT, morning).way is ReminderWay.TOAST
    assert next_move(question(asked=asked), NIGHT, asked + 40 * MINUTE).way is ReminderWay.AGENT


def test_step_without_a_time_is_none() -> None:
    """Whoever wants no phone writes 0s."""
    assert climbing(
        (
            LadderStep(ReminderWay.PHONE, timedelta(0)),
            LadderStep(ReminderWay.TOAST, 2 * MINUTE),
            LadderStep(ReminderWay.AGENT, MINUTE),
        )
    ) == (
        LadderStep(ReminderWay.AGENT, MINUTE),
        LadderStep(ReminderWay.TOAST, 2 * MINUTE),
    )
    assert next_move(question(), ReminderLadder(), ASKED) == NextReminder(way=None, due_at=NEVER)


@given(
    afters=st.lists(st.integers(min_value=1, max_value=600), min_size=0, max_size=3),
    looks=st.lists(st.integers(min_value=0, max_value=400), max_size=40),
    is_seen=st.booleans(),
    quiet=st.booleans(),
)
def test_every_step_is_taken_at_most_once_in_order_and_never_too_early(
    *, afters: list[int], looks: list[int], is_seen: bool, quiet: bool
) -> None:
    """Whenever somebody looks: no step twice, none before its time, none that goes back."""
    ways = [ReminderWay.AGENT, ReminderWay.TOAST, ReminderWay.PHONE]
    rungs = climbing([LadderStep(way, after * MINUTE) for way, after in zip(ways, afters, strict=False)])
    ladder = ReminderLadder(rungs=rungs, quiet=QuietHours(time(13), time(15)) if quiet else None, local=UTC)
    taken: list[ReminderWay] = []
    now, due = ASKED, ASKED
    for minutes in looks:
        now += minutes * MINUTE
        if now < due:
            continue
        move = next_move(question(*taken, is_seen=is_seen), ladder, now)
        assert move.due_at > now or move.way is not None
        if move.way is not None:
            assert now >= ASKED + next(rung.after for rung in rungs if rung.way is move.way)
            taken.append(move.way)
        due = move.due_at
    assert taken == sorted(taken, key=[rung.way for rung in rungs].index)
    assert len(set(taken)) == len(taken)
