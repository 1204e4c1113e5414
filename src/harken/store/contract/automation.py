"""The part of the store's contract that is about rules, actions and runs. What holds for every method is in `contract`.

Judging is exactly once: what was decided, the windows that follow from it, the actions and the place up to which
everything was judged are one transaction, which happens only if nothing changed since the `RuleState` it was decided
from. A decider that comes too late gets `Conflict` and decides again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from harken.automation import (
    Action,
    ActionId,
    ActionState,
    Order,
    RuleCount,
    RuleState,
    RuleVerdict,
    Run,
    RunEnd,
    RunId,
)
from harken.model import Message, MessageId

CONFIRM_EXPIRES = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What a round of judging decided: everything up to `judged` is settled by it.

    `verdicts` are of matches only. `keep_since` says what is forgotten: windows that began before it.
    """

    revision: int
    judged: int
    verdicts: Sequence[RuleVerdict]
    keep_since: datetime


class RuleStore(Protocol):
    """Where judging is, its verdicts and windows, and the rules in force. Changes ring for `ACTIONS`."""

    async def state(self, rules: Collection[str] = (), digests: Collection[tuple[str, bytes]] = ()) -> RuleState:
        """Return what decides now, with the windows of these rules and of these (rule, digest) pairs.

        Judging begins with the first message after the store was made or brought to this schema: older mail is not
        judged.
        """
        ...

    async def unjudged(self, after: int, limit: int) -> Sequence[tuple[int, Message]]:
        """Return messages after a place in the order of receipt, with their places, oldest first.

        Nothing of trials; deletions are left out. Up to `MAX_READ_CHARS` of text.
        """
        ...

    async def settle(self, settlement: Settlement) -> Sequence[Action]:
        """Store verdicts, begin the windows of those that fired, and return their actions, in the same order.

        A verdict that fired makes an action: `told` for notify, `waiting` for confirm until `CONFIRM_EXPIRES` is
        over, `queued` for auto. Raises `Conflict` when `revision` is not that of `state` any more. Judging what was
        judged before changes nothing. Journals `judged` per verdict, with message, rule, outcome, reason, and action.
        """
        ...

    async def verdicts(self, message: MessageId) -> Sequence[RuleVerdict]:
        """Return what was decided about a message, matches only, by rule in the order they were judged."""
        ...

    async def counts(self) -> Mapping[str, RuleCount]:
        """Return how often each rule that ever matched did so, and what came of it."""
        ...

    async def pause(self, *, is_on: bool) -> bool:
        """Pause every rule, or end that; return whether that changed anything. Journals `paused` or `resumed`."""
        ...

    async def text(self) -> str | None:
        """Return the rules that the person put in force last, as they were written; None when they never did."""
        ...

    async def keep(self, text: str, count: int) -> None:
        """Keep what the person puts in force. Journals `rules` with their number."""
        ...


class ActionStore(Protocol):
    """What matches asked for, and what the person asked for by hand. Changes ring for `ACTIONS`."""

    async def add(self, message: MessageId, order: Order, by: str, *, key: str = "") -> Action:
        """Queue an action that no rule asked for. Raises `Forbidden` when `MAX_WAITING` wait already.

        With a `key` that was used before, returns that action and changes nothing.
        """
        ...

    async def get(self, ref: str) -> Action:
        """Return an action by id or a unique beginning of it. Raises `NotFound`, `UserError` when it fits several."""
        ...

    async def list(
        self, states: Collection[ActionState] = (), *, message: MessageId | None = None, limit: int = 200
    ) -> Sequence[Action]:
        """Return actions, newest first, in some states or all; of one message or all."""
        ...

    async def answer(self, action: ActionId, *, is_yes: bool, by: str) -> Action:
        """Let a waiting action be queued, or decline a waiting one, or a queued one that was not accepted.

        The first answer counts. Raises `Conflict`, and says what it is now, for one that was answered before; one with
        a time is over becomes `expired` by this call and can no longer be accepted. Journals `action`.
        """
        ...

    async def expire(self) -> Sequence[Action]:
        """Let waiting actions become `expired` after their time; return them. Journals `action`."""
        ...

    async def refuse(self, action: ActionId, reason: str) -> Action:
        """Let a queued action be `refused`. Raises `Conflict` for one that is not queued. Journals `action`."""
        ...


class RunStore(Protocol):
    """Headless agent executions, one per action. Changes ring for `ACTIONS`."""

    async def start(self, run: Run) -> Run:
        """Store a run that begins: its action becomes `started`. Journals `run`.

        Raises `Conflict` when the action is not queued, or another run is `running` in the same folder of this machine.
        """
        ...

    async def began(self, run: RunId, pid: int) -> None:
        """Note the process group of a run."""
        ...

    async def end(self, run: RunId, how: RunEnd) -> Run:
        """Store how a run ended. The first end counts. Journals `run`."""
        ...

    async def get(self, ref: str) -> Run:
        """Return a run by id or by a unique beginning of it. Raises `NotFound`, `UserError` when it fits several."""
        ...

    async def list(
        self, *, is_running: bool | None = None, message: MessageId | None = None, limit: int = 200
    ) -> Sequence[Run]:
        """Return runs, newest first."""
        ...

    async def own_running(self, limit: int = 200) -> Sequence[Run]:
        """Return the runs that this daemon has started, or an earlier life of it, and that are going on."""
        ...

    async def ancestry(self, messages: Collection[MessageId]) -> Mapping[MessageId, tuple[str, ...]]:
        """Return the rules that led by a run to each of some messages, the nearest first; none for the others.

        A message is said by a run when its source is `local` and its sender's id is `run:<id>`; that run's action was
        for a message which may be said by a run in turn. A run by hand counts as a rule with an empty name.
        """
        ...
