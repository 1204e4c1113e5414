"""The part of `SqliteStore` about rules, actions and runs: the contract of `store/contract/automation.py`.

Like `store`, it only says which function does it and where it runs. What cannot be had again, a decision and how a
run began and ended, is durable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from harken.model import Message, MessageId
from harken.reaction import Action, ActionId, ActionState, Order, RuleCount, RuleState, Run, RunEnd, RunId, Verdict
from harken.store.contract.automation import Settlement
from harken.store.sqlite import actions, runs, verdicts
from harken.store.sqlite.readers import Readers
from harken.store.sqlite.writer import Writer


class Reacting:
    """Verdicts, windows, actions and runs."""

    _writer: Writer
    _readers: Readers

    async def standing(self, rules: Collection[str] = (), digests: Collection[tuple[str, bytes]] = ()) -> RuleState:
        """Return what decides now."""
        return await self._readers.run(lambda db: verdicts.standing(db, rules, digests))

    async def unjudged(self, after: int, limit: int) -> list[tuple[int, Message]]:
        """Return what is to be judged."""
        return await self._readers.run(lambda db: verdicts.unjudged(db, after, limit))

    async def ancestry(self, messages: Collection[MessageId]) -> Mapping[MessageId, tuple[str, ...]]:
        """Return the rules whose runs led to messages."""
        return await self._readers.run(lambda db: runs.ancestry(db, messages))

    async def settle(self, settlement: Settlement) -> list[Action]:
        """Store what was decided."""
        # A round without a match can be had again, and must not cost every message a second fsync.
        is_durable = bool(settlement.verdicts)
        return await self._writer.run(lambda tx: verdicts.settle(tx, settlement), is_durable=is_durable)

    async def verdicts(self, message: MessageId) -> list[Verdict]:
        """Return what was decided about a message."""
        return await self._readers.run(lambda db: verdicts.of_message(db, message))

    async def rule_counts(self) -> Mapping[str, RuleCount]:
        """Return what came of each rule."""
        return await self._readers.run(verdicts.counts)

    async def pause_rules(self, *, is_on: bool) -> bool:
        """Pause every rule, or end that."""
        return await self._writer.run(lambda tx: verdicts.pause(tx, is_on=is_on))

    async def rules_text(self) -> str | None:
        """Return the rules in force, as they were written."""
        return await self._readers.run(verdicts.rules_text)

    async def keep_rules(self, text: str, count: int) -> None:
        """Keep what the person puts in force."""
        await self._writer.run(lambda tx: verdicts.keep_rules(tx, text, count))

    async def add_action(self, message: MessageId, order: Order, by: str, *, key: str = "") -> Action:
        """Queue an action by hand."""
        return await self._writer.run(lambda tx: actions.add(tx, message, order, by, key))

    async def action(self, ref: str) -> Action:
        """Return an action."""
        return await self._readers.run(lambda db: actions.find(db, ref))

    async def actions(
        self, states: Collection[ActionState] = (), *, message: MessageId | None = None, limit: int = 200
    ) -> list[Action]:
        """Return actions, newest first."""
        return await self._readers.run(lambda db: actions.newest(db, states, message, limit))

    async def answer(self, action: ActionId, *, is_yes: bool, by: str) -> Action:
        """Answer a question, once."""
        answered, has_counted = await self._writer.run(lambda tx: actions.answer(tx, action, is_yes=is_yes, by=by))
        if not has_counted:
            # Raised here and not in the transaction: that it expired has to stay.
            raise actions.too_late(answered)
        return answered

    async def expire_actions(self) -> list[Action]:
        """End the questions whose time is over."""
        return await self._writer.run(actions.expire, is_durable=False)

    async def refuse_action(self, action: ActionId, reason: str) -> Action:
        """End a queued action that cannot be run."""
        return await self._writer.run(lambda tx: actions.refuse(tx, action, reason))

    async def start_run(self, run: Run) -> Run:
        """Store a run that begins."""
        return await self._writer.run(lambda tx: runs.start(tx, run))

    async def run_began(self, run: RunId, pid: int) -> None:
        """Note the process group of a run."""
        await self._writer.run(lambda tx: runs.began(tx, run, pid), is_durable=False)

    async def end_run(self, run: RunId, end: RunEnd) -> Run:
        """Store how a run ended."""
        return await self._writer.run(lambda tx: runs.end(tx, run, end))

    async def run(self, ref: str) -> Run:
        """Return a run."""
        return await self._readers.run(lambda db: runs.find(db, ref))

    async def runs(
        self, *, is_running: bool | None = None, message: MessageId | None = None, limit: int = 200
    ) -> list[Run]:
        """Return runs, newest first."""
        return await self._readers.run(lambda db: runs.newest(db, is_running=is_running, message=message, limit=limit))
