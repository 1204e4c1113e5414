"""Runs: headless executions of an agent, and the rules that led to them.

A run's ancestry is noted when it begins, so that the loop guard needs neither the messages nor the runs before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from harken.automation import ACTIONS, ActionId, Run, RunEnd, RunId, RunState
from harken.errors import Conflict, NotFound, UserError
from harken.model import LOCAL, RUN, MessageId
from harken.store.sql import actions
from harken.store.sql.transaction import (
    Readers,
    SqlConnection,
    StoreHolder,
    Transaction,
    encode_json,
    from_micros,
    optional_micros,
    optional_moment,
    to_micros,
)
from harken.store.sql.writer import Writer

COLUMNS = (
    "id, action, rule, message, agent, workdir, tools, state, started_at, pid, leftover, ended_at, exit_code, turns, "
    "denied, answer, reason, machine"
)
INSERT = f"""
INSERT INTO runs ({COLUMNS}, ancestry, daemon) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SELECT = f"SELECT {COLUMNS} FROM runs"
BY_ID = f"{_SELECT} WHERE id = ?"
BY_BEGINNING = f"{_SELECT} WHERE id >= ? AND id < ? LIMIT 2"
IN_FOLDER = "SELECT id FROM runs WHERE machine = ? AND workdir = ? AND workdir <> '' AND state = 'running'"
NEWEST = f"{_SELECT} ORDER BY n DESC LIMIT ?"
# Few run at a time: found by their own index and sorted, not by walking back through all that ended.
NEWEST_RUNNING = f"{_SELECT} WHERE state = 'running' ORDER BY +n DESC LIMIT ?"
OWN_RUNNING = f"{_SELECT} WHERE state = 'running' AND daemon = ? ORDER BY +n DESC LIMIT ?"
NEWEST_ENDED = f"{_SELECT} WHERE state <> 'running' ORDER BY n DESC LIMIT ?"
NEWEST_OF_MESSAGE = f"""
{_SELECT} WHERE message = ? AND (CAST(? AS BIGINT) IS NULL OR iif(state = 'running', 1, 0) = ?) ORDER BY n DESC LIMIT ?
"""
BEGAN = "UPDATE runs SET pid = ? WHERE id = ? AND state = 'running'"
END = """
UPDATE runs SET state = ?, ended_at = ?, exit_code = ?, turns = ?, denied = ?, answer = ?, reason = ?
WHERE id = ? AND state = 'running'
"""
# CROSS keeps this order: from the few that are asked for, not from all that was ever said on this machine.
ANCESTRY = f"""
SELECT m.id, r.ancestry FROM json_each(:messages) wanted
CROSS JOIN messages m ON m.id = wanted.value
CROSS JOIN runs r ON r.id = substr(m.sender_id, {len(RUN) + 1})
WHERE m.source = :local AND substr(m.sender_id, 1, {len(RUN)}) = :run
"""

_BEGINNING: Final = re.compile(r"r-[0-9a-z]+")
_LIST_HINT: Final = "See them with: harken run list"


def ancestry(connection: SqlConnection, messages: Collection[MessageId]) -> Mapping[MessageId, tuple[str, ...]]:
    """Return the rules that led by a run to each of some messages, the nearest first."""
    found: dict[MessageId, tuple[str, ...]] = dict.fromkeys(messages, ())
    asked = {"messages": encode_json(list(messages)), "local": LOCAL, "run": RUN}
    for message, rules in connection.execute(ANCESTRY, asked):
        found[MessageId(message)] = _texts(rules)
    return found


def start(tx: Transaction, run: Run) -> Run:
    """Store a run that begins, and let its action be started."""
    if tx.execute(BY_ID, (run.id,)).fetchone():
        raise Conflict(f"There is a run {run.id[:80]!r} already.", "Give it another id.")
    actions.must_be_queued(tx, run.action)
    if other := tx.execute(IN_FOLDER, (tx.holder.machine, run.workdir)).fetchone():
        raise Conflict(f"Run {other[0]} is in the same folder.", "Wait until it is over.")
    rules = (run.rule, *ancestry(tx.connection, [run.message])[run.message])
    tx.execute(
        INSERT,
        (run.id, run.action, run.rule, run.message, run.agent, run.workdir, encode_json(run.tools), run.state.value,
         to_micros(run.started_at), run.pid, encode_json(run.leftover), optional_micros(run.ended_at), run.exit_code,
         run.turns, encode_json(run.denied), run.answer, run.reason, tx.holder.machine, encode_json(rules),
         tx.holder.daemon),
    )  # fmt: skip
    actions.start(tx, run.action, run.id)
    _changed(tx, run)
    return find_exactly(tx.connection, run.id)


def began(tx: Transaction, run: RunId, pid: int) -> None:
    """Note the process group of a run."""
    if tx.execute(BEGAN, (pid, run)).rowcount:
        tx.grown.add(ACTIONS)


def end(tx: Transaction, run_id: RunId, how: RunEnd) -> Run:
    """Store how a run ended, once."""
    row = (how.state.value, tx.now_micros, how.exit_code, how.turns, encode_json(how.denied), how.answer, how.reason)
    is_first = bool(tx.execute(END, (*row, run_id)).rowcount)
    run = find_exactly(tx.connection, run_id)
    if is_first:
        _changed(tx, run)
    return run


def find(connection: SqlConnection, ref: str) -> Run:
    """Return the run that a reference names."""
    if not _BEGINNING.fullmatch(ref) or connection.execute(BY_ID, (ref,)).fetchone():
        return find_exactly(connection, RunId(ref))
    rows = connection.execute(BY_BEGINNING, (ref, ref + "~")).fetchall()
    if len(rows) > 1:
        raise UserError(f"More than one run id begins with {ref}.", "Give more of the id.")
    return _from_row(rows[0]) if rows else find_exactly(connection, RunId(ref))


def find_exactly(connection: SqlConnection, run_id: RunId) -> Run:
    """Return a run by its whole id."""
    row = connection.execute(BY_ID, (run_id,)).fetchone()
    if row is None:
        raise NotFound(f"There is no run {run_id[:80]!r}.", _LIST_HINT)
    return _from_row(row)


def newest(connection: SqlConnection, *, is_running: bool | None, message: MessageId | None, limit: int) -> list[Run]:
    """Return runs, newest first."""
    if message is not None:
        rows = connection.execute(NEWEST_OF_MESSAGE, (message, is_running, is_running, limit))
    else:
        sql = {None: NEWEST, True: NEWEST_RUNNING, False: NEWEST_ENDED}[is_running]
        rows = connection.execute(sql, (limit,))
    return [_from_row(row) for row in rows]


def _changed(tx: Transaction, run: Run) -> None:
    tx.grown.add(ACTIONS)
    tx.note(
        "run",
        {"run": run.id, "action": run.action, "message_id": run.message, "rule": run.rule, "agent": run.agent,
         "state": run.state.value, "exit_code": run.exit_code, "turns": run.turns, "denied": run.denied,
         "reason": run.reason},
    )  # fmt: skip


def _texts(value: str) -> tuple[str, ...]:
    return msgspec.json.decode(value, type=tuple[str, ...])


def _from_row(row: Sequence[Any]) -> Run:
    return Run(
        id=RunId(row[0]),
        action=ActionId(row[1]),
        rule=row[2],
        message=MessageId(row[3]),
        agent=row[4],
        workdir=row[5],
        tools=_texts(row[6]),
        state=RunState(row[7]),
        started_at=from_micros(row[8]),
        pid=row[9],
        leftover=_texts(row[10]),
        ended_at=optional_moment(row[11]),
        exit_code=row[12],
        turns=row[13],
        denied=_texts(row[14]),
        answer=row[15],
        reason=row[16],
        machine=row[17],
    )


class SqlRuns:
    """The contract of `RunStore`."""

    def __init__(self, writer: Writer, readers: Readers, holder: StoreHolder) -> None:
        self._writer = writer
        self._readers = readers
        self._holder = holder

    async def start(self, run: Run) -> Run:
        """Store a run that begins."""
        return self._from_here(await self._writer.run(lambda tx: start(tx, run)))

    async def began(self, run: RunId, pid: int) -> None:
        """Note the process group of a run."""
        await self._writer.run(lambda tx: began(tx, run, pid), is_durable=False)

    async def end(self, run: RunId, how: RunEnd) -> Run:
        """Store how a run ended."""
        return self._from_here(await self._writer.run(lambda tx: end(tx, run, how)))

    async def get(self, ref: str) -> Run:
        """Return a run."""
        return self._from_here(await self._readers.run(lambda db: find(db, ref)))

    async def list(
        self, *, is_running: bool | None = None, message: MessageId | None = None, limit: int = 200
    ) -> Sequence[Run]:
        """Return runs, newest first."""
        found = await self._readers.run(lambda db: newest(db, is_running=is_running, message=message, limit=limit))
        return [self._from_here(run) for run in found]

    async def own_running(self, limit: int = 200) -> Sequence[Run]:
        """Return the runs of this daemon that are going on."""
        daemon = self._holder.daemon
        return await self._readers.run(
            lambda db: [self._from_here(_from_row(row)) for row in db.execute(OWN_RUNNING, (daemon, limit))]
        )

    def _from_here(self, run: Run) -> Run:
        return replace(run, machine=self._holder.other(run.machine)) if run.machine else run

    async def ancestry(self, messages: Collection[MessageId]) -> Mapping[MessageId, tuple[str, ...]]:
        """Return the rules that led by a run to messages."""
        return await self._readers.run(lambda db: ancestry(db, messages))
