"""How long somebody waits, in words; and what an agent owes an answer to."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.inbox.questions import Questions, ago, sentence
from harken.model import INBOX, RULES, Consumer, Reader, SessionKey
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.contracts.questions import ask, asked
from tests.contracts.store_suite import AGENT, READER, TASK

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
UNITS = {"min": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


@pytest.mark.parametrize(
    ("passed", "expected"),
    [
        (timedelta(seconds=-5), "0 min"), (timedelta(seconds=59), "0 min"), (timedelta(minutes=59), "59 min"),
        (timedelta(hours=1), "1 h"), (timedelta(hours=47, minutes=59), "47 h"), (timedelta(days=2), "2 d"),
    ],
)  # fmt: skip
def test_time_is_said_as_people_say_it(passed: timedelta, expected: str) -> None:
    """Roughly; a clock that was set back is no reason to say something strange."""
    assert ago(NOW - passed, NOW) == expected


@given(st.timedeltas(timedelta(0), timedelta(days=5000)))
def test_time_that_is_said_has_passed(passed: timedelta) -> None:
    """Never more than it was, and never less by a whole unit."""
    number, unit = ago(NOW - passed, NOW).split()
    assert timedelta(0) <= passed - int(number) * UNITS[unit] < UNITS[unit]


@given(st.integers(0, 10_000))
def test_sentence_counts_what_waits(count: int) -> None:
    """One waits, three wait, nothing waits: the number is the one that was counted."""
    said = sentence(count, NOW - timedelta(hours=2) if count else None, NOW)
    assert re.fullmatch(
        r"nothing waits for an answer|1 waits for an answer, for 2 h|\d+ wait for an answer, oldest 2 h", said
    )
    assert (said.split()[0] == str(count)) is bool(count)


@pytest.mark.parametrize(("count", "expected"), [(1, "1 waits for an answer"), (3, "3 wait for an answer")])
def test_sentence_names_no_age_before_a_minute_is_over(count: int, expected: str) -> None:
    """An age of 0 min looks like a fault."""
    assert sentence(count, NOW - timedelta(seconds=59), NOW) == expected


async def test_agent_owes_what_it_has_seen_and_nobody_is_answering(tmp_path: Path) -> None:
    """What it was not given is not its fault, and an answer on its way needs no reminder."""
    clock = FakeClock()
    async with open_store(tmp_path / "harken.db", clock) as store:
        questions = Questions(store, clock)
        seen, answered, other, _ = await ask(store, asked("1"), asked("2"), asked("3"), asked("4"))
        [task] = await ask(store, asked("5", mailbox=TASK))
        for mailbox in (INBOX, TASK):
            await store.deliveries.enroll(AGENT, mailbox, clock.now())
        await store.deliveries.acknowledge(READER, [seen, answered, task], "ack")
        someone = Reader(consumer=Consumer("codex"), session=SessionKey("c"), mailboxes=(INBOX,))
        await store.deliveries.enroll(someone.consumer, INBOX, clock.now())
        await store.deliveries.acknowledge(someone, [other], "ack")
        await store.outbox.add(answered, "so", author="agent", consumer=AGENT)
        clock.advance(25 * 60)
        owed = await questions.owed([INBOX], AGENT, 50)
        assert [(each.message.id, questions.how_long(each)) for each in owed] == [(seen, "25 min")]
        assert await questions.owed([INBOX], RULES, 50) == []
        assert [each.message.id for each in await questions.of([task, other])] == [other, task]
        assert (await questions.waiting([TASK])).sentence == "1 waits for an answer, for 25 min"
