"""A database that is built anew from the journal has what the lost one had."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harken.model import (
    INBOX,
    WATCH,
    ApprovalChoice,
    Consumer,
    Mailbox,
    Occasion,
    Schedule,
    SenderRule,
    SessionKey,
    Task,
    TaskId,
    Trust,
)
from harken.store.contract import Store
from harken.store.contract.conversations import ConversationState, Triage
from harken.store.contract.messages import Checkpoint
from harken.store.contract.people import Mute
from harken.store.contract.retention import Limits
from harken.store.journal import Journal, JournalLine, lines_after
from harken.store.sqlite import open_store
from harken.store.sqlite.connection import prepare_file
from harken.store.sqlite.rebuild import Rebuild, RebuildReport
from harken.testing import FakeClock
from tests.contracts.approvals import PATIENCE, answer_to, request_of
from tests.contracts.rules import run_of, settle, verdict
from tests.contracts.store_suite import (
    AGENT,
    EVERYTHING,
    LONG_SECONDS,
    OTHER,
    OTHER_READER,
    READER,
    fill,
    new_message,
    offer,
)

MANY = 100
MAILED = Checkpoint("teams", "chat", "p1")
TABLES = {
    "messages": "SELECT * FROM messages",
    "mailboxes": "SELECT * FROM mailboxes",
    "dedup": "SELECT hex(key), message FROM dedup",
    "checkpoints": "SELECT * FROM checkpoints",
    "cursors": "SELECT * FROM cursors",
    "deliveries": "SELECT consumer, mailbox, seq, message, state, offers, evidence, seen_at, reason FROM deliveries",
    "outbox": "SELECT id, message, body, author, state, error, upstream_id, created_at FROM outbox",
    "senders": "SELECT * FROM senders",
    "mutes": "SELECT * FROM mutes",
    "put_away": "SELECT * FROM put_away",
    "tasks": "SELECT * FROM tasks",
    "task_links": "SELECT * FROM task_links",
    "questions": "SELECT message, mailbox, asked_at, sender FROM questions",
    "verdicts": "SELECT message, rule, place, outcome, reason, earlier, hex(digest), action, at FROM verdicts",
    "rule_windows": "SELECT rule, hex(digest), message, at FROM rule_windows",
    "rule_counts": "SELECT * FROM rule_counts",
    "actions": "SELECT n, id, rule, mode, message, state, created_at, decided_by, reason, run FROM actions",
    "runs": "SELECT n, id, action, rule, message, agent, state, started_at, ended_at, exit_code, reason FROM runs",
    "approvals": "SELECT * FROM approvals",
    "scheduled": "SELECT * FROM scheduled",
    "events": "SELECT * FROM events",
    "channels": "SELECT * FROM channels",
    "conversations": "SELECT * FROM conversations",
    "conversation_messages": "SELECT * FROM conversation_messages",
}


def rows(database: Path, table: str) -> list[Any]:
    """Everything in a table that the journal tells of."""
    with closing(sqlite3.connect(database)) as connection:
        return sorted(connection.execute(TABLES[table]).fetchall(), key=repr)


def rebuilt(folder: Path, lines: Sequence[JournalLine], name: str = "rebuilt.db") -> tuple[Path, RebuildReport]:
    """Build a database from lines."""
    target = folder / name
    prepare_file(target)
    with Rebuild(target) as rebuild:
        rebuild.replay(lines, 0)
        rebuild.finish("abc", 2)
    return target, rebuild.report


async def correspond(store: Store, clock: FakeClock) -> None:
    """Let messages come, be offered, seen, answered and withdrawn."""
    await store.deliveries.enroll(AGENT, INBOX, clock.now())
    batch = [new_message(f"number {number}", key=bytes([number]), channel="dev") for number in range(1, 7)]
    await store.messages.append(batch[:3], MAILED)
    await store.messages.append(batch[2:], Checkpoint("teams", "chat", "p2"))
    first = await offer(store, clock, READER, limit=2)
    await store.deliveries.prove([each.delivery_id for each in first], "later call")
    await offer(store, clock, READER, limit=2)
    clock.advance(1)
    await store.deliveries.enroll(OTHER, INBOX, clock.now() - timedelta(days=1))
    await offer(store, clock, OTHER_READER, limit=1)
    await store.deliveries.withdraw(OTHER_READER.session, "")
    third = (await store.messages.page(EVERYTHING, 10))[2]
    await store.deliveries.acknowledge(OTHER_READER, [third.id], "ack")
    sent = await store.outbox.add(third.id, "sent", author="agent", consumer=AGENT)
    await store.outbox.sent(sent.id, "up-1")
    parked = await store.outbox.add(third.id, "parked", author="agent", consumer=OTHER)
    await store.outbox.failed(parked.id, "no such chat", due_at=None)
    await store.outbox.add(third.id, "waits", author="agent", consumer=AGENT)


async def approve(store: Store, clock: FakeClock) -> None:
    """Let hosts ask, and approvals take every step."""
    asked = [await store.approvals.ask(request_of(f"{number}"), PATIENCE) for number in range(5)]
    await store.approvals.show(asked[0].id, "page")
    await store.approvals.answer(answer_to(asked[0]))
    clock.advance(1)
    await store.approvals.obey(asked[0].id, "its record")
    await store.approvals.answer(replace(answer_to(asked[1], ApprovalChoice.NO), reason="no"))
    await store.approvals.withdraw(asked[2].id, "its host is gone")
    await store.approvals.answer(answer_to(asked[3]))
    await store.approvals.withdraw(asked[3].id, "its host is gone")
    clock.advance(PATIENCE.total_seconds())
    await store.approvals.expire()
    await store.approvals.ask(request_of("open"), PATIENCE)


async def plan(store: Store, clock: FakeClock) -> None:
    """Let messages wait for their time, enter their mailbox and be withdrawn."""
    times = [Schedule(due_at=clock.now() + timedelta(hours=n)) for n in range(1, 4)]
    added = [await store.schedule.add(new_message(f"{n}", key=b"s%d" % n), time) for n, time in enumerate(times)]
    turn = Schedule(occasion=Occasion.TURN, turns={SessionKey("s1"): "t1"})
    await store.schedule.add(replace(new_message("text"), meta={"a": "b"}, author=WATCH), turn)
    clock.advance(3600)
    await store.schedule.release([added[0].message.id])
    await store.schedule.withdraw(added[1].message.id, "owner")


async def decide(store: Store, clock: FakeClock) -> None:
    """Let people decide about senders, mutes, tasks, rules, approvals and what is said later."""
    await approve(store, clock)
    await plan(store, clock)
    await store.people.set_sender(SenderRule("mail", "eve@example.org", Trust.KNOWN))
    await store.people.set_sender(SenderRule("mail", "tom@example.org", Trust.UNKNOWN))
    await store.people.forget_sender("mail", "tom@example.org")
    await store.people.set_mute(Mute("channel", "dev", clock.now() + timedelta(hours=1)), is_on=True)
    await store.people.set_mute(Mute("channel", "ops", None), is_on=True)
    await store.people.set_mute(Mute("channel", "ops", None), is_on=False)
    await store.people.put_away(["question:m-1", "reply:r-1:3"], is_on=True)
    await store.people.put_away(["question:m-1"], is_on=False)
    await store.people.clear_channels()
    for name in ("a", "b", "c"):
        task = Task(id=TaskId(name), title=name, dir=f"/srv/{name}", created_at=clock.now(), agent="codex")
        await store.tasks.add(task, [TaskId("a")] if name == "c" else [])
    await store.tasks.link(TaskId("a"), TaskId("b"), is_on=True)
    await fill(store, "for c", mailbox=Mailbox("task:c"))
    await store.tasks.start(TaskId("c"))
    await store.tasks.finish(TaskId("c"))
    await store.tasks.remove(TaskId("c"))
    messages = await store.messages.page(EVERYTHING, 10)
    done, snoozed, marked = (each.id for each in messages[:3])
    until = clock.now() + timedelta(hours=3)
    await store.conversations.triage([Triage(message=done, state=ConversationState.DONE)])
    await store.conversations.triage([Triage(message=snoozed, state=ConversationState.SNOOZED, until=until)])
    await store.conversations.mark([marked], is_unread=True)
    [action] = await settle(store, clock, [verdict(messages[0])])
    [other] = await settle(store, clock, [verdict(messages[1], "held")])
    await store.actions.answer(other.id, is_yes=False, by="me")
    ready = await store.actions.answer(action.id, is_yes=True, by="me")
    await store.runs.start(run_of(ready))
    await store.rules.pause(is_on=True)


async def lived(folder: Path, clock: FakeClock) -> Path:
    """A store with a history, and its journal beside it."""
    database, written = folder / "harken.db", folder / "journal"
    written.mkdir()
    journal = Journal(written)
    async with open_store(database, clock, after_commit=journal.observe) as store:
        await journal.recover(store.events, await store.health.identity())
        await correspond(store, clock)
        await decide(store, clock)
        clock.advance(10)
        question = new_message("when?", key=b"q")
        await store.messages.append([question])
        await store.messages.index(MANY)
    journal.close()
    return database


async def test_rebuilt_database_has_what_the_lost_one_had(tmp_path: Path) -> None:
    """Whatever is in a table and not in the journal is lost with the database: this is the list of what may not be."""
    database = await lived(tmp_path, FakeClock())
    target, report = rebuilt(tmp_path, list(lines_after(tmp_path / "journal", 0)))
    assert (report.strange_lines, report.missing_lines, report.lost_messages, report.earlier_lines) == (0, 0, 0, 0)
    assert {name: rows(target, name) for name in TABLES} == {name: rows(database, name) for name in TABLES}


async def test_rebuilt_database_goes_on(tmp_path: Path) -> None:
    """A source that yields again what was received is recognised, and the next message follows the last."""
    clock = FakeClock()
    database = await lived(tmp_path, clock)
    target, _ = rebuilt(tmp_path, list(lines_after(tmp_path / "journal", 0)))
    async with open_store(database, clock) as store:
        unread = {consumer: (await store.deliveries.unread(consumer)).count for consumer in (READER, OTHER_READER)}
    async with open_store(target, clock) as store:
        assert {
            consumer: (await store.deliveries.unread(consumer)).count for consumer in (READER, OTHER_READER)
        } == unread
        assert await store.checkpoints.get("teams", "chat") == "p2"
        [known] = await store.messages.append([new_message("number 1", key=b"\x01")])
        assert not known.is_new
        last = await store.events.last()
        [new] = await store.messages.append([new_message("new")])
        assert (new.message.seq, await store.events.last()) == (9, last + 1)
        identity = await store.health.identity()
        assert str(identity) == "abc.2"


async def test_what_retention_removed_stays_away(tmp_path: Path) -> None:
    """The journal holds every text for ever; the store does not."""
    clock, written = FakeClock(), tmp_path / "journal"
    written.mkdir()
    journal = Journal(written)
    async with open_store(tmp_path / "harken.db", clock, after_commit=journal.observe) as store:
        await journal.recover(store.events, await store.health.identity())
        spoken = [replace(new_message(text), thread="chat") for text in ("one", "two", "three")]
        [*_, last] = await store.messages.append(spoken)
        await store.conversations.triage([Triage(message=last.message.id, state=ConversationState.DONE)])
        await store.messages.append([replace(new_message("mine"), thread="chat", author=WATCH)])
        for _ in range(2):
            await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))
    target, report = rebuilt(tmp_path, list(lines_after(written, 0)))
    for table in ("messages", "conversations"):
        assert rows(target, table) == rows(tmp_path / "harken.db", table)
    assert (report.messages, report.lost_messages) == (1, 0)


async def test_what_an_upgrade_called_done_is_done_again(tmp_path: Path) -> None:
    """What you had seen when the list of conversations began was done: a lost database must not bring it all back."""
    clock, written = FakeClock(), tmp_path / "journal"
    written.mkdir()
    journal = Journal(written)
    async with open_store(tmp_path / "harken.db", clock, after_commit=journal.observe) as store:
        await journal.recover(store.events, await store.health.identity())
        [read, _] = await store.messages.append([replace(new_message(text), thread=text) for text in ("read", "new")])
    lines = list(lines_after(written, 0))
    upgraded: list[JournalLine] = [
        {"kind": "seen", "consumer": WATCH, "deliveries": {"d-1": read.message.id}, "evidence": "cli"},
        {"kind": "sorted"},
    ]
    numbered = [{**lines[-1], "n": n, **line} for n, line in enumerate(upgraded, len(lines) + 1)]
    target, report = rebuilt(tmp_path, [*lines, *numbered])
    assert report.strange_lines == 0
    with closing(sqlite3.connect(target)) as connection:
        triage = dict(connection.execute("SELECT thread, triage FROM conversations").fetchall())
    assert triage == {"read": "done", "new": ""}


@pytest.mark.parametrize("missing", range(1, 4))
async def test_missing_line_is_counted_and_does_not_stay_unread_for_ever(tmp_path: Path, missing: int) -> None:
    """What is unread is counted by numbers: a number with nothing behind it would wait for ever."""
    clock, written = FakeClock(), tmp_path / "journal"
    written.mkdir()
    journal = Journal(written)
    async with open_store(tmp_path / "harken.db", clock, after_commit=journal.observe) as store:
        await journal.recover(store.events, await store.health.identity())
        await fill(store, "one", "two", "three")
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
    lines = [line for line in lines_after(written, 0) if line["n"] != missing]
    target, report = rebuilt(tmp_path, lines)
    is_last = missing == 3
    assert (report.messages, report.missing_lines) == (2, 1)
    assert report.lost_messages == (0 if is_last else 1)
    async with open_store(target, clock) as store:
        assert (await store.deliveries.unread(READER)).count == 2
        assert len(await offer(store, clock, READER, limit=10)) == 2


async def test_lines_that_are_no_lines_of_ours_are_counted(tmp_path: Path) -> None:
    """The files are the person's: whatever stands there must not keep the rest from being read."""
    await lived(tmp_path, FakeClock())
    lines = list(lines_after(tmp_path / "journal", 0))
    strange: list[JournalLine] = [
        {"n": 1001, "at": "yesterday", "kind": "received"},
        {"n": 1002, "at": lines[0]["at"], "kind": "received", "message": {"id": 7}},
        {"n": 1003, "at": lines[0]["at"], "kind": "seen", "consumer": "a", "deliveries": {"d-1": "m-none"}},
        {"n": 1004, "at": lines[0]["at"], "kind": "received", "message": []},
        {"n": 1005, "at": lines[0]["at"], "kind": "answered", "reply": []},
        {"n": 1006, "at": lines[0]["at"], "kind": "task", "task": {}, "change": "created", "recovery": []},
        {"n": 1007, "at": lines[0]["at"], "kind": ["received"]},
        {"n": 1008, "at": lines[0]["at"], "kind": "pruned", "ranges": {"inbox": [["a", "b"]]}},
    ]
    whole, _ = rebuilt(tmp_path, lines, "whole.db")
    target, report = rebuilt(tmp_path, [*lines, *json.loads(json.dumps(strange))])
    assert report.strange_lines >= 5
    assert rows(target, "messages") == rows(whole, "messages")
    assert rows(target, "deliveries") == rows(whole, "deliveries")


async def test_line_of_the_version_before_gives_what_it_has(tmp_path: Path) -> None:
    """A reply without its text must not leave as nothing, and a task without its folder is none."""
    await lived(tmp_path, FakeClock())
    lines = [
        {name: value for name, value in line.items() if name not in {"store", "recovery"}}
        for line in lines_after(tmp_path / "journal", 0)
    ]
    target, report = rebuilt(tmp_path, lines)
    assert report.earlier_lines == len(lines)
    assert (report.replies_without_text, report.tasks_without_folder) == (2, 3)
    assert [row[4] for row in rows(target, "outbox")] == ["sent"]
    assert len(rows(target, "messages")) == 9
    assert rows(target, "dedup") == []
    assert Consumer(AGENT) in {row[0] for row in rows(target, "cursors")}
