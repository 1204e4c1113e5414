"""Replay: the events added up are what the store itself says, at every moment of any story."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from harken.inbox.replay import ConsumerThen, JournalReplay, ReplayLine, UntoldPart, read_line
from harken.model import INBOX, RULES, WATCH, Consumer, DeliveryState, Reader, SessionKey, Task, TaskId
from harken.store.contract import Store
from harken.store.contract.events import Event
from harken.store.contract.retention import Limits
from harken.store.journal import line as line_of
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.contracts.store_model import Machine, sessions
from tests.contracts.store_suite import (
    AGENT,
    EVERYTHING,
    LEASE_SECONDS,
    LONG_SECONDS,
    READER,
    Journal,
    new_message,
)
from tests.examples import examples

MANY = 1_000
_KINDS = st.sampled_from(["received", "consumer", "offered", "seen", "withdrawn", "answered", "expired", "pruned"])
_NAMES = st.sampled_from(
    ["n", "at", "kind", "message", "deliveries", "ids", "ranges", "mailbox", "seq", "begins_after"]
)
_LEAVES = st.none() | st.integers() | _KINDS | st.text(max_size=3)


def _tree(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    line = st.fixed_dictionaries({"n": st.integers(), "at": st.text(max_size=3), "kind": _KINDS, "message": inner})
    return line | st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=6)


def added_up(events: Sequence[Event], **options: str) -> JournalReplay:
    """Return what the lines of some events come to, as they stand in the files."""
    replay = JournalReplay(most=MANY, **options)
    for event in events:
        found = read_line(line_of(event))
        assert found is not None
        replay.add(found)
    return replay


def told_by(replay: JournalReplay) -> tuple[dict[tuple[str, str], tuple[int, int, int]], dict[str, dict[str, str]]]:
    """Return everyone's cursor, unread and head, and the state of each message for each."""
    places = {
        (each.consumer, box.name): (each.cursor, each.unread, box.head)
        for box in replay.mailboxes()
        for each in box.consumers
    }
    states = {str(each.record["id"]): dict(each.states) for box in replay.mailboxes() for each in box.messages}
    return places, states


async def told_by_store(store: Store, events: Sequence[Event]) -> object:
    """Return the same from the store itself."""
    begins = {
        (event.data["consumer"], event.data["mailbox"]): cast("int", event.data["begins_after"])
        for event in events
        if event.kind == "consumer"
    }
    consumers = [
        each for each in await store.deliveries.consumers() if each.head or (each.consumer, each.mailbox) in begins
    ]
    states: dict[str, dict[str, str]] = {}
    for message in await store.messages.page(EVERYTHING, MANY):
        rows = {str(each.consumer): each.state.value for each in await store.deliveries.ledger(message.id)}
        waiting = {
            str(each.consumer): DeliveryState.QUEUED.value
            for each in consumers
            if each.mailbox == message.mailbox and message.seq > begins.get((each.consumer, each.mailbox), 0)
        }
        states[message.id] = waiting | rows
    return {(each.consumer, each.mailbox): (each.cursor, each.unread, each.head) for each in consumers}, states


class Replayed(Machine):
    """The story of the store's model, in which offers are also undone and messages removed early."""

    @rule(session=sessions)
    def withdraw(self, session: SessionKey) -> None:
        """Undo the offers of a session that had gone."""
        self.do(partial(self.store.deliveries.withdraw, session, "c"))
        for (consumer, message), entry in self.model.entries.items():
            if entry.session != session or entry.is_final or not entry.was_offered:
                continue
            entry.lease_until = None
            if all(each.consumer != consumer for each in self.do(partial(self.store.deliveries.ledger, message))):
                entry.was_offered, entry.session = False, None
                self.deliveries = {
                    name: whose for name, whose in self.deliveries.items() if whose != (consumer, message)
                }

    @invariant()
    def same_as_added_up(self) -> None:
        """The lines alone say what the store says."""
        replay = added_up(self.journal.events)
        assert told_by(replay) == self.do(partial(told_by_store, self.store, self.journal.events))
        assert replay.unknown() == UntoldPart()


@pytest.mark.hypothesis
def test_events_added_up_are_the_live_state_of_the_store(tmp_path: Path) -> None:
    """A replay that differs from what was true is worse than none: no story may drive the two apart."""
    stories = count()

    class ReplayMachine(Replayed):
        """One random story, in a database of its own."""

        def __init__(self) -> None:
            super().__init__(lambda clock, journal: opened(tmp_path / f"{next(stories)}.db", clock, journal))

    run_state_machine_as_test(ReplayMachine, settings=settings(max_examples=examples(40), stateful_step_count=25))


def opened(path: Path, clock: FakeClock, journal: Journal) -> AbstractAsyncContextManager[Store]:
    """Open a store whose events a journal keeps."""
    return open_store(path, clock, after_commit=journal)


async def test_a_state_in_the_past_is_not_changed_by_what_came_later(tmp_path: Path) -> None:
    """The point of a replay: what was unread then is unread there, whatever was read since."""
    clock, journal = FakeClock(), Journal()
    async with opened(tmp_path / "harken.db", clock, journal) as store:
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        (first,) = await store.messages.append([new_message("one")])
        until = clock.now() + timedelta(seconds=LEASE_SECONDS)
        (offer,) = (await store.deliveries.offer(READER, 9, surface="pull", carrier="c", lease_until=until)).whole
        then = list(journal.events)
        clock.advance(60)
        await store.deliveries.prove([offer.delivery_id], "proof")
        await store.messages.append([new_message("two")])
    (box,) = added_up(then).mailboxes()
    assert [(each.record["id"], each.states) for each in box.messages] == [
        (first.message.id, {AGENT: "offered", WATCH: "queued"})
    ]
    assert box.consumers == [
        ConsumerThen(consumer=AGENT, cursor=0, unread=1, counts={"offered": 1}),
        ConsumerThen(consumer=WATCH, cursor=0, unread=1, counts={"queued": 1}),
    ]


async def test_what_was_removed_since_is_there_and_counted(tmp_path: Path) -> None:
    """Retention takes messages, not the knowledge that they were there."""
    clock, journal = FakeClock(), Journal()
    async with opened(tmp_path / "harken.db", clock, journal) as store:
        appended = await store.messages.append([new_message(str(number)) for number in range(5)])
        person = Reader(consumer=WATCH, session=SessionKey("s1"))
        await store.deliveries.acknowledge(person, [each.message.id for each in appended], "ack")
        then = len(journal.events)
        await store.retention.prune(Limits(max_count=2, max_age_seconds=LONG_SECONDS))
    assert journal.of("pruned")[0].data == {"deleted": 3, "ranges": {INBOX: [(1, 3)]}}
    replay = added_up(journal.events[:then])
    for event in journal.events[then:]:
        found = read_line(line_of(event))
        assert found is not None
        replay.add_later(found)
    (box,) = replay.mailboxes()
    assert (box.head, box.there, box.pruned) == (5, 5, 3)
    assert [each.is_pruned for each in box.messages] == [True, True, True, False, False]
    (after,) = added_up(journal.events).mailboxes()
    assert (after.head, after.there, after.pruned) == (5, 2, 0)


async def test_what_the_person_answered_here_is_not_unread_for_them(tmp_path: Path) -> None:
    """The message that their own answer became has no line that they saw it."""
    clock, journal = FakeClock(), Journal()
    async with opened(tmp_path / "harken.db", clock, journal) as store:
        (asked,) = await store.messages.append([new_message("which one?")])
        row = await store.outbox.add(asked.message.id, "that one", author="owner", consumer=WATCH)
        (said,) = await store.messages.append([replace(new_message("that one"), author=WATCH)])
        await store.outbox.sent(row.id, said.message.id)
        live = await told_by_store(store, journal.events)
    assert told_by(added_up(journal.events)) == live
    assert told_by(added_up(journal.events))[1][said.message.id] == {WATCH: "seen"}


async def test_mail_of_a_task_that_is_done_was_refused(tmp_path: Path) -> None:
    """What a task never read is told as such, also what came too late, and one is enough to see it in the past."""
    clock, journal = FakeClock(), Journal()
    async with opened(tmp_path / "harken.db", clock, journal) as store:
        made = await store.tasks.add(Task(id=TaskId("a"), title="a", dir="/a", created_at=clock.now()))
        await store.messages.append([new_message("early", mailbox=made.mailbox)])
        await store.tasks.finish(made.id)
        await store.messages.append([new_message("late", mailbox=made.mailbox)])
        live = await told_by_store(store, journal.events)
    found = told_by(added_up(journal.events))
    assert found == live
    assert [states[made.consumer] for states in found[1].values()] == ["refused", "refused"]


async def test_whoever_marks_or_answers_first_reads_from_then_on(tmp_path: Path) -> None:
    """A consumer need not enroll: its first mark or answer makes it one. Rules answer too, and read nothing."""
    clock, journal = FakeClock(), Journal()
    async with opened(tmp_path / "harken.db", clock, journal) as store:
        first, second = [
            each.message.id for each in await store.messages.append([new_message("one"), new_message("two")])
        ]
        marker, answerer = Consumer("marker"), Consumer("answerer")
        await store.deliveries.acknowledge(Reader(consumer=marker, session=SessionKey("m")), [second], "ack")
        await store.outbox.add(first, "done", author="agent:answerer", consumer=answerer)
        await store.outbox.add(first, "done", author="run:1", consumer=RULES)
        live = await told_by_store(store, journal.events)
    found = told_by(added_up(journal.events))
    assert found == live
    assert {consumer: cursor for (consumer, _), (cursor, _, _) in found[0].items()} == {
        WATCH: 0,
        marker: 0,
        answerer: 1,
    }


async def test_an_offer_is_undone_although_its_session_got_another_name(tmp_path: Path) -> None:
    """Sessions are renamed when their own name is known, and no line says so."""
    clock, journal = FakeClock(), Journal()
    async with opened(tmp_path / "harken.db", clock, journal) as store:
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        await store.messages.append([new_message("one")])
        until = clock.now() + timedelta(seconds=LEASE_SECONDS)
        await store.deliveries.offer(READER, 9, surface="pull", carrier="c", lease_until=until)
        await store.deliveries.transfer(READER.session, SessionKey("renamed"))
        await store.deliveries.withdraw(SessionKey("renamed"), "c")
        live = await told_by_store(store, journal.events)
    assert told_by(added_up(journal.events)) == live


async def test_a_database_that_was_replaced_begins_with_nothing(tmp_path: Path) -> None:
    """The journal goes on over both, and what the first one knew is not in the second."""
    clock, journal = FakeClock(), Journal()
    async with opened(tmp_path / "first.db", clock, journal) as store:
        appended = await store.messages.append([new_message("one"), new_message("two")])
        await store.deliveries.acknowledge(
            Reader(consumer=WATCH, session=SessionKey("w")), [appended[0].message.id], "ack"
        )
        last = await store.events.last()
    async with opened(tmp_path / "second.db", clock, journal) as store:
        await store.events.continue_after(last)
        await store.messages.append([new_message("three")])
        live = await told_by_store(store, journal.events)
    replay = added_up(journal.events)
    assert told_by(replay) == live
    assert replay.unknown() == UntoldPart()


def test_what_the_lines_do_not_tell_is_counted() -> None:
    """Where files are gone, a replay says so instead of showing a mailbox that never was."""
    replay = JournalReplay()
    replay.add(ReplayLine(n=5, at="", kind="received"))
    replay.add(ReplayLine(n=6, at="", kind="seen", consumer="a", deliveries={"d-1": "m-1"}))
    replay.add(ReplayLine(n=9, at="", kind="pruned", deleted=3))
    assert replay.unknown() == UntoldPart(missing=6, nameless=1, strange=1, removed=3)
    assert replay.mailboxes() == []


def test_only_the_mailbox_and_the_consumer_that_were_asked_for_are_told() -> None:
    """A machine with a hundred tasks has one that matters now."""
    lines = [
        ReplayLine(n=1, at="", kind="received", message=msgspec.Raw(b'{"id": "m-1", "mailbox": "inbox", "seq": 1}')),
        ReplayLine(n=2, at="", kind="received", message=msgspec.Raw(b'{"id": "m-2", "mailbox": "task:a", "seq": 1}')),
        ReplayLine(n=3, at="", kind="consumer", consumer="a", mailbox="task:a"),
    ]
    replay = JournalReplay(mailbox="task:a", consumer="a")
    for each in lines:
        replay.add(each)
    (box,) = replay.mailboxes()
    assert (box.name, [each.consumer for each in box.consumers]) == ("task:a", ["a"])
    assert [each.states for each in box.messages] == [{"a": "queued"}]


@given(st.binary() | st.text().map(str.encode) | st.recursive(_LEAVES, _tree).map(msgspec.json.encode))
def test_no_line_of_a_file_can_break_a_replay(data: bytes) -> None:
    """The files lie where anybody may write into them."""
    found = read_line(data)
    if found is not None:
        replay = JournalReplay()
        replay.add(found)
        replay.add_later(found)
        replay.mailboxes()
