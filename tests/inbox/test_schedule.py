"""Messages for later: accepted at once, heard of by no agent before, delivered late rather than never."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from harken.daemon.upkeep import ScheduleKeeper
from harken.errors import NotFound, UserError
from harken.inbox.caller import Bounds, Caller, DeliveryTime, Role
from harken.inbox.results import Outlook, SendResult
from harken.model import INBOX, Consumer, Occasion, SessionKey
from harken.times import format_moment
from tests.inbox.rig import AGENT, FIRST, LEASE, OWNER, WAIT_SECONDS, Bench, ids, open_bench

BOUNDS = Bounds(lease=LEASE)
IDLE, TURN = DeliveryTime(when="idle"), DeliveryTime(when="turn")


async def later(bench: Bench, timing: DeliveryTime, text: str = "later", caller: Caller = OWNER) -> SendResult:
    """Send a message that is to be delivered later."""
    return await bench.inbox.send_at(timing, caller, text)


async def test_message_is_delivered_at_its_time_and_not_before(bench: Bench) -> None:
    """Its sender chose the time; a count, a forecast or a wait that tells of it earlier would make the time useless."""
    session = bench.connect(FIRST)
    sent = await later(bench, DeliveryTime(at="in 2h"))
    due_at = bench.clock.now() + timedelta(hours=2)
    assert sent.forecast.outlook is Outlook.SCHEDULED
    assert sent.forecast.sentence == f"waits until {format_moment(due_at, bench.clock.now())}"
    assert sent.as_json()["state"] == "queued"
    assert await bench.inbox.release_due() == []
    assert await bench.pull() == []
    assert await bench.inbox.count(session.reader) == 0
    bench.clock.advance(2 * 3600 - 1)
    assert await bench.inbox.release_due() == []
    bench.clock.advance(1)
    [released] = await bench.inbox.release_due()
    assert released.id == sent.message.id
    assert await bench.inbox.release_due() == []
    assert ids(await bench.pull()) == [sent.message.id]


async def test_message_whose_time_passed_while_nothing_ran_is_delivered_late_and_once(tmp_path: Path) -> None:
    """A machine that was off at 18:00 must not swallow what was to be said then."""
    async with open_bench(tmp_path, BOUNDS) as bench:
        sent = await later(bench, DeliveryTime(at="in 1h"))
    async with open_bench(tmp_path, BOUNDS) as bench:
        bench.clock.advance(86_400)
        assert [message.id for message in await bench.inbox.release_due()] == [sent.message.id]
    async with open_bench(tmp_path, BOUNDS) as bench:
        bench.clock.advance(86_400)
        assert await bench.inbox.release_due() == []
        assert ids(await bench.pull()) == [sent.message.id]


async def test_clock_that_is_set_back_delays_and_loses_nothing(bench: Bench) -> None:
    """The time that counts is that of the clock; what was not due is still there."""
    sent = await later(bench, DeliveryTime(at="in 1h"))
    bench.clock.set_back(7200)
    assert await bench.inbox.release_due() == []
    bench.clock.advance(3 * 3600)
    assert [message.id for message in await bench.inbox.release_due()] == [sent.message.id]


async def test_message_for_idle_sessions_waits_until_none_is_in_a_turn(bench: Bench) -> None:
    """Between two tool calls it would interrupt the very work that it is to wait for."""
    sent = await later(bench, IDLE)
    assert sent.forecast.sentence == "waits until a session is here and idle"
    assert await bench.inbox.release_due() == []
    session = bench.connect(FIRST)
    session.begin_turn("t1", is_own=False)
    assert await bench.inbox.release_due() == []
    [waiting] = await bench.inbox.scheduled()
    assert bench.inbox.outlook_of(waiting).sentence == "waits until claude-code is idle"
    session.went_idle()
    assert [message.id for message in await bench.inbox.release_due()] == [sent.message.id]


async def test_message_after_the_turn_waits_for_that_turn_alone(bench: Bench) -> None:
    """The next turn, which may begin at once, is not the one that was to be left alone."""
    session = bench.connect(FIRST)
    session.begin_turn("t1", is_own=False)
    session.follow("t1")
    sent = await later(bench, TURN)
    assert sent.forecast.sentence == "waits until claude-code has ended this turn"
    assert await bench.inbox.release_due() == []
    session.went_idle()
    session.begin_turn("t2", is_own=False)
    session.follow("t2")
    assert [message.id for message in await bench.inbox.release_due()] == [sent.message.id]


async def test_message_after_the_turn_is_delivered_when_the_session_is_gone(bench: Bench) -> None:
    """Its turn has ended in the one way that no hook tells of."""
    session = bench.connect(FIRST)
    session.begin_turn("t1", is_own=False)
    sent = await later(bench, TURN)
    bench.inbox.sessions.close(session.key, f"edge of {FIRST.session}")
    assert [message.id for message in await bench.inbox.release_due()] == [sent.message.id]


async def test_message_after_the_turn_is_delivered_at_once_where_no_turn_goes_on(bench: Bench) -> None:
    """There is nothing to wait for, and it must not wait for a turn that begins later."""
    bench.connect(FIRST)
    sent = await later(bench, TURN)
    assert sent.message.seq == 1
    assert await bench.inbox.scheduled() == []


async def test_time_and_occasion_must_both_have_come(bench: Bench) -> None:
    """`--at 18:00 --when idle` says both."""
    session = bench.connect(FIRST)
    sent = await later(bench, DeliveryTime(at="in 1h", when="idle"))
    assert await bench.inbox.release_due() == []
    bench.clock.advance(3600)
    session.begin_turn("t1", is_own=False)
    assert await bench.inbox.release_due() == []
    session.went_idle()
    assert [message.id for message in await bench.inbox.release_due()] == [sent.message.id]


@pytest.mark.parametrize(
    "timing",
    [
        DeliveryTime(at="yesterday 9:00"),
        DeliveryTime(at="soon"),
        DeliveryTime(at="in 400d"),
        DeliveryTime(when="never"),
        DeliveryTime(at="in 1h", when="turn"),
    ],
)
async def test_time_that_cannot_come_is_refused_and_nothing_is_stored(bench: Bench, timing: DeliveryTime) -> None:
    """A slip of the hand must not become a message that waits for ever."""
    with pytest.raises(UserError):
        await later(bench, timing)
    assert await bench.inbox.scheduled() == []


async def test_time_of_day_is_read_with_the_grammar_of_times(bench: Bench) -> None:
    """There is one way in which times are written."""
    sent = await later(bench, DeliveryTime(at="tomorrow 9:00"))
    found = await bench.inbox.find_scheduled(OWNER, sent.message.id)
    assert found.schedule.occasion is Occasion.TIME
    assert found.schedule.due_at is not None
    assert f"{found.schedule.due_at.astimezone():%H:%M}" == "09:00"
    assert found.schedule.due_at.tzinfo is UTC


async def test_withdrawn_message_is_never_delivered_and_stays_visible(bench: Bench) -> None:
    """A second thought is the reason to say something later."""
    sent = await later(bench, DeliveryTime(at="in 1h"))
    withdrawn = await bench.inbox.unsend(OWNER, sent.message.id)
    assert (withdrawn.withdrawn_by, withdrawn.withdrawn_at) == ("owner", bench.clock.now())
    bench.clock.advance(7200)
    assert await bench.inbox.release_due() == []
    assert await bench.inbox.find_scheduled(OWNER, sent.message.id) == withdrawn
    assert bench.inbox.outlook_of(withdrawn).sentence.startswith("was withdrawn at ")


async def test_agent_sees_and_withdraws_only_what_it_sent(bench: Bench) -> None:
    """What you scheduled is none of an agent's business before its time."""
    yours = await later(bench, DeliveryTime(at="in 1h"))
    own = await later(bench, DeliveryTime(at="in 1h"), caller=AGENT)
    other = Caller(role=Role.AGENT, consumer=Consumer("codex"), session=SessionKey("c1"))
    for caller, ref in ((AGENT, yours.message.id), (other, own.message.id)):
        with pytest.raises(NotFound):
            await bench.inbox.unsend(caller, ref)
    assert (await bench.inbox.unsend(AGENT, own.message.id)).withdrawn_by == AGENT.sender.id
    assert [each.message.id for each in await bench.inbox.scheduled()] == [yours.message.id]


async def test_keeper_releases_at_the_time_and_when_a_session_gets_idle(bench: Bench) -> None:
    """The daemon is not asked: it has to notice by itself, without looking at the store after each tool call."""
    session = bench.connect(FIRST)
    session.begin_turn("t1", is_own=False)
    keeper, grown = ScheduleKeeper(bench.inbox, bench.store.changes, bench.clock), anyio.Event()
    with bench.store.changes.listen(lambda _: grown.set(), only=(INBOX,)), anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keeper.run)
            sent = await later(bench, IDLE)
            while not keeper.is_bound_to_sessions:
                await anyio.lowlevel.checkpoint()
            session.went_idle()
            bench.inbox.sessions.note_change(session.key)
            await grown.wait()
            tasks.cancel_scope.cancel()
    assert ids(await bench.pull()) == [sent.message.id]
