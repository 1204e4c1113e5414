"""Rules, actions and runs in a store, against a model that is too simple to be wrong: dictionaries and sentences.

`ReactionMachine` lets both live through the same random story and compares them after every step. It needs no
fixtures; `store.py` runs it for each backend.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harken.automation import (
    MAX_WAITING,
    Action,
    ActionId,
    ActionState,
    Mode,
    Outcome,
    RuleFiring,
    RuleState,
    RuleVerdict,
    Run,
    RunEnd,
    RunId,
    RunState,
)
from harken.errors import Conflict, Forbidden
from harken.model import Message
from harken.store.contract import Store
from harken.store.contract.automation import CONFIRM_EXPIRES, Settlement
from harken.testing import FakeClock
from tests.contracts.rules import FIRST, ORDER, SECOND_DIGEST, WINDOW, run_of, verdict
from tests.contracts.store_suite import Journal, new_message

RULES: Final = ("red", "blue")
PAIRS: Final = [(name, digest) for name in RULES for digest in (FIRST, SECOND_DIGEST)]
FOLDERS: Final = ("/w/a", "/w/b", "")

Result = TypeVar("Result")


@dataclass
class Model:
    """Everything a store knows about rules, as plainly as possible."""

    messages: list[tuple[int, Message]] = field(default_factory=list)
    judged: int = 0
    is_paused: bool = False
    fired: dict[str, RuleFiring] = field(default_factory=dict)
    duplicates: dict[tuple[str, bytes], RuleFiring] = field(default_factory=dict)
    verdicts: dict[tuple[str, str], RuleVerdict] = field(default_factory=dict)
    actions: dict[ActionId, Action] = field(default_factory=dict)
    runs: dict[RunId, Run] = field(default_factory=dict)

    def in_states(self, *states: ActionState) -> list[ActionId]:
        """Return the actions in some states."""
        return [action.id for action in self.actions.values() if action.state in states]

    def is_over(self, action: Action, now: datetime) -> bool:
        """Whether the time of a question is over."""
        return action.state is ActionState.WAITING and action.created_at + CONFIRM_EXPIRES <= now

    def standing(self) -> RuleState:
        """Return what decides, but for the revision."""
        return RuleState(
            judged=self.judged,
            head=len(self.messages),
            is_paused=self.is_paused,
            waiting=len(self.in_states(ActionState.WAITING, ActionState.QUEUED)),
            fired=dict(self.fired),
            duplicates=dict(self.duplicates),
        )

    def forget(self, before: datetime) -> None:
        """Forget the windows that began before a time."""
        self.fired = {name: each for name, each in self.fired.items() if each.at >= before}
        self.duplicates = {pair: each for pair, each in self.duplicates.items() if each.at >= before}


class ReactionMachine(RuleBasedStateMachine):
    """A random story that a store and the model live through together."""

    def __init__(self, open_store: Callable[[FakeClock, Journal], AbstractAsyncContextManager[Store]]) -> None:
        super().__init__()
        self.clock, self.journal, self.model = FakeClock(), Journal(), Model()
        self.before: tuple[int, RuleState] = (0, RuleState())
        self.stack = ExitStack()
        self.portal = self.stack.enter_context(start_blocking_portal())
        self.store = self.stack.enter_context(
            self.portal.wrap_async_context_manager(open_store(self.clock, self.journal))
        )

    def teardown(self) -> None:
        """Close the store."""
        self.stack.close()

    def do(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Run one call of the store in its event loop."""
        return self.portal.call(call)

    @initialize()
    def begin(self) -> None:
        """Have some mail to begin with."""
        self.append(2)

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        """Receive some messages."""
        for appended in self.do(partial(self.store.messages.append, [new_message() for _ in range(count)])):
            self.model.messages.append((len(self.model.messages) + 1, appended.message))

    @rule(
        count=st.integers(0, 3),
        mode=st.sampled_from(Mode),
        outcome=st.sampled_from([Outcome.FIRED, Outcome.FIRED, Outcome.LIMITED]),
        digest=st.sampled_from([FIRST, SECOND_DIGEST]),
        is_late=st.booleans(),
    )
    def judge(self, count: int, mode: Mode, outcome: Outcome, digest: bytes, *, is_late: bool) -> None:
        """Judge the next messages by both rules, or once more those that were judged."""
        places = [each for each in self.model.messages if is_late or each[0] > self.model.judged][:count]
        decided = [verdict(message, name, mode, outcome, digest) for _, message in places for name in RULES]
        judged = max([self.model.judged, *(place for place, _ in places)])
        settlement = Settlement(
            revision=self.do(self.store.rules.state).revision,
            judged=judged,
            verdicts=decided,
            keep_since=self.clock.now() - WINDOW,
        )
        with pytest.raises(Conflict):
            self.do(partial(self.store.rules.settle, replace(settlement, revision=settlement.revision - 1)))
        expected = [each for each in decided if self._is_new(each)]
        made = self.do(partial(self.store.rules.settle, settlement))
        self._follow(expected, made)
        if expected or judged > self.model.judged:
            self.model.forget(settlement.keep_since)
        self.model.judged = judged

    @precondition(lambda self: self.model.actions)
    @rule(data=st.data(), is_yes=st.booleans())
    def answer(self, data: st.DataObject, *, is_yes: bool) -> None:
        """Answer an action, whatever it is."""
        action = self.model.actions[data.draw(st.sampled_from(list(self.model.actions)), label="action")]
        states = {ActionState.WAITING} | (set() if is_yes or action.decided_by else {ActionState.QUEUED})
        call = partial(self.store.actions.answer, action.id, is_yes=is_yes, by="cli")
        if action.state not in states or self.model.is_over(action, self.clock.now()):
            with pytest.raises(Conflict):
                self.do(call)
            if self.model.is_over(action, self.clock.now()):
                self._end(action, ActionState.EXPIRED)
            return
        state = ActionState.QUEUED if is_yes else ActionState.DECLINED
        expected = replace(action, state=state, decided_at=self.clock.now(), decided_by="cli")
        assert self.do(call) == expected
        self.model.actions[action.id] = expected

    @rule()
    def expire(self) -> None:
        """Let questions expire."""
        over = [each for each in self.model.actions.values() if self.model.is_over(each, self.clock.now())]
        assert [each.id for each in self.do(self.store.actions.expire)] == [each.id for each in over]
        for action in over:
            self._end(action, ActionState.EXPIRED)

    @rule()
    def ask_by_hand(self) -> None:
        """Ask without a rule, as often as it is possible."""
        call = partial(self.store.actions.add, self.model.messages[0][1].id, ORDER, "cli")
        if self.model.standing().waiting >= MAX_WAITING:
            with pytest.raises(Forbidden):
                self.do(call)
            return
        action = self.do(call)
        assert action.state is ActionState.QUEUED
        self.model.actions[action.id] = action

    @precondition(lambda self: self.model.actions)
    @rule(data=st.data(), folder=st.sampled_from(FOLDERS))
    def start(self, data: st.DataObject, folder: str) -> None:
        """Begin a run, where that can be."""
        action = self.model.actions[data.draw(st.sampled_from(list(self.model.actions)), label="action")]
        run = run_of(action, f"r-{len(self.model.runs):06}", folder)
        busy = {each.workdir for each in self.model.runs.values() if each.state is RunState.RUNNING} - {""}
        if action.state is not ActionState.QUEUED or folder in busy:
            with pytest.raises(Conflict):
                self.do(partial(self.store.runs.start, run))
            return
        assert self.do(partial(self.store.runs.start, run)) == run
        self.model.runs[run.id] = run
        self.model.actions[action.id] = replace(action, state=ActionState.STARTED, run=run.id)

    @precondition(lambda self: self.model.runs)
    @rule(data=st.data(), state=st.sampled_from([each for each in RunState if each is not RunState.RUNNING]))
    def end(self, data: st.DataObject, state: RunState) -> None:
        """End a run, also one that ended before."""
        run = self.model.runs[data.draw(st.sampled_from(list(self.model.runs)), label="run")]
        if run.state is RunState.RUNNING:
            run = replace(run, state=state, ended_at=self.clock.now())
            self.model.runs[run.id] = run
        assert self.do(partial(self.store.runs.end, run.id, RunEnd(state=state))) == run

    @precondition(lambda self: self.model.in_states(ActionState.QUEUED))
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """Refuse what is queued."""
        queued = self.model.in_states(ActionState.QUEUED)
        action = self.model.actions[data.draw(st.sampled_from(queued), label="action")]
        self.do(partial(self.store.actions.refuse, action.id, "no host"))
        self._end(action, ActionState.REFUSED)

    @rule(is_on=st.booleans())
    def pause(self, *, is_on: bool) -> None:
        """Pause the rules, or end that."""
        assert self.do(partial(self.store.rules.pause, is_on=is_on)) == (is_on != self.model.is_paused)
        self.model.is_paused = is_on

    @rule(seconds=st.sampled_from([1.0, CONFIRM_EXPIRES.total_seconds(), WINDOW.total_seconds()]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    @invariant()
    def same_standing(self) -> None:
        """What decides is the same on both sides, and its revision changes whenever it does."""
        found = self.do(partial(self.store.rules.state, RULES, PAIRS))
        standing = replace(found, revision=0)
        assert standing == self.model.standing()
        decides = replace(standing, head=0)
        revision, before = self.before
        assert (found.revision > revision) if decides != before else (found.revision >= revision)
        self.before = found.revision, decides

    @invariant()
    def same_rows(self) -> None:
        """Every action, run and verdict is the same on both sides."""
        assert self.do(partial(self.store.actions.list, limit=1000)) == list(reversed(self.model.actions.values()))
        assert self.do(partial(self.store.runs.list, limit=1000)) == list(reversed(self.model.runs.values()))
        for _, message in self.model.messages:
            decided = self.model.verdicts
            expected = [decided[message.id, name] for name in RULES if (message.id, name) in decided]
            assert self.do(partial(self.store.rules.verdicts, message.id)) == expected

    def _is_new(self, decided: RuleVerdict) -> bool:
        place = next(place for place, message in self.model.messages if message.id == decided.message)
        return place > self.model.judged and (decided.message, decided.rule) not in self.model.verdicts

    def _follow(self, decided: Sequence[RuleVerdict], made: Sequence[Action]) -> None:
        """Let the model follow what was settled."""
        received = {message.id: message.received_at for _, message in self.model.messages}
        fired = [each for each in decided if each.outcome is Outcome.FIRED]
        assert [(each.message, each.rule, each.mode) for each in made] == [
            (each.message, each.rule, each.mode) for each in fired
        ]
        self.model.actions.update({action.id: action for action in made})
        for each in decided:
            self.model.verdicts[each.message, each.rule] = each
        for each in fired:
            window = RuleFiring(each.message, received[each.message])
            self.model.fired[each.rule] = self.model.duplicates[each.rule, each.digest] = window

    def _end(self, action: Action, state: ActionState) -> None:
        found = self.do(partial(self.store.actions.get, action.id))
        assert found == replace(action, state=state, reason=found.reason)
        self.model.actions[action.id] = found
