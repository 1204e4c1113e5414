"""Actions: what a match asked for, from the question to its run or its end.

An action that waits counts for what may still fire, so what changes their number changes the revision. Verdicts, which
make most actions, are in `rules`; runs, which end their waiting, in `runs`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from harken.automation import ACTIONS, MAX_WAITING, Action, ActionId, ActionState, Mode, Order, RunId
from harken.errors import Conflict, Forbidden, NotFound, UserError
from harken.model import MessageId, fresh_id
from harken.store.contract.automation import CONFIRM_EXPIRES
from harken.store.sql.transaction import BY_ID as MESSAGE_BY_ID
from harken.store.sql.transaction import (
    Readers,
    SqlConnection,
    Transaction,
    encode_json,
    from_micros,
    optional_moment,
    to_micros,
)
from harken.store.sql.writer import Writer

COLUMNS = "id, rule, mode, message, state, created_at, work, expires_at, decided_at, decided_by, reason, run"
INSERT = f"INSERT INTO actions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', NULL)"
_SELECT = f"SELECT {COLUMNS}, n FROM actions"
IS_USED = "SELECT 1 FROM actions WHERE id = ?"
BY_ID = f"{_SELECT} WHERE id = ?"
BY_KEY = f"{_SELECT} WHERE asked_key = ?"
NAME_KEY = "UPDATE actions SET asked_key = ? WHERE id = ?"
BY_BEGINNING = f"{_SELECT} WHERE id >= ? AND id < ? LIMIT 2"
NEWEST = f"{_SELECT} ORDER BY n DESC LIMIT ?"
NEWEST_IN_STATE = f"{_SELECT} WHERE state = ? ORDER BY n DESC LIMIT ?"
NEWEST_OF_MESSAGE = f"""
{_SELECT} WHERE message = ? AND (? = '[]' OR +state IN (SELECT value FROM json_each(?))) ORDER BY n DESC LIMIT ?
"""
WAITING = "SELECT count(*) FROM actions WHERE state IN ('waiting', 'queued')"
# A clock that was set back far would leave the question open for as long.
_IS_OVER = "(expires_at <= ? OR created_at > ?)"
OVER = f"{_SELECT} WHERE state = 'waiting' AND {_IS_OVER} ORDER BY n"
DECIDE = "UPDATE actions SET state = ?, decided_at = ?, decided_by = ? WHERE id = ?"
END = "UPDATE actions SET state = ?, reason = ? WHERE id = ?"
START = "UPDATE actions SET state = 'started', run = ? WHERE id = ?"
TOUCH = "UPDATE rule_state SET revision = revision + 1"

_BEGINNING: Final = re.compile(r"a-[0-9a-z]+")
_LIST_HINT: Final = "See what waits with: harken channel confirm"
_TOO_LATE: Final = "nobody answered in time"


def waiting(connection: SqlConnection) -> int:
    """Count the actions that wait for an answer or for a free agent."""
    return int(connection.execute(WAITING).fetchone()[0])


def make(tx: Transaction, *, rule: str, mode: Mode, message: MessageId, order: Order | None) -> Action:
    """Store the action of a rule that fired."""
    state = {Mode.NOTIFY: ActionState.TOLD, Mode.CONFIRM: ActionState.WAITING, Mode.AUTO: ActionState.QUEUED}[mode]
    action = Action(
        id=_unused_id(tx),
        rule=rule,
        mode=mode,
        message=message,
        state=state,
        created_at=tx.now,
        order=order,
        expires_at=tx.now + CONFIRM_EXPIRES if mode is Mode.CONFIRM else None,
    )
    _insert(tx, action)
    return action


def add(tx: Transaction, message: MessageId, order: Order, by: str, key: str) -> Action:
    """Queue what the person asks for by hand, once per key."""
    if key and (known := tx.execute(BY_KEY, (key,)).fetchone()):
        return _from_row(known)
    if tx.execute(MESSAGE_BY_ID, (message,)).fetchone() is None:
        raise NotFound(f"There is no message {message[:80]!r}.", "See the ids with: harken list")
    if waiting(tx.connection) >= MAX_WAITING:
        raise Forbidden(
            f"{MAX_WAITING} actions are waiting already.", "Answer or decline some first: harken channel confirm"
        )
    action = Action(
        id=_unused_id(tx),
        rule="",
        # The person has said yes by asking for it.
        mode=Mode.CONFIRM,
        message=message,
        state=ActionState.QUEUED,
        created_at=tx.now,
        order=order,
        decided_at=tx.now,
        decided_by=by,
    )
    _insert(tx, action)
    if key:
        tx.execute(NAME_KEY, (key, action.id))
    _changed(tx, action)
    return action


def find(connection: SqlConnection, ref: str) -> Action:
    """Return the action that a reference names."""
    row = connection.execute(BY_ID, (ref,)).fetchone()
    if row is None and _BEGINNING.fullmatch(ref):
        rows = connection.execute(BY_BEGINNING, (ref, ref + "~")).fetchall()
        if len(rows) > 1:
            raise UserError(f"More than one action id begins with {ref}.", "Give more of the id.")
        row = rows[0] if rows else None
    if row is None:
        raise NotFound(f"There is no action {ref[:80]!r}.", _LIST_HINT)
    return _from_row(row)


def newest(
    connection: SqlConnection, states: Collection[ActionState], message: MessageId | None, limit: int
) -> list[Action]:
    """Return actions, newest first."""
    names = [state.value for state in states]
    if message is not None:
        wanted = encode_json(names)
        rows = connection.execute(NEWEST_OF_MESSAGE, (message, wanted, wanted, limit)).fetchall()
    elif names:
        # Each state on its own is read from its index in this order; several at once would be read whole and sorted.
        found = [row for name in set(names) for row in connection.execute(NEWEST_IN_STATE, (name, limit))]
        rows = sorted(found, key=lambda row: -int(row[-1]))[:limit]
    else:
        rows = connection.execute(NEWEST, (limit,)).fetchall()
    return [_from_row(row) for row in rows]


def answer(tx: Transaction, action_id: ActionId, *, is_yes: bool, by: str) -> tuple[Action, bool]:
    """Let the first answer count; return the action as it is then, and whether this was the answer."""
    action = find_exactly(tx.connection, action_id)
    if action.state is ActionState.WAITING and _is_over(action, tx.now):
        return _end(tx, action.id, ActionState.EXPIRED, _TOO_LATE), False
    is_unasked = action.state is ActionState.QUEUED and not action.decided_by
    if action.state is not ActionState.WAITING and (is_yes or not is_unasked):
        return action, False
    state = ActionState.QUEUED if is_yes else ActionState.DECLINED
    tx.execute(DECIDE, (state.value, tx.now_micros, by, action.id))
    decided = find_exactly(tx.connection, action.id)
    _changed(tx, decided)
    return decided, True


def too_late(action: Action) -> Conflict:
    """Return the error for an answer that does not count."""
    by = f" (by {action.decided_by[:80]})" if action.decided_by else ""
    return Conflict(f"Action {action.id} is {action.state.value} already{by}.", "There is nothing left to answer.")


def expire(tx: Transaction) -> list[Action]:
    """Expire the actions that waited too long."""
    late = to_micros(tx.now + CONFIRM_EXPIRES)
    over = [_from_row(row) for row in tx.execute(OVER, (tx.now_micros, late)).fetchall()]
    return [_end(tx, action.id, ActionState.EXPIRED, _TOO_LATE) for action in over]


def withdraw(tx: Transaction, action_id: ActionId, reason: str) -> Action:
    """Answer an action that still waits; raise `Conflict` for one that does not."""
    action = find_exactly(tx.connection, action_id)
    if action.state is not ActionState.WAITING:
        raise too_late(action)
    return _end(tx, action.id, ActionState.EXPIRED, reason)


def refuse(tx: Transaction, action_id: ActionId, reason: str) -> Action:
    """End a queued action that cannot be run after all."""
    return _end(tx, must_be_queued(tx, action_id).id, ActionState.REFUSED, reason)


def start(tx: Transaction, action_id: ActionId, run: RunId) -> Action:
    """Let a queued action have its run."""
    must_be_queued(tx, action_id)
    tx.execute(START, (run, action_id))
    tx.execute(TOUCH)
    tx.grown.add(ACTIONS)
    return find_exactly(tx.connection, action_id)


def must_be_queued(tx: Transaction, action_id: ActionId) -> Action:
    """Return a queued action; raise `Conflict` for any other."""
    action = find_exactly(tx.connection, action_id)
    if action.state is not ActionState.QUEUED:
        raise Conflict(f"Action {action.id} is {action.state.value}, not queued.", "Look at it again.")
    return action


def find_exactly(connection: SqlConnection, action_id: ActionId) -> Action:
    """Return an action by its whole id: what is decided must not depend on which others there are."""
    row = connection.execute(BY_ID, (action_id,)).fetchone()
    if row is None:
        raise NotFound(f"There is no action {action_id[:80]!r}.", _LIST_HINT)
    return _from_row(row)


def _is_over(action: Action, now: datetime) -> bool:
    is_set_back = action.created_at > now + CONFIRM_EXPIRES
    return is_set_back or (action.expires_at is not None and action.expires_at <= now)


def _end(tx: Transaction, action_id: ActionId, state: ActionState, reason: str) -> Action:
    tx.execute(END, (state.value, reason, action_id))
    action = find_exactly(tx.connection, action_id)
    _changed(tx, action)
    return action


def _changed(tx: Transaction, action: Action) -> None:
    """Tell that an action changed."""
    tx.execute(TOUCH)
    tx.grown.add(ACTIONS)
    tx.note(
        "action",
        {"action": action.id, "message_id": action.message, "rule": action.rule, "mode": action.mode.value,
         "state": action.state.value, "by": action.decided_by, "reason": action.reason},
    )  # fmt: skip


def _unused_id(tx: Transaction) -> ActionId:
    # Short, because people type them; so one may have been used before.
    while tx.execute(IS_USED, (fresh := fresh_id("a-", 6),)).fetchone():
        pass
    return ActionId(fresh)


def _insert(tx: Transaction, action: Action) -> None:
    work = None if action.order is None else encode_json(action.order)
    expires_at = None if action.expires_at is None else to_micros(action.expires_at)
    decided_at = None if action.decided_at is None else to_micros(action.decided_at)
    tx.execute(
        INSERT,
        (action.id, action.rule, action.mode.value, action.message, action.state.value, to_micros(action.created_at),
         work, expires_at, decided_at, action.decided_by),
    )  # fmt: skip


def order_from(work: str | None) -> Order | None:
    """Return the order of a row."""
    return None if work is None else msgspec.json.decode(work, type=Order)


def _from_row(row: Sequence[Any]) -> Action:
    return Action(
        id=ActionId(row[0]),
        rule=row[1],
        mode=Mode(row[2]),
        message=MessageId(row[3]),
        state=ActionState(row[4]),
        created_at=from_micros(row[5]),
        order=order_from(row[6]),
        expires_at=optional_moment(row[7]),
        decided_at=optional_moment(row[8]),
        decided_by=row[9],
        reason=row[10],
        run=None if row[11] is None else RunId(row[11]),
    )


class SqlActions:
    """The contract of `ActionStore`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def add(self, message: MessageId, order: Order, by: str, *, key: str = "") -> Action:
        """Queue an action by hand."""
        return await self._writer.run(lambda tx: add(tx, message, order, by, key))

    async def get(self, ref: str) -> Action:
        """Return an action."""
        return await self._readers.run(lambda db: find(db, ref))

    async def list(
        self, states: Collection[ActionState] = (), *, message: MessageId | None = None, limit: int = 200
    ) -> Sequence[Action]:
        """Return actions, newest first."""
        return await self._readers.run(lambda db: newest(db, states, message, limit))

    async def answer(self, action: ActionId, *, is_yes: bool, by: str) -> Action:
        """Answer a question, once."""
        answered, has_counted = await self._writer.run(lambda tx: answer(tx, action, is_yes=is_yes, by=by))
        if not has_counted:
            # Raised here and not in the transaction: that it expired has to stay.
            raise too_late(answered)
        return answered

    async def expire(self) -> Sequence[Action]:
        """Expire the actions that waited too long."""
        return await self._writer.run(expire, is_durable=False)

    async def refuse(self, action: ActionId, reason: str) -> Action:
        """End a queued action that cannot be run."""
        return await self._writer.run(lambda tx: refuse(tx, action, reason))
