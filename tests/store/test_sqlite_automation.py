"""Rules, actions and runs in a database file: what a kill leaves of them, what reading them costs, how they begin.

`automation_crash_child.py` judges mail, answers a question and lets a run begin and end; it is killed before or after
each of its commits.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import pytest

from harken.automation import ActionState, Mode, Outcome, RuleCount, RunEnd, RunState
from harken.model import LOCAL, MessageId, Sender
from harken.store.contract import Store
from harken.store.contract.automation import Settlement
from harken.store.sql import actions, rules, runs
from harken.store.sqlite import open_store
from harken.store.sqlite.connection import connect, migrations
from harken.testing import FakeClock
from tests.contracts.rules import FIRST, ORDER, WINDOW, run_of, say, settle, verdict
from tests.contracts.store_suite import new_message, texts
from tests.cost import Ask, steps_of
from tests.store.automation_crash_child import ACTS, ASKS, MODES, STEPS, TELLS, live, steps
from tests.store.conftest import Storyteller

FEW: Final = 400
MANY: Final = 2_400
TOLERANCE: Final = 1.3  # a deeper tree costs a few steps more; reading everything would cost six times as much
EARLIER: Final = """
INSERT INTO messages (id, mailbox, seq, received_at, source, channel, conversation, thread, kind, trust, attention,
    priority, sender_id, sender_name, upstream_id, meta, text)
VALUES (?, 'inbox', ?, 5000000, 'teams', 'c', '', '', 'message', 'known', 'wake', 'normal', 'ann', '', '', '{}', ?)
"""


def expected_states(done: set[str]) -> dict[str, ActionState]:
    """Return what each rule's action is after some steps of the story."""
    if "judged" not in done:
        return {}
    asked = ActionState.WAITING
    if "answered" in done:
        asked = ActionState.STARTED if "started" in done else ActionState.QUEUED
    acts = ActionState.REFUSED if "refused" in done else ActionState.QUEUED
    return {ASKS: asked, ACTS: acts, TELLS: ActionState.TOLD}


async def check_promises(store: Store, reached: int) -> None:
    """Check that everything up to a step of the story is there, whole, and nothing of the next."""
    done = set(STEPS[:reached])
    assert await texts(store) == (["one", "two"] if "mail" in done else [])
    states = {action.rule: action.state for action in await store.actions.list()}
    assert states == expected_states(done)
    standing = await store.rules.state(MODES, [(rule, FIRST) for rule in MODES])
    assert standing.judged == (2 if "judged" in done else 0)
    assert standing.waiting == sum(state.is_waiting for state in states.values())
    assert standing.is_paused == ("paused" in done)
    assert len(standing.fired) == len(standing.duplicates) == len(states)
    fired = {rule: RuleCount(outcomes={Outcome.FIRED: 1}, last_fired_at=FakeClock().now()) for rule in states}
    assert await store.rules.counts() == fired
    if "mail" in done:
        decided = await store.rules.verdicts((await store.messages.get("#1")).id)
        assert [each.rule for each in decided] == (list(MODES) if states else [])
    state = RunState.DONE if "ended" in done else RunState.RUNNING
    assert [run.state for run in await store.runs.list()] == ([state] if "started" in done else [])
    events = [event.n for event in await store.events.after(0, 1000)]
    assert events == list(range(1, len(events) + 1))


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("commit", range(1, len(STEPS) + 1))
async def test_a_kill_leaves_every_step_of_an_action_whole(
    tmp_path: Path, storyteller: Storyteller, commit: int, side: str
) -> None:
    """An action without its verdict would fire twice, one without its run would never end: all of it or nothing."""
    path, clock = tmp_path / "harken.db", FakeClock()
    code, told = storyteller("automation", path, commit, side)
    assert code == -signal.SIGKILL
    assert [line[0] for line in told if line[0] in STEPS] == list(STEPS[: commit - 1])
    async with open_store(path, clock) as store:
        await check_promises(store, commit if side == "after" else commit - 1)
        await live(store, clock)
        await check_promises(store, len(STEPS))


async def test_the_story_has_as_many_commits_as_are_tried(tmp_path: Path, storyteller: Storyteller) -> None:
    """If the story grows, the kills must grow with it."""
    code, told = storyteller("automation", tmp_path / "harken.db", len(STEPS) + 1, "before")
    assert code == 0
    assert [line[0] for line in told if line[0] in STEPS] == list(STEPS)
    async with open_store(tmp_path / "other.db", FakeClock()) as store:
        assert tuple(steps(store, FakeClock())) == STEPS


async def test_mail_that_was_here_before_the_rules_is_not_judged(tmp_path: Path) -> None:
    """Whoever comes from an earlier version must not see years of mail set off their first rule."""
    path, clock = tmp_path / "harken.db", FakeClock()
    with closing(connect(str(path))) as connection:
        for number, script in migrations():
            if number <= 4:
                connection.executescript(script)
        connection.execute("PRAGMA user_version = 4")
        connection.executemany(EARLIER, [("m-1", 1, "old"), ("m-2", 2, "older than the rules")])
        connection.execute("INSERT INTO mailboxes VALUES ('inbox', 2)")
    async with open_store(path, clock) as store:
        standing = await store.rules.state()
        assert (standing.judged, standing.head, standing.is_paused) == (2, 2, False)
        [message] = await say(store, "new")
        assert [each.text for _, each in await store.rules.unjudged(standing.judged, 100)] == ["new"]
        old = await store.messages.get("m-1")
        [action] = await settle(store, clock, [verdict(old), verdict(message)])
        assert action.message == message.id


async def fill_with_automation(path: Path, count: int) -> None:
    """Make a store in which rules fired so often, with as many runs; two of these run, and three actions wait."""
    clock = FakeClock()
    said_by_run = replace(new_message("done"), source=LOCAL, sender=Sender("run:r-000000"))
    async with open_store(path, clock) as store:
        for begin in range(0, count, 200):
            messages = [each.message for each in await store.messages.append([new_message()] * 199 + [said_by_run])]
            place = (await store.rules.state()).head
            fired = [verdict(each, mode=Mode.NOTIFY, digest=each.id.encode()) for each in messages]
            await settle(store, clock, fired, judged=place)
            async with anyio.create_task_group() as lives:
                for number in range(begin, begin + 50):
                    lives.start_soon(_run, store, messages[number % 200].id, number)
        last = await say(store, "one", "two", "three")
        await settle(store, clock, [verdict(each) for each in last])
        for number in range(2):
            action = await store.actions.add(last[0].id, ORDER, "cli")
            await store.runs.start(run_of(action, f"r-now{number}", f"/w/{number}"))


async def _run(store: Store, message: MessageId, number: int) -> None:
    action = await store.actions.add(message, ORDER, "cli")
    run = await store.runs.start(run_of(action, f"r-{number:06}", ""))
    await store.runs.end(run.id, RunEnd(state=RunState.DONE))


def newest_messages(connection: sqlite3.Connection) -> list[MessageId]:
    """Return the messages of the newest actions."""
    return [action.message for action in actions.newest(connection, (), None, 20)]


READS: Final[Mapping[str, Ask]] = {
    "state": lambda db: rules.state(db, ["red"], [("red", FIRST)]),
    "unjudged": lambda db: rules.unjudged(db, rules.state(db, (), ()).judged, 100),
    "ancestry": lambda db: runs.ancestry(db, newest_messages(db)),
    "verdicts": lambda db: [rules.of_message(db, message) for message in newest_messages(db)],
    "counts": rules.counts,
    "an action": lambda db: actions.find(db, actions.newest(db, (), None, 1)[0].id[:-1]),
    "newest actions": lambda db: actions.newest(db, (), None, 20),
    "what waits": lambda db: actions.newest(db, [ActionState.WAITING, ActionState.QUEUED], None, 20),
    "told and waiting": lambda db: actions.newest(db, [ActionState.TOLD, ActionState.WAITING], None, 20),
    "actions of a message": lambda db: actions.newest(db, (), newest_messages(db)[0], 20),
    "a run": lambda db: runs.find(db, "r-now1"),
    "newest runs": lambda db: runs.newest(db, is_running=None, message=None, limit=20),
    "what runs": lambda db: runs.newest(db, is_running=True, message=None, limit=20),
    "what ended": lambda db: runs.newest(db, is_running=False, message=None, limit=20),
    "runs of a message": lambda db: runs.newest(db, is_running=None, message=newest_messages(db)[0], limit=20),
}


async def test_reading_costs_what_is_told_and_not_what_happened_before(tmp_path: Path) -> None:
    """Judging asks these for every message, and the page for every look: a long history must not make it slow."""
    few, many = tmp_path / "few.db", tmp_path / "many.db"
    await fill_with_automation(few, FEW)
    await fill_with_automation(many, MANY)
    taken = {name: (steps_of(few, ask), steps_of(many, ask)) for name, ask in READS.items()}
    assert all(before > 10 for before, _ in taken.values()), "nothing was read"
    assert {name: pair for name, pair in taken.items() if pair[1] > pair[0] * TOLERANCE} == {}


async def test_a_round_with_nothing_to_settle_leaves_no_trace(tmp_path: Path) -> None:
    """The judge looks now and then: that must not fill the journal, nor make another judge decide again."""
    clock = FakeClock()
    async with open_store(tmp_path / "harken.db", clock) as store:
        before = await store.rules.state(), await store.events.last()
        empty = Settlement(revision=0, judged=0, verdicts=[], keep_since=clock.now() - WINDOW)
        assert await store.rules.settle(empty) == []
        assert (await store.rules.state(), await store.events.last()) == before
