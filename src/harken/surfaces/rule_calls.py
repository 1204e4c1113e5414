"""The verbs for rules, actions and runs. Like those in `calls`: one table for the socket and the HTTP API."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

import msgspec

from harken.errors import NotFound, UserError
from harken.inbox.reactions import RunCard, Told, Wish
from harken.reaction import ActionState
from harken.surfaces import reaction_shapes as shapes
from harken.surfaces.desk import Arguments, Desk, Verb, about, position

A_WEEK = 7 * 86_400.0
_ACTION = "Its id, or the beginning of it."
_RUN = "The run's id, or the beginning of it."


class Rules(Arguments):
    """Show the rules in force, what came of them, and whether they are paused."""


class ReloadRules(Arguments):
    """Read the rules anew. With a fault in the file nothing changes."""


class TestRules(Arguments):
    """Say what the rules in force would have done with stored messages. Nothing is run."""

    since: Annotated[float, msgspec.Meta(gt=0, le=86_400 * 3_660, description="How far back, in seconds.")] = A_WEEK
    limit: Annotated[int, about("The newest so many messages of that time.")] = 1_000
    rule: Annotated[str, about("Only this rule.")] = ""
    all: Annotated[bool, about("Also messages that no rule fits.")] = False


class ExplainRules(Arguments):
    """Say what each rule makes of one message, and what was decided when it came."""

    message: Annotated[str, about("The message.")]


class PauseRules(Arguments):
    """Let no rule fire. Messages keep arriving."""


class ResumeRules(Arguments):
    """Let rules fire again, for what comes from now on."""


class ListActions(Arguments):
    """Show what rules asked for, newest first."""

    state: Annotated[str, about("Only those in this state, such as waiting.")] = ""
    message: Annotated[str, about("Only those about this message.")] = ""
    limit: Annotated[int, about("At most this many.")] = 50


class Confirm(Arguments):
    """Answer an action that waits. The first answer counts."""

    action: Annotated[str, about(_ACTION)]
    yes: Annotated[bool, about("False declines it.")] = True


class RunNow(Arguments):
    """Start an agent on a message."""

    message: Annotated[str, about("The message: its id, or its number in `inbox`.")]
    rule: Annotated[str, about("As this rule would.")] = ""
    agent: Annotated[str, about("The host that runs it.")] = ""
    tools: Annotated[list[str], about("What it may use; tools that only read files when empty.")] = msgspec.field(
        default_factory=list
    )
    workdir: Annotated[str, about("The folder it works in.")] = ""
    prompt: Annotated[str, about("What it is asked, with {{content}} where the message goes.")] = ""
    key: Annotated[str, about("Asked again with the same key it is done once.")] = ""


class ListRuns(Arguments):
    """Show runs, newest first."""

    running: Annotated[bool | None, about("True: only those that are going on. False: only those that are over.")] = (
        None
    )
    message: Annotated[str, about("Only those about this message.")] = ""
    limit: Annotated[int, about("At most this many.")] = 20


class ShowRun(Arguments):
    """Show a run."""

    run: Annotated[str, about(_RUN)]


class RunOutput(Arguments):
    """Show what a run told."""

    run: Annotated[str, about(_RUN)]
    after: Annotated[int, position("Only what follows this line.")] = 0
    wait: Annotated[float, msgspec.Meta(ge=0, description="Seconds to wait for more; at most 55.")] = 0.0


class AbortRun(Arguments):
    """End a run that is going on, or an action that waits to be run."""

    run: Annotated[str, about("The run's id, or that of the action.")]


async def _rules(desk: Desk, _a: Rules) -> object:
    return shapes.overview(await desk.reactions.overview())


async def _reload(desk: Desk, _a: ReloadRules) -> object:
    return shapes.overview(await desk.reactions.reload(desk.caller))


async def _test(desk: Desk, a: TestRules) -> object:
    found = await desk.reactions.test(timedelta(seconds=a.since), a.limit, a.rule, has_all=a.all)
    return shapes.tested(replace(found, judged=[each for each in found.judged if desk.may_read(each.message)]))


async def _explain(desk: Desk, a: ExplainRules) -> object:
    return shapes.judged(await desk.reactions.explain((await desk.message(a.message)).id))


async def _pause(desk: Desk, _a: PauseRules) -> object:
    return await _paused(desk, is_on=True)


async def _resume(desk: Desk, _a: ResumeRules) -> object:
    return await _paused(desk, is_on=False)


async def _paused(desk: Desk, *, is_on: bool) -> object:
    is_changed = await desk.reactions.pause(desk.caller, is_on=is_on)
    summary = await desk.reactions.summary()
    return {"is_paused": is_on, "is_changed": is_changed, "queued": summary.queued, "running": summary.running}


async def _actions(desk: Desk, a: ListActions) -> object:
    try:
        states = [ActionState(a.state)] if a.state else []
    except ValueError as exc:
        known = ", ".join(state.value for state in ActionState)
        raise UserError(f"There is no state {a.state[:40]!r} of actions.", f"Use one of: {known}.") from exc
    found = await desk.reactions.actions(states, message=a.message, limit=a.limit)
    return {"actions": [shapes.action(each) for each in found if _may_see(desk, each)]}


async def _confirm(desk: Desk, a: Confirm) -> object:
    return shapes.action(await desk.reactions.answer(desk.caller, a.action, is_yes=a.yes))


async def _run_now(desk: Desk, a: RunNow) -> object:
    told = await desk.reactions.run_now(
        desk.caller,
        a.message,
        Wish(rule=a.rule, agent=a.agent, tools=tuple(a.tools), workdir=a.workdir, prompt=a.prompt),
        key=a.key,
    )
    return shapes.action(told)


async def _runs(desk: Desk, a: ListRuns) -> object:
    found = await desk.reactions.runs(is_running=a.running, message=a.message, limit=a.limit)
    return {"runs": [shapes.run(card) for card in found if _may_see(desk, card)]}


async def _run(desk: Desk, a: ShowRun) -> object:
    return shapes.run(await _seen(desk, a.run))


async def _output(desk: Desk, a: RunOutput) -> object:
    await _seen(desk, a.run)
    return shapes.output(*await desk.reactions.output(a.run, a.after, a.wait))


def _may_see(desk: Desk, found: Told | RunCard) -> bool:
    """Whether what an action or a run is about is for the caller."""
    return found.message is None or desk.may_read(found.message)


async def _seen(desk: Desk, ref: str) -> RunCard:
    found = await desk.reactions.run(ref)
    if not _may_see(desk, found):
        raise NotFound(f"There is no run {ref[:80]!r} for you.", "It is about a message in another mailbox.")
    return found


async def _abort(desk: Desk, a: AbortRun) -> object:
    if a.run.startswith("a-"):
        return shapes.action(await desk.reactions.drop(desk.caller, a.run))
    return shapes.run(await desk.reactions.abort(desk.caller, a.run))


RULE_VERBS: tuple[tuple[str, Verb], ...] = (
    ("rules", Verb(Rules, _rules)),
    ("rules_reload", Verb(ReloadRules, _reload)),
    ("rules_test", Verb(TestRules, _test)),
    ("rules_explain", Verb(ExplainRules, _explain)),
    ("rules_pause", Verb(PauseRules, _pause)),
    ("rules_resume", Verb(ResumeRules, _resume)),
    ("actions", Verb(ListActions, _actions)),
    ("confirm", Verb(Confirm, _confirm)),
    ("run_now", Verb(RunNow, _run_now)),
    ("runs", Verb(ListRuns, _runs)),
    ("run", Verb(ShowRun, _run)),
    ("run_output", Verb(RunOutput, _output)),
    ("run_abort", Verb(AbortRun, _abort)),
)
