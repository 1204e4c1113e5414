"""Judging: what was decided about messages, the windows that follow from it, and where judging is.

A settlement is one transaction that happens only if nothing changed since it was decided. Each verdict is stored
once; its window, its count and its action follow from that row being new. Actions themselves are in `actions`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from harken.automation import ACTIONS, Action, Mode, Outcome, RuleCount, RuleFiring, RuleState, RuleVerdict
from harken.errors import Conflict
from harken.model import Message, MessageId
from harken.store.contract.automation import Settlement
from harken.store.contract.events import RECOVERY
from harken.store.sql import actions
from harken.store.sql.transaction import (
    COLUMNS,
    Readers,
    SqlConnection,
    Transaction,
    from_micros,
    from_row,
    to_micros,
    within_memory,
)
from harken.store.sql.writer import Writer

STATE = "SELECT revision, judged, is_paused, (SELECT coalesce(max(n), 0) FROM messages) FROM rule_state"
SETTLED = "UPDATE rule_state SET revision = revision + 1, judged = max(judged, ?)"
TEXT = "SELECT text FROM rule_state"
KEEP_TEXT = "UPDATE rule_state SET text = ?"
PAUSE = "UPDATE rule_state SET revision = revision + 1, is_paused = ? WHERE is_paused <> ?"
WINDOW = "SELECT message, at FROM rule_windows WHERE rule = ? AND digest = ?"
BEGIN_WINDOW = """
INSERT INTO rule_windows (rule, digest, message, at) VALUES (?, ?, ?, ?)
ON CONFLICT (rule, digest) DO UPDATE SET message = excluded.message, at = excluded.at
"""
FORGET = "DELETE FROM rule_windows WHERE at < ?"
UNJUDGED = f"""
SELECT {COLUMNS}, m.n FROM messages m
WHERE m.n > ? AND m.kind <> 'deletion' AND m.mailbox NOT LIKE 'trial:%' ORDER BY m.n LIMIT ?
"""
# Not for a message that is gone or was judged in an earlier round, whatever rules there were then.
INSERT = """
INSERT INTO verdicts (message, rule, place, mode, outcome, reason, earlier, digest, at)
SELECT id, ?, ?, ?, ?, ?, ?, ?, ? FROM messages WHERE id = ? AND n > ? ON CONFLICT DO NOTHING
"""
SET_ACTION = "UPDATE verdicts SET action = ? WHERE message = ? AND rule = ?"
RECEIVED_AT = "SELECT received_at FROM messages WHERE id = ?"
COUNT = """
INSERT INTO rule_counts (rule, outcome, count, last_at) VALUES (?, ?, 1, ?)
ON CONFLICT (rule, outcome) DO UPDATE SET count = rule_counts.count + 1, last_at = excluded.last_at
"""
COUNTS = "SELECT rule, outcome, count, last_at FROM rule_counts ORDER BY rule"
OF_MESSAGE = """
SELECT v.rule, v.mode, v.outcome, v.reason, v.earlier, v.digest, a.work
FROM verdicts v LEFT JOIN actions a ON a.id = v.action WHERE v.message = ? ORDER BY v.place
"""


def state(connection: SqlConnection, rules: Collection[str], digests: Collection[tuple[str, bytes]]) -> RuleState:
    """Return what decides now."""
    revision, judged, is_paused, head = connection.execute(STATE).fetchone()
    fired = {rule: _window(connection, rule, b"") for rule in rules}
    duplicates = {pair: _window(connection, *pair) for pair in digests}
    return RuleState(
        revision=revision,
        judged=judged,
        head=head,
        is_paused=bool(is_paused),
        waiting=actions.waiting(connection),
        fired={rule: each for rule, each in fired.items() if each is not None},
        duplicates={pair: each for pair, each in duplicates.items() if each is not None},
    )


def unjudged(connection: SqlConnection, after: int, limit: int) -> list[tuple[int, Message]]:
    """Return messages with their places in the order of receipt."""
    return [(row[-1], from_row(row)) for row in within_memory(connection.execute(UNJUDGED, (after, limit)))]


def settle(tx: Transaction, settlement: Settlement) -> list[Action]:
    """Store what a round of judging decided, if nothing changed meanwhile."""
    revision, judged, *_ = tx.execute(STATE).fetchone()
    if revision != settlement.revision:
        raise Conflict("The data changed after this decision.", "Decide again.")
    made: list[Action] = []
    is_new = settlement.judged > judged
    for place, verdict in enumerate(settlement.verdicts):
        if _insert(tx, verdict, place, judged):
            is_new = True
            made += _follow(tx, verdict)
    if is_new:
        tx.execute(SETTLED, (settlement.judged,))
        tx.execute(FORGET, (to_micros(settlement.keep_since),))
        tx.grown.add(ACTIONS)
    return made


def of_message(connection: SqlConnection, message: MessageId) -> list[RuleVerdict]:
    """Return what was decided about a message."""
    return [
        RuleVerdict(
            message=message,
            rule=rule,
            mode=Mode(mode),
            outcome=Outcome(outcome),
            reason=reason,
            earlier=None if earlier is None else MessageId(earlier),
            digest=digest,
            order=actions.order_from(work),
        )
        for rule, mode, outcome, reason, earlier, digest, work in connection.execute(OF_MESSAGE, (message,))
    ]


def counts(connection: SqlConnection) -> Mapping[str, RuleCount]:
    """Return what came of each rule."""
    outcomes: dict[str, dict[Outcome, int]] = {}
    fired_at: dict[str, datetime] = {}
    for rule, outcome, count, last_at in connection.execute(COUNTS):
        outcomes.setdefault(rule, {})[Outcome(outcome)] = count
        if outcome == Outcome.FIRED:
            fired_at[rule] = from_micros(last_at)
    return {rule: RuleCount(outcomes=each, last_fired_at=fired_at.get(rule)) for rule, each in outcomes.items()}


def rules_text(connection: SqlConnection) -> str | None:
    """Return the rules that are in force, as they were written."""
    found: str | None = connection.execute(TEXT).fetchone()[0]
    return found


def keep_rules(tx: Transaction, text: str, count: int) -> None:
    """Keep the rules that are in force."""
    tx.execute(KEEP_TEXT, (text,))
    tx.note("rules", {"rules": count})
    tx.grown.add(ACTIONS)


def pause(tx: Transaction, *, is_on: bool) -> bool:
    """Pause every rule, or end that."""
    is_changed = bool(tx.execute(PAUSE, (is_on, is_on)).rowcount)
    if is_changed:
        data = {"waiting": actions.waiting(tx.connection)}
        if is_on:
            tx.note("paused", data)
        else:
            tx.note("resumed", data)
        tx.grown.add(ACTIONS)
    return is_changed


def _window(connection: SqlConnection, rule: str, digest: bytes) -> RuleFiring | None:
    row = connection.execute(WINDOW, (rule, digest)).fetchone()
    return None if row is None else RuleFiring(MessageId(row[0]), from_micros(row[1]))


def _insert(tx: Transaction, verdict: RuleVerdict, place: int, judged: int) -> bool:
    row = (verdict.rule, place, verdict.mode.value, verdict.outcome.value, verdict.reason, verdict.earlier,
           verdict.digest, tx.now_micros, verdict.message, judged)  # fmt: skip
    return bool(tx.execute(INSERT, row).rowcount)


def _follow(tx: Transaction, verdict: RuleVerdict) -> list[Action]:
    """Do what follows from a new verdict; return its action, if it has one."""
    received_at = int(tx.execute(RECEIVED_AT, (verdict.message,)).fetchone()[0])
    tx.execute(COUNT, (verdict.rule, verdict.outcome.value, received_at))
    made: list[Action] = []
    if verdict.outcome is Outcome.FIRED:
        for digest in {b"", verdict.digest}:
            tx.execute(BEGIN_WINDOW, (verdict.rule, digest, verdict.message, received_at))
        action = actions.make(tx, rule=verdict.rule, mode=verdict.mode, message=verdict.message, order=verdict.order)
        tx.execute(SET_ACTION, (action.id, verdict.message, verdict.rule))
        made.append(action)
    tx.note(
        "judged",
        {"message_id": verdict.message, "rule": verdict.rule, "mode": verdict.mode.value,
         "outcome": verdict.outcome.value, "reason": verdict.reason, "earlier": verdict.earlier,
         "action": made[0].id if made else None, RECOVERY: {"digest": verdict.digest.hex()}},
    )  # fmt: skip
    return made


class SqlRules:
    """The contract of `RuleStore`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def state(self, rules: Collection[str] = (), digests: Collection[tuple[str, bytes]] = ()) -> RuleState:
        """Return what decides now."""
        return await self._readers.run(lambda db: state(db, rules, digests))

    async def unjudged(self, after: int, limit: int) -> list[tuple[int, Message]]:
        """Return what is to be judged."""
        return await self._readers.run(lambda db: unjudged(db, after, limit))

    async def settle(self, settlement: Settlement) -> list[Action]:
        """Store what was decided."""
        # A round without a match can be had again, and must not cost every message a second fsync.
        is_durable = bool(settlement.verdicts)
        return await self._writer.run(lambda tx: settle(tx, settlement), is_durable=is_durable)

    async def verdicts(self, message: MessageId) -> list[RuleVerdict]:
        """Return what was decided about a message."""
        return await self._readers.run(lambda db: of_message(db, message))

    async def counts(self) -> Mapping[str, RuleCount]:
        """Return what came of each rule."""
        return await self._readers.run(counts)

    async def pause(self, *, is_on: bool) -> bool:
        """Pause every rule, or end that."""
        return await self._writer.run(lambda tx: pause(tx, is_on=is_on))

    async def text(self) -> str | None:
        """Return the rules in force, as they were written."""
        return await self._readers.run(rules_text)

    async def keep(self, text: str, count: int) -> None:
        """Keep what the person puts in force."""
        await self._writer.run(lambda tx: keep_rules(tx, text, count))
