"""One idle session is woken for a message that may do so, by one way at a time; nobody else, and nothing else.

A wake costs its person money and attention: too many are as bad as none.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.dispatch.wake import (
    ANSWER,
    FIRST_PROMPT_GRACE,
    FRESH,
    LONGEST_STEP,
    MAX_TRIES,
    PATIENCE,
    PROOF,
    SETTLE,
    UNSURE,
    Tries,
    WakeChoice,
    Wakes,
    choose,
)
from harken.model import (
    Attention,
    Consumer,
    DeliveryState,
    Message,
    MessageId,
    Priority,
    Reader,
    SessionAddress,
    SessionKey,
    WakeResult,
)
from harken.sessions.registry import Neighbour, SessionReport
from harken.sessions.session import Session
from tests.builders import a_message, a_session
from tests.dispatch.rig import DispatchFixture, FakeWaker
from tests.inbox.rig import OWNER
from tests.loss.rig import until

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)


def session_of(name: str, *, is_waiting: bool = False, told_of: Collection[MessageId] = (), **facts: object) -> Session:
    """Return a session, as far as choosing goes: idle for long, with two ways to wake it, if no fact says otherwise."""
    session = a_session(
        at=LONG_AGO,
        key=SessionKey(name),
        agent=Consumer(name),
        consumer=Consumer(name),
        host="",
        client="",
        pid=0,
        surfaces=(),
        is_busy=False,
        wakers={"bell": FakeWaker("bell"), "line": FakeWaker("line")},
    )
    if is_waiting:
        session.begin_wait(lambda: None)
    session.announce(frozenset(told_of), "")
    for fact, value in facts.items():
        setattr(session, fact, value)
    return session


def letter(received_at: datetime = NOW) -> Message:
    """Return a message that may wake."""
    return a_message(received_at=received_at)


# -- choosing ------------------------------------------------------------------------------------------------------


def test_a_way_is_tried_again_after_a_while_and_not_for_ever() -> None:
    """A host may not have listened yet; but one that never answers is left in peace, and the message waits."""
    session = session_of("a", wakers={"bell": FakeWaker("bell")})
    place = (MessageId("m-1"), session.address, "bell")
    assert choose(letter(), [session], {place: Tries(1, NOW)}, NOW) == WakeChoice(look_at=NOW + ANSWER)
    again = choose(letter(), [session], {place: Tries(1, NOW - ANSWER)}, NOW)
    assert again == WakeChoice(session=session, way="bell")
    assert choose(letter(), [session], {place: Tries(MAX_TRIES, LONG_AGO)}, NOW) == WakeChoice()


def test_a_session_that_has_just_come_is_given_time_to_listen() -> None:
    """A bell that rings before the host watches it is heard by nobody."""
    fresh = session_of("a", opened_at=NOW)
    assert choose(letter(), [fresh], {}, NOW) == WakeChoice(look_at=NOW + SETTLE)
    assert choose(letter(), [fresh], {}, NOW + SETTLE) == WakeChoice(session=fresh, way="bell")


def test_what_waited_for_a_session_is_left_to_its_first_prompt() -> None:
    """A wake beside the first prompt would be queued by the host until the turn ends; the prompt brings it at once."""
    earlier = letter(NOW - ANSWER)
    fresh = session_of("a", opened_at=NOW, moments={"start"})
    assert choose(earlier, [fresh], {}, NOW + SETTLE) == WakeChoice(look_at=NOW + FIRST_PROMPT_GRACE)
    assert choose(earlier, [fresh], {}, NOW + FIRST_PROMPT_GRACE) == WakeChoice(session=fresh, way="bell")
    assert choose(letter(NOW + SETTLE), [fresh], {}, NOW + SETTLE).session is fresh
    prompted = session_of("a", opened_at=NOW, moments={"start", "prompt", "stop"})
    assert choose(earlier, [prompted], {}, NOW + SETTLE).session is prompted


def test_a_session_that_was_told_of_it_is_not_woken_for_it() -> None:
    """A notice was taken: saying it again would cost a turn each time. While it is busy it may still read it."""
    told = frozenset({MessageId("m-1")})
    other = session_of("b")
    assert choose(letter(), [session_of("a", told_of=told)], {}, NOW) == WakeChoice()
    assert choose(letter(), [session_of("a", told_of=told, is_busy=True), other], {}, NOW) == WakeChoice()
    assert choose(letter(), [session_of("a", told_of=told), other], {}, NOW).session is other


def test_an_idle_session_is_woken_when_the_busy_one_took_nothing() -> None:
    """Hosts do not say when a turn is interrupted: who has been busy for too long without a word may not be."""
    busy, idle = session_of("a", is_busy=True), session_of("b")
    assert choose(letter(NOW - PATIENCE), [busy, idle], {}, NOW) == WakeChoice(session=idle, way="bell")
    assert choose(letter(NOW - PATIENCE), [busy], {}, NOW) == WakeChoice(session=busy, way="bell")


def test_patience_counts_from_the_last_sign_of_life() -> None:
    """A session that still calls tools is at work, however long ago the message came."""
    active = NOW - timedelta(seconds=5)
    busy = session_of("a", is_busy=True, last_active=active)
    assert choose(letter(LONG_AGO), [busy], {}, NOW) == WakeChoice(look_at=active + PATIENCE)


@pytest.mark.parametrize(
    ("is_inherited", "longest"), [(False, LONGEST_STEP), (True, UNSURE)], ids=["now", "before a restart"]
)
def test_a_host_that_tells_of_interruptions_is_believed(longest: timedelta, *, is_inherited: bool) -> None:
    """One that seems busy is: what it were woken with would be read only after its turn, past every tool call.

    After a restart it may have told so while nobody was there to hear it.
    """
    active = NOW - timedelta(minutes=1)
    busy = session_of("a", is_busy=True, reports_interrupts=True, is_inherited=is_inherited, last_active=active)
    assert choose(letter(LONG_AGO), [busy], {}, NOW) == WakeChoice(look_at=active + longest)


def test_a_run_that_answers_one_prompt_is_never_woken() -> None:
    """It gets what waits with its prompt; a wake would come too late, or into a process that is about to end."""
    run, other = session_of("a", is_one_shot=True), session_of("b")
    assert choose(letter(), [run], {}, NOW) == WakeChoice()
    assert choose(letter(), [run, other], {}, NOW).session is other


def test_a_session_that_nobody_would_see_is_not_woken() -> None:
    """Its terminal is closed, or may be: the next session that can be woken is, else the message waits."""
    closed, other = session_of("a", hindrance="no terminal shows it"), session_of("b")
    assert choose(letter(), [closed], {}, NOW) == WakeChoice()
    assert choose(letter(), [closed, other], {}, NOW).session is other


@given(
    sessions=st.lists(
        st.builds(
            session_of,
            name=st.sampled_from("abc"),
            is_busy=st.sampled_from([True, False, None]),
            is_waiting=st.booleans(),
            last_active=st.integers(-100, 0).map(lambda seconds: NOW + timedelta(seconds=seconds)),
        ),
        max_size=3,
        unique_by=lambda session: session.key,
    ),
    tried=st.dictionaries(
        st.tuples(
            st.just(MessageId("m-1")),
            st.tuples(st.just(""), st.sampled_from("abc").map(SessionKey)),
            st.sampled_from(["bell", "line"]),
        ),
        st.builds(Tries, st.integers(1, MAX_TRIES), st.integers(-30, 0).map(lambda s: NOW + timedelta(seconds=s))),
    ),
    age=st.integers(0, 100),
)
def test_a_choice_is_always_possible_and_never_too_soon(
    sessions: list[Session], tried: dict[tuple[MessageId, SessionAddress, str], Tries], age: int
) -> None:
    """Whatever the rig looks like: somebody who is here, by a way they have and that is due, or nobody."""
    choice = choose(letter(NOW - timedelta(seconds=age)), sessions, tried, NOW)
    assert (choice.session is None) == (not choice.way)
    assert choice.session is None or choice.look_at is None
    if choice.session is not None:
        address = choice.session.address
        assert address in [session.address for session in sessions]
        assert choice.way in choice.session.wakers
        tries = tried.get((MessageId("m-1"), address, choice.way), Tries())
        assert tries.count < MAX_TRIES
        assert tries.last is None or tries.last + ANSWER <= NOW
        assert not any(session.is_waiting for session in sessions)
    if choice.look_at is not None:
        assert NOW < choice.look_at <= NOW + PATIENCE


# -- whom and for what ---------------------------------------------------------------------------------------------


async def test_an_idle_session_is_woken_with_the_message(rig: DispatchFixture) -> None:
    """The text goes along, the ledger says by what, and the delivery is not yet called seen."""
    session = rig.come()
    pipe = rig.pipe(session)
    message = await rig.say("please look")
    await rig.wake()
    (text,) = pipe.texts
    assert "please look" in text
    (delivery,) = await rig.ledger(message)
    assert (delivery.state, delivery.surface, delivery.session) == (DeliveryState.OFFERED, "wake: line", session.key)
    assert delivery.id in text


async def test_of_several_hosts_one_session_is_woken(rig: DispatchFixture) -> None:
    """Three agents that answer the same message are worse than one; the others find it with their next prompt."""
    pipes = [rig.pipe(rig.come(host)) for host in ("claude-code", "copilot-cli", "codex")]
    message = await rig.say()
    for _ in range(3):
        await rig.wake()
    assert [len(pipe.texts) for pipe in pipes] == [0, 0, 1]
    for session in rig.sessions.live():
        if session.host != "codex":
            assert [m.id for m in await rig.inbox.waiting(session.reader, {Attention.WAKE}, 5)] == [message.id]


async def test_of_several_hosts_one_bell_is_rung(rig: DispatchFixture) -> None:
    """A bell carries nothing: while its hook starts, the message still waits for everyone, which is no reason."""
    wakers = [rig.waker(rig.come(host)) for host in ("copilot-cli", "claude-code")]
    await rig.say()
    for _ in range(3):
        await rig.wake()
    assert [waker.wakes for waker in wakers] == [0, 1]


async def test_a_session_of_another_machine_is_left_to_its_daemon(rig: DispatchFixture) -> None:
    """Each daemon would wake one of its own: of all of them one is woken, and another one if nothing comes of it."""
    waker = rig.waker(rig.come("codex"))
    other = session_of("claude-code", last_active=rig.clock.now() + ANSWER)
    report = SessionReport(record=other.record, wakers=("bell", "line"))
    rig.sessions.hear_of("laptop", [Neighbour("h-2", "buildbox", [report])])
    await rig.say()
    await rig.wake()
    assert waker.wakes == 0
    rig.clock.advance(ANSWER.total_seconds())
    await rig.wake()
    assert waker.wakes == 1


async def test_a_session_of_another_machine_with_the_same_key_has_nothing(rig: DispatchFixture) -> None:
    """A key may be no more than the number of a process: what one session was given, another one does not have."""
    waker, gone = rig.waker(rig.come("codex")), rig.come("claude-code", 7)
    message = await rig.say()
    until = rig.clock.now() + PROOF
    await rig.store.deliveries.offer(gone.reader, 1, surface="hook: tool", carrier="c-1", lease_until=until)
    rig.go(gone)
    same = session_of("claude-code:7", mailboxes=())
    rig.sessions.hear_of("laptop", [Neighbour("h-2", "buildbox", [SessionReport(record=same.record)])])
    [delivery] = await rig.ledger(message)
    assert (delivery.session, delivery.state) == (same.key, DeliveryState.OFFERED)
    await rig.wake()
    assert waker.wakes == 1


def test_a_way_that_was_tried_on_one_machine_was_not_tried_on_another() -> None:
    """Else a session that nobody has rung for would have to wait for the answer of one with the same key."""
    here, there = session_of("a"), session_of("a", daemon="h-2")
    tried = {(MessageId("m-1"), there.address, way): Tries(1, NOW) for way in there.wakers}
    assert choose(letter(), [here, there], tried, NOW) == WakeChoice(session=here, way="bell")


async def test_a_message_that_arrives_while_one_looks_wakes_the_right_session(rig: DispatchFixture) -> None:
    """One session is asked before it came, the next one after: that does not make the message the second one's."""
    other, right = rig.pipe(rig.come("claude-code")), rig.pipe(rig.come("copilot-cli"))
    arrived: list[Message] = []

    async def waiting(
        reader: Reader,
        attentions: Collection[Attention],
        limit: int,
        *,
        without: Collection[MessageId] = (),
        only: Collection[MessageId] | None = None,
        since: datetime | None = None,
    ) -> Sequence[Message]:
        found = await rig.inbox.waiting(reader, attentions, limit, without=without, only=only, since=since)
        if not arrived:
            arrived.append(await rig.say())
        return found

    async def nothing_to_give_up(_session: SessionKey) -> None:
        return

    wakes = Wakes(
        rig.store.changes,
        rig.sessions,
        rig.clock,
        waiting=waiting,
        ledger=rig.store.deliveries.ledger,
        give_up=nothing_to_give_up,
    )
    for _ in range(3):
        await wakes.look()
    assert (len(right.texts), other.texts) == (1, [])


async def test_the_others_are_not_woken_for_what_one_has_seen(rig: DispatchFixture) -> None:
    """Also later, and also when a new session of another host comes: an agent has it."""
    session = rig.come("codex")
    rig.pipe(session)
    message = await rig.say()
    await rig.wake()
    (delivery,) = await rig.ledger(message)
    await rig.inbox.proofs.prove([delivery.id], "end of turn")
    rig.clock.advance(300)
    late = rig.pipe(rig.come("copilot-cli"))
    await rig.wake()
    assert late.texts == []


async def test_two_messages_wake_once(rig: DispatchFixture) -> None:
    """They go in one text; the second must not start another way, or another turn."""
    session = rig.come()
    best, other = rig.pipe(session, "claude channel"), rig.waker(session)
    await rig.say("first")
    await rig.say("second")
    await rig.wake()
    (text,) = best.texts
    assert "first" in text
    assert "second" in text
    assert other.wakes == 0


async def test_the_next_way_is_not_used_before_the_first_had_its_time(rig: DispatchFixture) -> None:
    """Every event lets the loop look again; a bell's hook takes most of a second to ask."""
    session = rig.come()
    first, second = rig.waker(session), rig.pipe(session, "claude channel")
    await rig.say()
    await rig.wake()
    rig.clock.advance(ANSWER.total_seconds() / 2)
    rig.sessions.note_change()
    await rig.wake()
    assert (first.wakes, second.texts) == (1, [])


async def test_the_next_way_is_used_when_nothing_proved_the_first(rig: DispatchFixture) -> None:
    """A host that took the text and did nothing with it: the message is offered again, as a repeat."""
    session = rig.come()
    first, second = rig.pipe(session, "claude channel"), rig.pipe(session, "wake: line")
    message = await rig.say()
    await rig.wake()
    assert (len(first.texts), len(second.texts)) == (1, 0)
    rig.clock.advance(PROOF.total_seconds() + 1)
    await rig.wake()
    assert (len(first.texts), len(second.texts)) == (1, 1)
    assert "Repeat:" in second.texts[0]
    (delivery,) = await rig.ledger(message)
    assert (delivery.offers, delivery.surface) == (2, "wake: line")


async def test_a_way_that_does_not_take_it_leaves_it_queued_for_the_next(rig: DispatchFixture) -> None:
    """Not taken is not offered: no repeat, no lease that has to run out."""
    session = rig.come()
    broken, good = rig.pipe(session, "claude channel", is_taking=False), rig.pipe(session, "wake: line")
    message = await rig.say()
    for _ in range(2):
        await rig.wake()
    assert (len(broken.texts), len(good.texts)) == (1, 1)
    assert "Repeat:" not in good.texts[0]
    (delivery,) = await rig.ledger(message)
    assert (delivery.offers, delivery.surface) == (1, "wake: line")


async def test_a_wake_that_nobody_took_leaves_the_message_queued(rig: DispatchFixture) -> None:
    """It waits for the next prompt as if nothing had been tried."""
    session = rig.come()
    rig.pipe(session, is_taking=False)
    message = await rig.say()
    await rig.wake()
    assert await rig.ledger(message) == []
    assert [m.id for m in await rig.inbox.waiting(session.reader, {Attention.WAKE}, 5)] == [message.id]


async def test_a_wake_that_was_given_up_and_comes_late_is_not_told_twice(rig: DispatchFixture) -> None:
    """A host may bring it after a long tool: the turn that begins with it proves it, and needs no repeat."""
    session = rig.come(number=4_001)
    pipe = rig.pipe(session)
    message = await rig.say("please look")
    await rig.wake()
    pipe.is_taking = False
    rig.clock.advance(PROOF.total_seconds() + 1)
    await rig.wake()
    assert not session.unproven
    printed = await rig.prompt(session, pipe.texts[0])
    (offered,) = await rig.ledger(message)
    assert (offered.state, "please look" in printed) == (DeliveryState.OFFERED, False)
    await rig.tool(session)
    (delivery,) = await rig.ledger(message)
    assert delivery.state is DeliveryState.SEEN


def _recorded(folder: Path, told: str) -> str:
    """Write the record of a Copilot that was told something and has answered; return its path."""
    read = {"type": "tool.execution_complete", "data": {"result": {"content": told}}}
    answered = {"type": "assistant.message", "data": {"content": "done"}}
    record = folder / "events.jsonl"
    record.write_text(f"{json.dumps(read)}\n{json.dumps(answered)}\n")
    return str(record)


async def test_a_record_that_is_written_late_proves_a_wake_before_it_is_given_up(
    rig: DispatchFixture, tmp_path: Path
) -> None:
    """Copilot writes its record beside its hooks: at the end of a turn it may not hold yet what the model has read."""
    session = rig.come("copilot-cli", 4_001)
    pipe = rig.pipe(session, "wake: waiter")
    message = await rig.say("please look")
    await rig.wake()
    session.transcript = _recorded(tmp_path, pipe.texts[0])
    rig.clock.advance(PROOF.total_seconds() + 1)
    await rig.wake()
    (delivery,) = await rig.ledger(message)
    assert (delivery.state, delivery.offers, delivery.evidence) == (DeliveryState.SEEN, 1, "in the transcript")
    assert len(pipe.texts) == 1


async def test_a_text_that_quotes_an_id_proves_nothing_for_another_consumer(rig: DispatchFixture) -> None:
    """An id proves that this agent has read it: what another one was given is not its to prove."""
    other = rig.come("copilot-cli", 4_001)
    message = await rig.say("please look")
    (offer,) = await rig.inbox.hand_over(other.reader, [message], surface="hook: tool", carrier="c-1")
    await rig.prompt(rig.come("claude-code", 4_002), f"what is {offer.delivery_id}?")
    states = {delivery.consumer: delivery.state for delivery in await rig.ledger(message)}
    assert states[Consumer("copilot-cli")] is DeliveryState.OFFERED


async def test_a_busy_session_is_woken_only_when_it_took_nothing(rig: DispatchFixture) -> None:
    """After an Esc that no hook told of, it only looks busy."""
    session = rig.come()
    pipe = rig.pipe(session)
    session.is_busy = True
    await rig.say()
    await rig.wake()
    rig.clock.advance(PATIENCE.total_seconds() - 1)
    await rig.wake()
    assert pipe.texts == []
    rig.clock.advance(2)
    await rig.wake()
    assert len(pipe.texts) == 1


async def test_a_session_in_a_long_poll_is_not_woken(rig: DispatchFixture) -> None:
    """It is served by the commit itself."""
    session = rig.come()
    pipe = rig.pipe(session)
    with rig.sessions.in_wait(session.key):
        await rig.say()
        await rig.wake()
    assert pipe.texts == []


async def test_old_mail_does_not_wake(rig: DispatchFixture) -> None:
    """Nobody expects a session that was just opened to start with what came yesterday."""
    rig.come("copilot-cli")
    await rig.say()
    rig.clock.advance(FRESH.total_seconds() + 1)
    pipe = rig.pipe(rig.come())
    await rig.wake()
    assert pipe.texts == []


@pytest.mark.parametrize(
    ("source", "priority"),
    [("nowhere", Priority.NORMAL), ("nowhere", Priority.HIGH), ("webhook", Priority.NORMAL), ("teams", Priority.LOW)],
    ids=["unknown sender", "unknown sender, urgent", "noisy source", "low priority"],
)
async def test_unknown_senders_and_noise_never_wake(rig: DispatchFixture, source: str, priority: Priority) -> None:
    """Authority follows trust: whoever can write to us must not thereby start agents."""
    session = rig.come()
    pipe, waker = rig.pipe(session), rig.waker(session, "wake: other")
    await rig.say(source=source, priority=priority)
    for _ in range(2):
        await rig.wake()
        rig.clock.advance(PROOF.total_seconds() + 1)
    assert (pipe.texts, waker.wakes) == ([], 0)


async def test_what_may_interrupt_rides_along_with_a_wake(rig: DispatchFixture) -> None:
    """It alone starts nobody; a session that works anyway would be told of it between two tools."""
    pipe = rig.pipe(rig.come())
    await rig.say("by the way", priority=Priority.LOW)
    await rig.wake()
    assert pipe.texts == []
    await rig.say("please look")
    await rig.wake()
    (text,) = pipe.texts
    assert "please look" in text
    assert "by the way" in text


async def test_noise_does_not_ride_along_with_a_wake(rig: DispatchFixture) -> None:
    """What wakes is told; what may only wait for a prompt stays for it."""
    pipe = rig.pipe(rig.come())
    await rig.say("build 17 failed", source="webhook")
    await rig.say("buy now", source="nowhere")
    await rig.say("please look")
    await rig.wake()
    (text,) = pipe.texts
    assert "please look" in text
    assert "build 17" not in text
    assert "buy now" not in text


@pytest.mark.parametrize(("kind", "name"), [("channel", "teams"), ("sender", "ann"), ("session", "claude-code")])
async def test_what_is_muted_does_not_wake(rig: DispatchFixture, kind: str, name: str) -> None:
    """The person asked for quiet."""
    pipe = rig.pipe(rig.come())
    await rig.access.mute(OWNER, kind, name)
    await rig.say()
    await rig.wake()
    assert pipe.texts == []


async def test_a_person_who_read_it_does_not_keep_the_agent_asleep(rig: DispatchFixture) -> None:
    """What was shown on the person's screen is not thereby done."""
    pipe = rig.pipe(rig.come())
    message = await rig.say()
    person = await rig.inbox.person(SessionKey("cli"))
    await rig.inbox.ack(person, [message.id])
    await rig.wake()
    assert len(pipe.texts) == 1


async def test_the_offer_of_a_session_that_is_gone_does_not_keep_others_asleep(rig: DispatchFixture) -> None:
    """It was given to one that ended without proof: that one has not got it."""
    gone = rig.come("copilot-cli")
    message = await rig.say()
    await rig.inbox.hand_over(gone.reader, [message], surface="hook: tool", carrier="c-1")
    pipe = rig.pipe(rig.come("claude-code"))
    await rig.wake()
    assert pipe.texts == []
    rig.go(gone)
    await rig.wake()
    assert len(pipe.texts) == 1


async def test_a_way_that_goes_away_meanwhile_is_survived(rig: DispatchFixture) -> None:
    """A program beside a host may end in the very moment in which it is asked."""
    session = rig.come()

    class Leaving(FakeWaker):
        async def wake(self) -> WakeResult:
            session.wakers.clear()
            rig.go(session)
            return WakeResult.REFUSED

    session.wakers["wake: line"] = Leaving("wake: line")
    await rig.say("first")
    await rig.say("second")
    await rig.wake()
    assert rig.sessions.live() == []


# -- the loop ------------------------------------------------------------------------------------------------------


async def test_the_loop_wakes_by_itself_and_goes_on_after_a_refusal(rig: DispatchFixture) -> None:
    """A message, a new session or a new way: each is reason enough to look."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.wiring.wakes.run)
        session = rig.come()
        broken = rig.pipe(session, "claude channel", is_taking=False)
        good = rig.pipe(session, "wake: line")
        await rig.say("first")
        await anyio.to_thread.run_sync(until, lambda: good.texts, "the second way is used", 5)
        assert len(broken.texts) == 1
        tasks.cancel_scope.cancel()


async def test_the_loop_wakes_for_what_waited_when_a_way_appears(rig: DispatchFixture) -> None:
    """An extension that connects a second after the message came is not too late."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.wiring.wakes.run)
        session = rig.come()
        await rig.say()
        pipe = rig.pipe(session)
        await anyio.to_thread.run_sync(until, lambda: pipe.texts, "the session is woken", 5)
        tasks.cancel_scope.cancel()
