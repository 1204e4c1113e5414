"""Approvals: what hosts ask before a tool is used, from the question to the proof that its answer was obeyed."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from harken.errors import Conflict, Forbidden, NotFound, UserError
from harken.model import (
    APPROVALS,
    Approval,
    ApprovalAnswer,
    ApprovalChoice,
    ApprovalId,
    ApprovalRequest,
    ApprovalState,
    SessionKey,
    fresh_id,
    timestamp,
)
from harken.store.contract.events import RECOVERY
from harken.store.contract.questions import KEPT, MAX_OPEN
from harken.store.sql.transaction import (
    Readers,
    SqlConnection,
    Transaction,
    encode_json,
    from_micros,
    optional_micros,
    optional_moment,
    to_micros,
)
from harken.store.sql.writer import Writer

_ASKED = "host, session, tool, arguments, digest, folder, why, choices, always, turn, native, carries_reason"
_BECAME = "state, shown, choice, reason, answered_by, through, answered_at, ended_at, because"
COLUMNS = f"id, {_ASKED}, asked_at, expires_at, {_BECAME}"
INSERT = f"INSERT INTO approvals ({COLUMNS}, daemon) VALUES ({', '.join('?' * 25)}) ON CONFLICT (id) DO NOTHING"
UPDATE = """
UPDATE approvals SET state = ?, shown = ?, choice = ?, reason = ?, answered_by = ?, through = ?, answered_at = ?,
    ended_at = ?, because = ? WHERE id = ?
"""
_SELECT = f"SELECT {COLUMNS} FROM approvals"
BY_ID = f"{_SELECT} WHERE id = ?"
BY_BEGINNING = f"{_SELECT} WHERE id >= ? AND id < ? LIMIT 2"
BY_NATIVE = f"{_SELECT} WHERE state = 'open' AND session = ? AND native = ? ORDER BY n LIMIT 1"
_SOME = "(? = '[]' OR state IN (SELECT value FROM json_each(?))) AND (? = 0 OR daemon = ?)"
OLDEST = f"{_SELECT} WHERE {_SOME} ORDER BY n LIMIT ?"
NEWEST = f"{_SELECT} WHERE {_SOME} ORDER BY n DESC LIMIT ?"
OPEN = f"{_SELECT} WHERE state = 'open' ORDER BY n"
COUNT_OPEN = "SELECT count(*) FROM approvals WHERE state = 'open'"
FORGET = """
DELETE FROM approvals WHERE state <> 'open' AND n <= (
    SELECT n FROM approvals WHERE state <> 'open' ORDER BY n DESC LIMIT 1 OFFSET ?)
"""

PREFIX: Final = "ap-"
BY_RULES: Final = "rules"  # the way of an answer that no person gave
_BEGINNING: Final = re.compile(r"ap-[0-9a-z]+")
_LIST_HINT: Final = "See what waits with: harken approve"
_LEAVE: Final = "The host asks in its own terminal."


def ask(
    tx: Transaction, request: ApprovalRequest, patience: timedelta, *, refused_by: str = "", reason: str = ""
) -> Approval:
    """Store a question; `refused_by` has answered it already."""
    approval = _asked_before(tx, request)
    if approval is None:
        if not refused_by and int(tx.execute(COUNT_OPEN).fetchone()[0]) >= MAX_OPEN:
            raise Forbidden(f"{MAX_OPEN} approvals are open already.", _LEAVE)
        approval = Approval(id=_unused_id(tx), request=request, asked_at=tx.now, expires_at=tx.now + patience)
        insert(tx, approval)
        needed = {"request": msgspec.to_builtins(request), "expires_at": timestamp(approval.expires_at)}
        _note(tx, approval, "asked", {RECOVERY: needed})
    if not refused_by:
        return approval
    given = ApprovalAnswer(
        approval=approval.id,
        session=request.session,
        digest=request.digest,
        choice=ApprovalChoice.NO,
        by=refused_by,
        through=BY_RULES,
        reason=reason,
    )
    return _step(tx, approval, approval.answer(given, tx.now), "answered")


def _asked_before(tx: Transaction, request: ApprovalRequest) -> Approval | None:
    """Return the open question with the host's own id; one by that id that asks something else is withdrawn."""
    known = tx.execute(BY_NATIVE, (request.session, request.native)).fetchone() if request.native else None
    if known is None:
        return None
    same = _from_row(known)
    # Also the rule that *always* would write was shown, and is answered.
    if (same.request.digest, same.request.always, same.request.choices) == (
        request.digest,
        request.always,
        request.choices,
    ):
        return same
    withdraw(tx, same.id, "its host asks something else by the same id")
    return None


def find(connection: SqlConnection, ref: str) -> Approval:
    """Return the approval that a reference names."""
    row = connection.execute(BY_ID, (ref,)).fetchone()
    if row is None and _BEGINNING.fullmatch(ref):
        rows = connection.execute(BY_BEGINNING, (ref, ref + "~")).fetchall()
        if len(rows) > 1:
            raise UserError(f"More than one approval id begins with {ref}.", "Give more of the id.")
        row = rows[0] if rows else None
    if row is None:
        raise NotFound(f"There is no approval {ref[:80]!r}.", _LIST_HINT)
    return _from_row(row)


def find_exactly(connection: SqlConnection, approval: ApprovalId) -> Approval:
    """Return an approval by its whole id."""
    row = connection.execute(BY_ID, (approval,)).fetchone()
    if row is None:
        raise NotFound(f"There is no approval {approval[:80]!r}.", _LIST_HINT)
    return _from_row(row)


def listed(
    connection: SqlConnection, states: Collection[ApprovalState], owner: str | None, limit: int
) -> list[Approval]:
    """Return approvals, the oldest first."""
    among = encode_json([state.value for state in states])
    is_waiting = bool(states) and not any(state.is_over for state in states)
    values = (among, among, int(owner is not None), owner or "", limit)
    found = [_from_row(row) for row in connection.execute(OLDEST if is_waiting else NEWEST, values)]
    return found if is_waiting else found[::-1]


def show(tx: Transaction, approval: ApprovalId, surface: str) -> Approval:
    """Note that a surface has shown it."""
    found = find_exactly(tx.connection, approval)
    return _step(tx, found, found.show(surface), "shown", {"surface": surface})


def answer(tx: Transaction, given: ApprovalAnswer) -> tuple[Approval, bool]:
    """Answer an open one; return it, and whether the answer counted."""
    found = find_exactly(tx.connection, given.approval)
    if late := found.expire(tx.now):
        return _step(tx, found, late, "expired"), False
    after = found.answer(given, tx.now)
    return _step(tx, found, after, "answered"), after is not None


def withdraw(tx: Transaction, approval: ApprovalId, because: str) -> Approval:
    """End one that its host no longer asks."""
    found = find_exactly(tx.connection, approval)
    return _step(tx, found, found.withdraw(because, tx.now), "withdrawn")


def expire(tx: Transaction) -> list[Approval]:
    """Expire what is late."""
    found = [_from_row(row) for row in tx.execute(OPEN).fetchall()]
    return [_step(tx, each, late, "expired") for each in found if (late := each.expire(tx.now))]


def obey(tx: Transaction, approval: ApprovalId, evidence: str) -> Approval:
    """Note that an answer was obeyed."""
    if not evidence:
        raise UserError("That an answer was obeyed needs evidence.", "Name it.")
    found = find_exactly(tx.connection, approval)
    return _step(tx, found, found.obey(evidence, tx.now), "obeyed")


def withdraw_all(tx: Transaction, because: str) -> int:
    """End all that are not over; return how many."""
    rows = tx.execute(f"{_SELECT} WHERE state IN ('open', 'answered') ORDER BY n").fetchall()
    return len([withdraw(tx, _from_row(row).id, because) for row in rows])


def refusal(found: Approval, given: ApprovalAnswer) -> Conflict:
    """Return the error for an answer that does not count."""
    if found.state is not ApprovalState.OPEN:
        by = f" (by {found.answered_by[:80]})" if found.answered_by else ""
        return Conflict(f"Approval {found.id} is {found.state.value} already{by}.", "There is nothing left to answer.")
    if given.choice not in found.request.choices:
        known = ", ".join(choice.value for choice in found.request.choices)
        return Conflict(f"Approval {found.id} has no answer {given.choice.value!r}.", f"Its host takes: {known}.")
    return Conflict(f"The answer is not to what {found.id} asks.", f"Look at it again: harken approve {found.id}")


def insert(tx: Transaction, approval: Approval) -> None:
    """Store the row of an approval, and forget the oldest of those that are not open."""
    asked = approval.request
    choices = encode_json([choice.value for choice in asked.choices])
    row = (
        approval.id, asked.host, asked.session, asked.tool, encode_json(asked.arguments), asked.digest, asked.folder,
        asked.why, choices, asked.always, asked.turn, asked.native, int(asked.carries_reason),
        to_micros(approval.asked_at), to_micros(approval.expires_at),
    )  # fmt: skip
    tx.execute(INSERT, (*row, *_became(approval), tx.holder.daemon))
    tx.execute(FORGET, (KEPT,))


def update(tx: Transaction, approval: Approval) -> None:
    """Store what became of an approval."""
    tx.execute(UPDATE, (*_became(approval), approval.id))


def _became(approval: Approval) -> tuple[object, ...]:
    choice = approval.choice.value if approval.choice else ""
    return (
        approval.state.value, encode_json(approval.shown), choice, approval.reason, approval.answered_by,
        approval.through, optional_micros(approval.answered_at), optional_micros(approval.ended_at), approval.because,
    )  # fmt: skip


def _step(
    tx: Transaction, before: Approval, after: Approval | None, change: str, more: dict[str, object] | None = None
) -> Approval:
    if after is None:
        return before
    update(tx, after)
    _note(tx, after, change, more or {})
    return after


def _note(tx: Transaction, approval: Approval, change: str, more: dict[str, object]) -> None:
    tx.grown.add(APPROVALS)
    asked = approval.request
    tx.note(
        "approval",
        {"approval": approval.id, "change": change, "state": approval.state.value, "host": asked.host,
         "session": asked.session, "tool": asked.tool, "choice": approval.choice.value if approval.choice else "",
         "by": approval.answered_by, "through": approval.through, "reason": approval.reason,
         "because": approval.because, **more},
    )  # fmt: skip


def _unused_id(tx: Transaction) -> ApprovalId:
    # Short, because people type them; so one may have been used before.
    while tx.execute(BY_ID, (fresh := fresh_id(PREFIX, 6),)).fetchone():
        pass
    return ApprovalId(fresh)


def _from_row(row: Sequence[Any]) -> Approval:
    return Approval(
        id=ApprovalId(row[0]),
        request=ApprovalRequest(
            host=row[1],
            session=SessionKey(row[2]),
            tool=row[3],
            arguments=msgspec.json.decode(row[4]),
            digest=row[5],
            folder=row[6],
            why=row[7],
            choices=tuple(msgspec.json.decode(row[8], type=list[ApprovalChoice])),
            always=row[9],
            turn=row[10],
            native=row[11],
            carries_reason=bool(row[12]),
        ),
        asked_at=from_micros(row[13]),
        expires_at=from_micros(row[14]),
        state=ApprovalState(row[15]),
        shown=tuple(msgspec.json.decode(row[16], type=list[str])),
        choice=ApprovalChoice(row[17]) if row[17] else None,
        reason=row[18],
        answered_by=row[19],
        through=row[20],
        answered_at=optional_moment(row[21]),
        ended_at=optional_moment(row[22]),
        because=row[23],
    )


class SqlApprovals:
    """The contract of `ApprovalStore`."""

    def __init__(self, writer: Writer, readers: Readers, daemon: str) -> None:
        self._writer = writer
        self._readers = readers
        self._daemon = daemon

    async def ask(
        self, request: ApprovalRequest, patience: timedelta, *, refused_by: str = "", reason: str = ""
    ) -> Approval:
        """Store a question."""
        return await self._writer.run(lambda tx: ask(tx, request, patience, refused_by=refused_by, reason=reason))

    async def get(self, ref: str) -> Approval:
        """Return an approval."""
        return await self._readers.run(lambda db: find(db, ref))

    async def list(
        self, states: Collection[ApprovalState] = (), *, is_own: bool = False, limit: int = 200
    ) -> Sequence[Approval]:
        """Return approvals, the oldest first."""
        owner = self._daemon if is_own else None
        return await self._readers.run(lambda db: listed(db, states, owner, limit))

    async def show(self, approval: ApprovalId, surface: str) -> Approval:
        """Note that a surface has shown it."""
        return await self._writer.run(lambda tx: show(tx, approval, surface), is_durable=False)

    async def answer(self, answer_given: ApprovalAnswer) -> Approval:
        """Answer an open one."""
        found, has_counted = await self._writer.run(lambda tx: answer(tx, answer_given))
        if not has_counted:
            # Raised here and not in the transaction: that it expired has to stay.
            raise refusal(found, answer_given)
        return found

    async def withdraw(self, approval: ApprovalId, because: str) -> Approval:
        """End one that its host no longer asks."""
        return await self._writer.run(lambda tx: withdraw(tx, approval, because))

    async def expire(self) -> Sequence[Approval]:
        """Expire what is late."""
        return await self._writer.run(expire, is_durable=False)

    async def obey(self, approval: ApprovalId, evidence: str) -> Approval:
        """Note that an answer was obeyed."""
        return await self._writer.run(lambda tx: obey(tx, approval, evidence))
