"""`Automation`: the use cases of rules, actions and runs: list, test, answer, start and end them.

Only the person decides: an agent may read and is refused everything else, so that no message can persuade it to give
itself authority. The verbs are above; the rules and the store are below. The runner, which starts and ends runs, is
known here by the protocol `Runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Final, Protocol

import anyio.to_thread

from harken.automation import (
    DEFAULT_TIMEOUT,
    DEFAULT_TOOLS,
    DEFAULT_TURNS,
    MAX_WAITING,
    Action,
    ActionState,
    FolderChanges,
    HeldAgent,
    Mode,
    Order,
    Outcome,
    OutputPart,
    Rule,
    RuleCount,
    RuleState,
    RuleVerdict,
    Run,
    RunId,
)
from harken.clock import Clock
from harken.errors import Forbidden, NotFound
from harken.inbox.caller import Caller, bounded
from harken.model import TRIAL, Message, MessageId, fresh_id
from harken.rules.engine import decide
from harken.rules.fault import RuleFault
from harken.rules.judge import InForce, RuleBook, RuleJudge
from harken.rules.prompt import DEFAULT_PROMPT, render_prompt
from harken.store.contract import Store
from harken.store.contract.messages import Filter

MAX_TESTED: Final = 10_000
MAX_TRIED: Final = 2_000
MAX_COMPARED: Final = 200_000  # rules times messages, when all are shown
MAX_LISTED: Final = 200
MAX_WAIT_SECONDS: Final = 55.0
SIGNED_OUT: Final = "not signed in"


@dataclass(frozen=True, slots=True)
class AgentFit:
    """Which agent would run something, or why none can."""

    agent: str
    refusal: str


FitOf = Callable[[str, Sequence[str]], AgentFit]
"""Returns which agent would run an order, given an agent's name (empty: any) and tools."""


class Runs(Protocol):
    """The runner, as the use cases see it."""

    def held(self) -> Sequence[HeldAgent]:
        """Return the agents that rules no longer start, because they are signed out."""
        ...

    def release(self) -> None:
        """Let rules try every agent again."""
        ...

    async def abort(self, run: Run, by: str) -> Run:
        """End a run; raises `Conflict` if it is over."""
        ...

    async def output(self, run: RunId, after: int, seconds: float) -> OutputPart:
        """Return a run's output after a line, as soon as there is some, the run is over, or the time is up."""
        ...

    async def changes(self, run: RunId) -> FolderChanges | None:
        """Return the changes in a run's folder; None if it was not compared."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCard:
    """A rule with its results, and the agent that would run it."""

    rule: Rule
    count: RuleCount
    fit: AgentFit | None  # None: it runs nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationOverview:
    """The rules in force, and their state."""

    cards: Sequence[RuleCard]
    warnings: Sequence[RuleFault]
    path: str
    loaded_at: datetime
    problem: str
    is_changed: bool
    is_paused: bool
    waiting: int
    refused: int
    most_waiting: int = MAX_WAITING


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationSummary:
    """The number of rules, of actions that wait for an answer, and of runs."""

    rules: int
    is_paused: bool
    problem: str
    is_changed: bool
    cannot_run: int
    asked: int
    oldest: datetime | None
    queued: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedMessage:
    """A message, and the verdict of every rule."""

    message: Message
    verdicts: Sequence[RuleVerdict]
    decided: Sequence[RuleVerdict] = ()  # when it came
    actions: Mapping[str, Action] | None = None  # by rule


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleReplay:
    """The result of a replay."""

    judged: Sequence[JudgedMessage]
    fired: int
    looked_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionDetails:
    """An action or a run, with its message (None: retention removed it)."""

    action: Action
    message: Message | None
    runs_on: str = ""  # the host that would run it now, or that its order names; empty where none can
    folder: str = ""  # where it would run; one of its own when empty


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckAutomation:
    """The reasons why rules cannot run: `unable` has the reason, and `missed` the count, by rule name.

    `waiting` is how many runs wait for an agent.
    """

    held: Sequence[HeldAgent]
    waiting: int
    unable: Mapping[str, str]
    missed: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run requested by hand. Empty fields are taken from the rule, or have their defaults."""

    rule: str = ""
    agent: str = ""
    tools: tuple[str, ...] = ()
    workdir: str = ""
    prompt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCard:
    """A run with its message and, if it is shown alone, the changes in its folder."""

    run: Run
    message: Message | None
    changes: FolderChanges | None = None


@dataclass(frozen=True, slots=True)
class UsualPlace:
    """Where what names no place is run: the folder that you chose, and this machine, where others share the store."""

    folder: str = ""
    machine: str = ""


USUAL: Final = UsualPlace()


class Automation:
    """The use cases of rules, actions and runs. One per daemon."""

    def __init__(
        self,
        store: Store,
        book: RuleBook,
        judge: RuleJudge,
        clock: Clock,
        *,
        runs: Runs,
        fit_of: FitOf,
        announcers: Collection[str] = (),
        usual: UsualPlace = USUAL,
    ) -> None:
        self._store = store
        self._machine = usual.machine
        self._usual_folder = usual.folder
        self._book = book
        self._judge = judge
        self._runs = runs
        self._fit_of = fit_of
        self._clock = clock
        self._announcers = announcers

    # -- rules -------------------------------------------------------------------------------------------------

    async def overview(self) -> AutomationOverview:
        """Return the rules in force."""
        await anyio.to_thread.run_sync(self._book.refit)
        standing = await self._store.rules.state()
        counts = await self._store.rules.counts()
        current = self._book.current
        return AutomationOverview(
            cards=[self._card(rule, counts.get(rule.name, RuleCount())) for rule in current.rules],
            warnings=(*current.warnings, *self._unanswerable(current)),
            path=str(self._book.path),
            loaded_at=current.loaded_at,
            problem=self._book.problem,
            is_changed=self._book.is_changed,
            is_paused=standing.is_paused,
            waiting=standing.waiting,
            refused=sum(count.outcomes.get(Outcome.FULL, 0) for count in counts.values()),
        )

    async def summary(self) -> AutomationSummary:
        """Return the summary in numbers."""
        standing = await self._store.rules.state()
        waiting = await self._store.actions.list([ActionState.WAITING], limit=MAX_WAITING)
        return AutomationSummary(
            rules=len(self._book.current.rules),
            is_paused=standing.is_paused,
            problem=await anyio.to_thread.run_sync(lambda: self._book.problem),
            is_changed=await anyio.to_thread.run_sync(lambda: self._book.is_changed),
            cannot_run=len(self._book.unable),
            asked=len(waiting),
            oldest=min((action.created_at for action in waiting), default=None),
            queued=standing.waiting - len(waiting),
            running=len(await self._store.runs.list(is_running=True, limit=MAX_WAITING)),
        )

    async def stuck(self) -> StuckAutomation:
        """Return what keeps rules from running: agents without a sign-in, and rules that no agent can run."""
        held, unable = self._runs.held(), self._book.unable
        counts = await self._store.rules.counts() if unable else {}
        queued = await self._store.actions.list([ActionState.QUEUED], limit=MAX_WAITING) if held else ()
        return StuckAutomation(
            held=held,
            waiting=sum(action.mode is Mode.AUTO for action in queued),
            unable=unable,
            missed={name: counts.get(name, RuleCount()).outcomes.get(Outcome.CANNOT_RUN, 0) for name in unable},
        )

    async def reload(self, caller: Caller) -> AutomationOverview:
        """Load the file and try every agent again. If the file has a fault, raise it and change nothing."""
        caller.require_owner("change the rules")
        await self._judge.reload()
        self._runs.release()
        return await self.overview()

    async def pause(self, caller: Caller, *, is_on: bool) -> bool:
        """Pause or resume all rules; return whether that changed anything. Messages keep arriving."""
        caller.require_owner("pause or resume the rules")
        if not is_on:
            # Messages that arrived during the pause are judged as paused.
            await self._judge.catch_up()
        return await self._store.rules.pause(is_on=is_on)

    async def test(self, since: timedelta, limit: int, rule: str = "", *, has_all: bool = False) -> RuleReplay:
        """Replay stored messages, oldest first, with the rules in force.

        Nothing is run and nothing is stored. Windows start empty; the queue is as full as it is now. Messages that no
        rule matches are only counted, unless `everything` is asked for.
        """
        return await self._replay(self._only(rule), since, limit, has_all=has_all)

    async def try_rule(self, rule: Mapping[str, object], since: timedelta, limit: int = MAX_TRIED) -> RuleReplay:
        """Replay stored messages with one rule that is not in force; raises its faults."""
        candidate = await anyio.to_thread.run_sync(self._book.with_rule, rule)
        return await self._replay(candidate.only(candidate.rules[-1]), since, limit, has_all=False)

    async def add_rule(self, caller: Caller, rule: Mapping[str, object]) -> Rule:
        """Add a rule to the file, and load it. The file must not have changed since it was loaded."""
        caller.require_owner("change the rules")
        changed = await anyio.to_thread.run_sync(self._book.with_rule, rule)
        await self._judge.write(changed)
        return changed.rules[-1]

    async def remove_rule(self, caller: Caller, name: str) -> None:
        """Remove a rule from the file, and load it."""
        caller.require_owner("change the rules")
        if name not in self._book.current.by_name:
            raise NotFound(f"There is no rule {name[:80]!r}.", "See them: harken rules list")
        await self._judge.write(await anyio.to_thread.run_sync(self._book.without_rule, name))

    async def _replay(self, current: InForce, since: timedelta, limit: int, *, has_all: bool) -> RuleReplay:
        most = bounded(limit, MAX_TESTED, "limit")
        if has_all:
            most = min(most, max(1, MAX_COMPARED // max(1, len(current.rules))))
        found = await self._store.messages.page(Filter(since=self._clock.now() - since), most, newest_first=True)
        messages = [message for message in reversed(found) if not message.mailbox.startswith(TRIAL)]
        ancestry = await self._store.runs.ancestry([message.id for message in messages])
        standing = RuleState(waiting=(await self._store.rules.state()).waiting)
        # In a thread: it may take seconds, and must not delay messages.
        return await anyio.to_thread.run_sync(
            lambda: self._replayed(current, messages, standing, ancestry, has_all=has_all)
        )

    def _replayed(
        self,
        current: InForce,
        messages: Sequence[Message],
        standing: RuleState,
        ancestry: Mapping[MessageId, tuple[str, ...]],
        *,
        has_all: bool,
    ) -> RuleReplay:
        matched = [(message, found) for message in messages if (found := current.matcher.candidates(message))]
        verdicts = decide(
            matched, standing, ancestry, self._book.unable, local=self._local(), nonce=str, is_replay=True
        )
        by_message: dict[MessageId, list[RuleVerdict]] = {}
        for verdict in verdicts:
            by_message.setdefault(verdict.message, []).append(verdict)
        return RuleReplay(
            judged=[
                JudgedMessage(
                    message=message, verdicts=self._complete(current, message, by_message.get(message.id, ()))
                )
                for message in messages
                if has_all or message.id in by_message
            ],
            fired=sum(verdict.outcome is Outcome.FIRED for verdict in verdicts),
            looked_at=len(messages),
        )

    async def explain(self, ref: str) -> JudgedMessage:
        """Return the verdict of every rule in force on a message now, and the verdicts on its arrival."""
        message = await self._store.messages.get(ref)
        current = self._book.current
        found = await anyio.to_thread.run_sync(current.matcher.candidates, message)
        standing = await self._store.rules.state(
            [each.rule.name for each in found], [(each.rule.name, each.digest) for each in found]
        )
        ancestry = await self._store.runs.ancestry([message.id])
        # Windows and actions of this message itself do not count.
        own = replace(
            standing,
            fired={name: fired for name, fired in standing.fired.items() if fired.message != message.id},
            duplicates={key: fired for key, fired in standing.duplicates.items() if fired.message != message.id},
        )
        verdicts = decide([(message, found)], own, ancestry, self._book.unable, local=self._local(), nonce=str)
        actions = await self._store.actions.list(message=message.id)
        return JudgedMessage(
            message=message,
            verdicts=await anyio.to_thread.run_sync(self._complete, current, message, verdicts),
            decided=await self._store.rules.verdicts(message.id),
            actions={action.rule: action for action in actions},
        )

    async def decided(self, message: MessageId) -> Sequence[tuple[RuleVerdict, str]]:
        """Return the verdicts on a message's arrival, each with the id of its action or an empty text."""
        verdicts = await self._store.rules.verdicts(message)
        actions = {each.rule: each.id for each in await self._store.actions.list(message=message)} if verdicts else {}
        return [(each, actions.get(each.rule, "")) for each in verdicts]

    # -- actions -----------------------------------------------------------------------------------------------

    async def actions(
        self, states: Sequence[ActionState] = (), *, message: str = "", limit: int = 50
    ) -> Sequence[ActionDetails]:
        """Return actions, newest first."""
        about = (await self._store.messages.get(message)).id if message else None
        found = await self._store.actions.list(states, message=about, limit=bounded(limit, MAX_LISTED, "limit"))
        messages = await self._store.messages.get_many([action.message for action in found])
        return await anyio.to_thread.run_sync(self._details, found, messages)

    async def action(self, ref: str) -> ActionDetails:
        """Return an action."""
        return await self._told(await self._store.actions.get(ref.strip()))

    async def answer(self, caller: Caller, ref: str, *, is_yes: bool, by: str = "you") -> ActionDetails:
        """Accept or decline an action. The first answer counts; a later one is refused."""
        caller.require_owner("answer for you")
        action = await self._store.actions.get(ref.strip())
        answered = await self._store.actions.answer(action.id, is_yes=is_yes, by=by)
        return await self._told(answered)

    async def run_now(self, caller: Caller, ref: str, wish: RunRequest, *, key: str = "") -> ActionDetails:
        """Queue a run by hand: as a rule would run it, or with tools that only read."""
        caller.require_owner("start runs")
        message = await self._store.messages.get(ref)
        base = self._named(wish.rule) if wish.rule else None
        asked = wish.prompt or (base.prompt if base else "") or DEFAULT_PROMPT
        order = Order(
            agent=wish.agent or (base.agent if base else ""),
            workdir=wish.workdir or (base.workdir if base else ""),
            tools=wish.tools or (base.allowed if base else DEFAULT_TOOLS),
            prompt=render_prompt(asked, message, fresh_id("", 12)),
            timeout=base.timeout if base else DEFAULT_TIMEOUT,
            max_turns=base.max_turns if base else DEFAULT_TURNS,
            has_reply=base.has_reply if base else False,
            # Where you are: so is the folder that you mean.
            machine=(base.machine if base and not wish.workdir else "") or self._machine,
        )
        fit = self._fit_of(order.agent, order.tools)
        if fit.refusal and order.machine == self._machine:
            raise Forbidden(f"No agent can run this: {fit.refusal.rstrip('.')}.", "Name other tools, or another agent.")
        return await self._told(await self._store.actions.add(message.id, order, caller.sender.label, key=key))

    # -- runs --------------------------------------------------------------------------------------------------

    async def runs(self, *, is_running: bool | None = None, message: str = "", limit: int = 20) -> Sequence[RunCard]:
        """Return runs, newest first."""
        about = (await self._store.messages.get(message)).id if message else None
        found = await self._store.runs.list(
            is_running=is_running, message=about, limit=bounded(limit, MAX_LISTED, "limit")
        )
        messages = await self._store.messages.get_many([run.message for run in found])
        return [RunCard(run=run, message=messages.get(run.message)) for run in found]

    async def run(self, ref: str) -> RunCard:
        """Return a run."""
        run = await self._store.runs.get(ref.strip())
        messages = await self._store.messages.get_many([run.message])
        return RunCard(run=run, message=messages.get(run.message), changes=await self._runs.changes(run.id))

    async def output(self, ref: str, after: int, seconds: float) -> tuple[RunCard, OutputPart]:
        """Return a run's output after a line; wait for some, up to a limit."""
        card = await self.run(ref)
        part = await self._runs.output(card.run.id, after, min(max(seconds, 0.0), MAX_WAIT_SECONDS))
        # It may have ended while this waited.
        return await self.run(card.run.id), part

    async def drop(self, caller: Caller, ref: str) -> ActionDetails:
        """Drop a queued action."""
        caller.require_owner("end runs")
        action = await self._store.actions.get(ref.strip())
        return await self._told(await self._store.actions.refuse(action.id, f"aborted by {caller.sender.label}"))

    async def abort(self, caller: Caller, ref: str) -> RunCard:
        """End a run."""
        caller.require_owner("end runs")
        run = await self._store.runs.get(ref.strip())
        await self._runs.abort(run, caller.sender.label)
        return await self.run(run.id)

    def _local(self) -> tzinfo:
        return self._clock.now().astimezone().tzinfo or UTC

    # -- inside ------------------------------------------------------------------------------------------------

    def _card(self, rule: Rule, count: RuleCount) -> RuleCard:
        fit = self._fit_of(rule.agent, rule.allowed) if rule.is_run else None
        if fit is not None and fit.agent in {held.agent for held in self._runs.held()}:
            fit = AgentFit(fit.agent, SIGNED_OUT)
        return RuleCard(rule=rule, count=count, fit=fit)

    def _unanswerable(self, current: InForce) -> Iterator[RuleFault]:
        for rule in current.rules:
            if rule.has_reply and rule.server in self._announcers:
                yield RuleFault(rule.name, "reply", "true", f"what {rule.server} announces cannot be answered")

    def _named(self, name: str) -> Rule:
        rule = self._book.current.by_name.get(name)
        if rule is None:
            raise NotFound(f"There is no rule {name[:64]!r}.", "See them with: harken rules list")
        return rule

    def _only(self, rule: str) -> InForce:
        current = self._book.current
        if not rule:
            return current
        return current.only(self._named(rule))

    async def _told(self, action: Action) -> ActionDetails:
        messages = await self._store.messages.get_many([action.message])
        (told,) = await anyio.to_thread.run_sync(self._details, [action], messages)
        return told

    def _details(self, actions: Sequence[Action], messages: Mapping[MessageId, Message]) -> Sequence[ActionDetails]:
        """Return actions with their messages, and what accepting each would do now."""
        fit_of = cache(self._fit_of)
        held = {each.agent for each in self._runs.held()}
        found: list[ActionDetails] = []
        for action in actions:
            order = action.order
            runs_on = fit_of(order.agent, order.tools).agent if order and action.state.is_waiting else ""
            is_held = action.state is ActionState.QUEUED and action.mode is Mode.AUTO and runs_on in held
            found.append(
                ActionDetails(
                    action=replace(action, reason=f"{SIGNED_OUT} to {runs_on}") if is_held else action,
                    message=messages.get(action.message),
                    runs_on=runs_on or (order.agent if order else ""),
                    folder=(order.workdir or self._usual_folder) if order else "",
                )
            )
        return found

    def _complete(self, current: InForce, message: Message, verdicts: Sequence[RuleVerdict]) -> Sequence[RuleVerdict]:
        """Add why the other rules do not match."""
        known = {verdict.rule: verdict for verdict in verdicts}
        return [
            known.get(rule.name)
            or RuleVerdict(
                message=message.id,
                rule=rule.name,
                mode=rule.mode,
                outcome=Outcome.NO_MATCH,
                reason=current.matcher.mismatch(rule, message),
            )
            for rule in current.rules
        ]
