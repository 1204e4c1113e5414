"""Holding back what a restored copy would do again: replies that wait to leave, and actions and runs that are not over.

All of it may have happened after the copy was taken. Nothing of it goes on by itself: replies are parked, actions and
runs end in states that people see, and whether one is done again is theirs to say. It changes a file that no daemon
has open; how a copy is taken and looked at is in `snapshot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harken.automation import Action, ActionState, Run, RunEnd, RunState
from harken.store.sqlite import actions, runs
from harken.store.sqlite.connection import connect, prepare_file
from harken.store.sqlite.errors import translated
from harken.store.sqlite.transaction import Transaction

MAY_HAVE_LEFT: Final = "It waited to leave when {moment}, and may have left since."
MAY_HAVE_RUN: Final = "it was queued when {moment}, and may have run since"
MAY_BE_ANSWERED: Final = "it waited for your answer when {moment}, and may have run since"
RAN: Final = "it ran when {moment}; how it ended is not known here"
BACKED_UP: Final = "the backup was taken"
LOST: Final = "the database was lost"
QUEUED_REPLIES: Final = "SELECT id FROM outbox WHERE state = 'queued'"
PARK: Final = "UPDATE outbox SET state = 'parked', error = ? WHERE id = ?"
# What was received and not judged yet was judged after the copy was taken: its rule may have run, too.
# Without rules nobody looks, and how far they came is not kept.
UNJUDGED: Final = """
SELECT count(*) FROM messages, rule_state WHERE rule_state.text IS NOT NULL AND messages.n > rule_state.judged
"""
SKIP: Final = """
UPDATE rule_state SET revision = revision + 1, judged = max(judged, (SELECT coalesce(max(n), 0) FROM messages))
"""
ALL: Final = -1  # as a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldWork:
    """What was held back, as it is now, the oldest first."""

    replies: int
    actions: Sequence[Action]
    runs: Sequence[Run]
    unjudged: int  # messages that rules may not have looked at yet: they do not any more


def hold(database: Path, moment: str = BACKED_UP) -> HeldWork:
    """Hold back what a copy that is to be used would do again, and bring it to the newest schema before.

    One transaction; doing it twice holds nothing back the second time. Queued replies become `parked`, queued actions
    `refused`, questions `expired`, runs `interrupted`. What rules have not judged by then they do not judge. Journals
    `parked`, `action` and `run`.
    """
    with translated():
        prepare_file(database)
        with closing(connect(f"{database}")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            tx = Transaction(connection, datetime.now(UTC))
            unjudged = int(tx.execute(UNJUDGED).fetchone()[0])
            held = HeldWork(
                replies=_park(tx, moment),
                actions=_end_actions(tx, moment),
                runs=_end_runs(tx, moment),
                unjudged=unjudged,
            )
            tx.execute(SKIP)
            connection.execute("COMMIT")
    return held


def _park(tx: Transaction, moment: str) -> int:
    error = MAY_HAVE_LEFT.format(moment=moment)
    waiting = [str(row[0]) for row in tx.execute(QUEUED_REPLIES)]
    for reply in waiting:
        tx.execute(PARK, (error, reply))
        tx.note("parked", {"reply": reply, "error": error})
    return len(waiting)


def _end_actions(tx: Transaction, moment: str) -> list[Action]:
    """End what waits. A question too: the answer to it may come once more, out of a chat that is read again."""
    count = actions.waiting(tx.connection)
    found = actions.newest(tx.connection, (ActionState.QUEUED, ActionState.WAITING), None, count)
    return [
        actions.refuse(tx, each.id, MAY_HAVE_RUN.format(moment=moment))
        if each.state is ActionState.QUEUED
        else actions.withdraw(tx, each.id, MAY_BE_ANSWERED.format(moment=moment))
        for each in reversed(found)
    ]


def _end_runs(tx: Transaction, moment: str) -> list[Run]:
    found = runs.newest(tx.connection, is_running=True, message=None, limit=ALL)
    how = RunEnd(state=RunState.INTERRUPTED, reason=RAN.format(moment=moment))
    return [runs.end(tx, each.id, how) for each in reversed(found)]
