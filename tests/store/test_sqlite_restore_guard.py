"""Holding back in a database file: what is ended, what is counted, and that each is ended from the state it is in."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from harken.automation import Action, ActionState
from harken.errors import Conflict
from harken.model import ApprovalState
from harken.store.sql import actions
from harken.store.sql.transaction import Transaction
from harken.store.sqlite import open_store
from harken.store.sqlite.connection import connect
from harken.store.sqlite.snapshot import hold
from harken.testing import FakeClock
from tests.contracts.approvals import PATIENCE, answer_to, request_of
from tests.contracts.rules import ORDER, ask, say


async def two_actions(database: Path) -> tuple[Action, Action]:
    """Let a question wait and something by hand be queued; return them."""
    clock = FakeClock()
    async with open_store(database, clock) as store:
        asked = await ask(store, clock)
        return asked, await store.actions.add(asked.message, ORDER, "cli")


async def test_only_a_question_is_withdrawn(tmp_path: Path) -> None:
    """What has its answer goes its own way: ending it as a question would hide what became of it."""
    asked, queued = await two_actions(tmp_path / "harken.db")
    with closing(connect(f"{tmp_path / 'harken.db'}")) as connection:
        tx = Transaction(connection, FakeClock().now() + timedelta(minutes=1))
        with pytest.raises(Conflict, match="is queued already"):
            actions.withdraw(tx, queued.id, "over")
        assert actions.find_exactly(connection, queued.id) == queued
        assert actions.withdraw(tx, asked.id, "over").state is ActionState.EXPIRED
        with pytest.raises(Conflict, match="is expired already"):
            actions.withdraw(tx, asked.id, "again")
        assert actions.find_exactly(connection, asked.id).reason == "over"


async def test_no_approval_of_a_copy_can_be_answered_or_obeyed(tmp_path: Path) -> None:
    """Its host has decided by itself since: an answer that counted now would allow something else."""
    database = tmp_path / "harken.db"
    async with open_store(database, FakeClock()) as store:
        asked = [await store.approvals.ask(request_of(f"{number}"), PATIENCE) for number in range(2)]
        await store.approvals.answer(answer_to(asked[0]))
    for _ in range(2):
        hold(database)
    async with open_store(database, FakeClock()) as store:
        found = await store.approvals.list()
        assert [each.state for each in found] == [ApprovalState.WITHDRAWN] * 2
        with pytest.raises(Conflict, match="withdrawn"):
            await store.approvals.answer(answer_to(asked[1]))


async def test_mail_counts_as_not_judged_only_where_there_are_rules(tmp_path: Path) -> None:
    """Without rules nobody looks at mail, and a number would frighten for nothing."""
    database = tmp_path / "harken.db"
    async with open_store(database, FakeClock()) as store:
        await say(store, "one", "two")
    assert hold(database).unjudged == 0
    async with open_store(database, FakeClock()) as store:
        await store.rules.keep('{"rules": []}', 0)
        await say(store, "three", "four", "five")
    assert hold(database).unjudged == 3
    assert hold(database).unjudged == 0
