"""Callers that meet in one commit: each gets what it would have got alone, and fails alone."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.errors import UserError
from harken.model import INBOX, Mailbox, NewMessage
from harken.store.contract import Store
from harken.store.contract.events import Event
from harken.store.contract.messages import AppendResult
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.contracts.store_suite import TASK, WAIT_SECONDS, new_message, texts
from tests.examples import examples

Caller = tuple[bytes | None, bytes | None, Mailbox]
"""The keys of a message and of what it refers to, and its mailbox."""

KEYS = st.sampled_from([None, b"a", b"b", b"c", b"d"])
CALLERS = st.lists(st.lists(st.tuples(KEYS, KEYS, st.sampled_from([INBOX, TASK])), max_size=4), min_size=2, max_size=40)


@dataclass(frozen=True, slots=True)
class Gate:
    """Holds the first commit until the test has brought everybody else."""

    entered: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def opener(self, path: str) -> sqlite3.Connection:
        """Open a connection behind this gate."""
        gate = self

        class Gated(sqlite3.Connection):
            def execute(self, sql: str, parameters: sqlite3._Parameters = (), /) -> sqlite3.Cursor:
                if sql == "COMMIT" and not gate.entered.is_set():
                    gate.entered.set()
                    assert gate.opened.wait(WAIT_SECONDS)
                return super().execute(sql, parameters)

        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Gated)


@dataclass(slots=True)
class Seen:
    """The commits that were observed."""

    commits: list[Sequence[Event]] = field(default_factory=list)

    def observe(self, events: Sequence[Event]) -> None:
        """Take note of one."""
        self.commits.append(tuple(events))


async def bring_together(store: Store, gate: Gate, callers: Sequence[Sequence[NewMessage]]) -> list[object]:
    """Let everybody wait for one commit, and return what each of them got."""
    results: list[object] = [None] * len(callers)

    async def bring(place: int, messages: Sequence[NewMessage]) -> None:
        try:
            results[place] = await store.messages.append(messages)
        except UserError as exc:
            results[place] = exc

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.messages.append, [new_message("first")])
            assert await anyio.to_thread.run_sync(gate.entered.wait, WAIT_SECONDS)
            for place, messages in enumerate(callers):
                tasks.start_soon(bring, place, messages)
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
    return results


def outcome(results: Sequence[object]) -> list[object]:
    """Return results in a form in which random ids are the order in which they came up."""
    order: dict[str | None, int | None] = {None: None}
    told: list[object] = []
    for result in results:
        if not isinstance(result, list):
            told.append(repr(result))
            continue
        for each in result:
            assert isinstance(each, AppendResult)
            message = each.message
            own = order.setdefault(message.id, len(order))
            told.append((each.is_new, message.mailbox, message.seq, message.text, own, order[message.refers_to]))
        told.append("next")
    return told


async def met_and_alone(folder: Path, callers: Sequence[Sequence[NewMessage]]) -> tuple[list[object], list[object]]:
    """Return what callers get who meet in one commit, and what they get one after the other."""
    gate, seen = Gate(), Seen()
    async with open_store(folder / "met.db", FakeClock(), opener=gate.opener, after_commit=seen.observe) as store:
        met = await bring_together(store, gate, callers)
        stored = await texts(store)
    assert len(seen.commits) <= 2
    async with open_store(folder / "alone.db", FakeClock()) as store:
        await store.messages.append([new_message("first")])
        alone: list[object] = [await store.messages.append(messages) for messages in callers]
        assert await texts(store) == stored
    return outcome(met), outcome(alone)


@settings(max_examples=examples(30), deadline=None)
@given(CALLERS)
def test_callers_that_meet_get_what_each_gets_alone(callers: Sequence[Sequence[Caller]]) -> None:
    """They share their statements; who was first, and what refers to what, must not change by that."""
    wanted = [
        [
            replace(new_message(f"{place}.{number}", mailbox=mailbox, key=key), refers_key=refers)
            for number, (key, refers, mailbox) in enumerate(messages)
        ]
        for place, messages in enumerate(callers)
    ]
    with tempfile.TemporaryDirectory() as folder:
        met, alone = anyio.run(met_and_alone, Path(folder), wanted)
    assert met == alone


async def test_what_cannot_be_stored_fails_only_for_its_caller(tmp_path: Path) -> None:
    """Whoever brings half a letter must not cost others their messages."""
    gate = Gate()
    wanted = [[new_message("one")], [new_message("half \ud800")], [new_message("two")]]
    async with open_store(tmp_path / "harken.db", FakeClock(), opener=gate.opener) as store:
        results = await bring_together(store, gate, wanted)
        assert await texts(store) == ["first", "one", "two"]
    assert [type(result) for result in results] == [list, UserError, list]


@pytest.mark.parametrize("count", [1, 2, 31, 33, 70])
async def test_many_messages_are_numbered_without_gaps(tmp_path: Path, count: int) -> None:
    """Rows go in groups of several sizes; none may be left out between two groups."""
    seen = Seen()
    async with open_store(tmp_path / "harken.db", FakeClock(), after_commit=seen.observe) as store:
        appended = await store.messages.append([new_message(f"{n}", key=b"%d" % n) for n in range(count)])
        assert await texts(store) == [f"{n}" for n in range(count)]
    assert [each.message.seq for each in appended] == list(range(1, count + 1))
    [events] = seen.commits
    assert [event.n for event in events] == list(range(1, count + 1))
    assert [event.message for event in events] == [each.message for each in appended]


async def test_what_came_in_the_turn_in_which_the_store_closes_is_stored(tmp_path: Path) -> None:
    """It was taken, and whoever brought it waits: closing must not forget what nobody began yet."""
    results: list[Sequence[AppendResult]] = []

    async def bring(store: Store) -> None:
        results.append(await store.messages.append([new_message("last")]))

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks, open_store(tmp_path / "db", FakeClock()) as store:
            tasks.start_soon(bring, store)
            await anyio.lowlevel.checkpoint()
    assert [appended.message.text for appended in results[0]] == ["last"]
