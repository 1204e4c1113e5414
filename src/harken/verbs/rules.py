"""The verbs for rules, actions and runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Final

import msgspec

from harken.automation import ActionState
from harken.errors import NotFound, UserError
from harken.inbox.automation import ActionDetails, RunCard, RunRequest
from harken.verbs import rule_shapes as shapes
from harken.verbs.verb import Arguments, CallContext, Verb, about, position

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
    rule: Annotated[str, about("As this rule would.", command="As this rule says.")] = ""
    agent: Annotated[str, about("The host that runs it.", command="The agent that runs.")] = ""
    tools: Annotated[list[str], about("What it may use; tools that only read files when empty.")] = msgspec.field(
        default_factory=list
    )
    workdir: Annotated[str, about("The folder it works in.")] = ""
    prompt: Annotated[
        str,
        about(
            "What it is asked, with {{content}} where the message goes.",
            command="What to do; {{content}} becomes the message.",
        ),
    ] = ""
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


class FollowRun(Arguments):
    """Show what a run told."""

    run: Annotated[str, about(_RUN)]
    after: Annotated[int, position("Only what follows this line.")] = 0
    wait: Annotated[float, msgspec.Meta(ge=0, description="Seconds to wait for more; at most 55.")] = 0.0


class AbortRun(Arguments):
    """End a run that is going on, or an action that waits to be run."""

    run: Annotated[str, about("The run's id, or that of the action.")]


async def _rules(context: CallContext, _a: Rules) -> object:
    return shapes.overview(await context.reactions.overview())


async def _reload(context: CallContext, _a: ReloadRules) -> object:
    return shapes.overview(await context.reactions.reload(context.caller))


async def _test(context: CallContext, a: TestRules) -> object:
    found = await context.reactions.test(timedelta(seconds=a.since), a.limit, a.rule, has_all=a.all)
    return shapes.tested(replace(found, judged=[each for each in found.judged if context.may_read(each.message)]))


async def _explain(context: CallContext, a: ExplainRules) -> object:
    return shapes.judged(await context.reactions.explain((await context.message(a.message)).id))


async def _pause(context: CallContext, _a: PauseRules) -> object:
    return await _paused(context, is_on=True)


async def _resume(context: CallContext, _a: ResumeRules) -> object:
    return await _paused(context, is_on=False)


async def _paused(context: CallContext, *, is_on: bool) -> object:
    is_changed = await context.reactions.pause(context.caller, is_on=is_on)
    summary = await context.reactions.summary()
    return {"is_paused": is_on, "is_changed": is_changed, "queued": summary.queued, "running": summary.running}


async def _actions(context: CallContext, a: ListActions) -> object:
    try:
        states = [ActionState(a.state)] if a.state else []
    except ValueError as exc:
        known = ", ".join(state.value for state in ActionState)
        raise UserError(f"There is no state {a.state[:40]!r} of actions.", f"Use one of: {known}.") from exc
    found = await context.reactions.actions(states, message=a.message, limit=a.limit)
    return {"actions": [shapes.action(each) for each in found if _may_see(context, each)]}


async def _confirm(context: CallContext, a: Confirm) -> object:
    return shapes.action(await context.reactions.answer(context.caller, a.action, is_yes=a.yes))


async def _run_now(context: CallContext, a: RunNow) -> object:
    told = await context.reactions.run_now(
        context.caller,
        a.message,
        RunRequest(rule=a.rule, agent=a.agent, tools=tuple(a.tools), workdir=a.workdir, prompt=a.prompt),
        key=a.key,
    )
    return shapes.action(told)


async def _runs(context: CallContext, a: ListRuns) -> object:
    found = await context.reactions.runs(is_running=a.running, message=a.message, limit=a.limit)
    return {"runs": [shapes.run(card) for card in found if _may_see(context, card)]}


async def _run(context: CallContext, a: ShowRun) -> object:
    return shapes.run(await _seen(context, a.run))


async def _output(context: CallContext, a: FollowRun) -> object:
    await _seen(context, a.run)
    return shapes.output(*await context.reactions.output(a.run, a.after, a.wait))


def _may_see(context: CallContext, found: ActionDetails | RunCard) -> bool:
    """Whether what an action or a run is about is for the caller."""
    return found.message is None or context.may_read(found.message)


async def _seen(context: CallContext, ref: str) -> RunCard:
    found = await context.reactions.run(ref)
    if not _may_see(context, found):
        raise NotFound(f"There is no run {ref[:80]!r} for you.", "It is about a message in another mailbox.")
    return found


async def _abort(context: CallContext, a: AbortRun) -> object:
    if a.run.startswith("a-"):
        return shapes.action(await context.reactions.drop(context.caller, a.run))
    return shapes.run(await context.reactions.abort(context.caller, a.run))


RULE_VERBS: Final = (
    Verb("rules", Rules, _rules),
    Verb("rules_reload", ReloadRules, _reload),
    Verb("rules_test", TestRules, _test),
    Verb("rules_explain", ExplainRules, _explain),
    Verb("rules_pause", PauseRules, _pause),
    Verb("rules_resume", ResumeRules, _resume),
    Verb("actions", ListActions, _actions),
    Verb("confirm", Confirm, _confirm),
    Verb("run_now", RunNow, _run_now),
    Verb("runs", ListRuns, _runs),
    Verb("run", ShowRun, _run),
    Verb("run_output", FollowRun, _output),
    Verb("run_abort", AbortRun, _abort),
)
