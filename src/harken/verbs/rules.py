"""The verbs for rules, actions and runs, and their JSON. Messages in it are cut to a glance."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Final

import msgspec

from harken.automation import ActionState, FolderChanges, OutputPart, RunState
from harken.errors import NotFound, UserError
from harken.inbox.automation import (
    MAX_LISTED,
    ActionDetails,
    AutomationOverview,
    JudgedMessage,
    RuleCard,
    RuleReplay,
    RunCard,
    RunRequest,
)
from harken.inbox.caller import Grant
from harken.model import Message, timestamp
from harken.rules.fields import format_duration
from harken.verbs import shapes
from harken.verbs.verb import Arguments, CallContext, Verb, about, position

A_WEEK = 7 * 86_400.0
_ACTION = "Its id, or the beginning of it."
_RUN = "The run's id, or the beginning of it."


class Rules(Arguments):
    """Show the rules: what each matches, how often it fired, what cannot run, and whether they are paused."""


class ReloadRules(Arguments):
    """Load the rules file. If it has a mistake, the rules stay as they were."""


class TestRules(Arguments):
    """Test the rules on stored messages: which would fire, and why not. Runs nothing."""

    since: Annotated[float, msgspec.Meta(gt=0, le=86_400 * 3_660, description="How far back, in seconds.")] = A_WEEK
    limit: Annotated[int, about("Maximum number of messages, newest first.")] = 1_000
    rule: Annotated[str, about("Only this rule.")] = ""
    all: Annotated[bool, about("Include messages and rules that do not match, and why.")] = False


class TryRule(Arguments):
    """Try a rule that is not in force on stored messages: which it would fire for. Nothing is run or stored."""

    rule: Annotated[dict[str, Any], about("The rule, as `triggers.json` has it.")]
    since: Annotated[float, msgspec.Meta(gt=0, le=86_400 * 3_660, description="How far back, in seconds.")] = A_WEEK


class AddRule(Arguments):
    """Write one more rule into the file of rules, and put it in force. The file must be as it is in force."""

    rule: Annotated[dict[str, Any], about("The rule, as `triggers.json` has it.")]


class RemoveRule(Arguments):
    """Take a rule out of the file of rules, and out of force."""

    rule: Annotated[str, about("Its name.")]


class ExplainRules(Arguments):
    """Show what each rule did with a message when it arrived, and would do with it now."""

    message: Annotated[str, about("The message.")]


class PauseRules(Arguments):
    """Pause all rules until `resume`. Messages still arrive, and runs in progress continue."""


class ResumeRules(Arguments):
    """Resume the rules. They do not catch up on messages that arrived meanwhile."""


class ListActions(Arguments):
    """Show what rules asked for, newest first."""

    state: Annotated[str, about("Only those in this state, such as waiting.")] = ""
    message: Annotated[str, about("Only those about this message.")] = ""
    limit: Annotated[int, about(f"Maximum number, up to {MAX_LISTED}.")] = 50


class Confirm(Arguments):
    """Answer an action that waits. The first answer counts."""

    action: Annotated[str, about(_ACTION)]
    yes: Annotated[bool, about("False declines it.")] = True


class RunNow(Arguments):
    """Start an agent on a message."""

    message: Annotated[str, about("The message: its id, or its number in `inbox`.")]
    rule: Annotated[str, about("Use this rule's agent, tools and prompt.")] = ""
    agent: Annotated[str, about("The agent to run.")] = ""
    tools: Annotated[list[str], about("What it may use; tools that only read files when empty.")] = msgspec.field(
        default_factory=list
    )
    workdir: Annotated[str, about("The folder it works in (default: one of its own).")] = ""
    prompt: Annotated[str, about("What to do; {{content}} becomes the message.")] = ""
    key: Annotated[str, about("Asked again with the same key it is done once.")] = ""


class ListRuns(Arguments):
    """Show the newest runs first: state, rule, message, agent, time and answer."""

    running: Annotated[bool | None, about("True: only those that are going on. False: only those that are over.")] = (
        None
    )
    message: Annotated[str, about("Only those about this message.")] = ""
    limit: Annotated[int, about(f"Maximum number, up to {MAX_LISTED}.")] = 20


class ShowRun(Arguments):
    """Show a run: its message, tools, denied calls, changed files and answer."""

    run: Annotated[str, about(_RUN)]


class FollowRun(Arguments):
    """Show what a run told."""

    run: Annotated[str, about(_RUN)]
    after: Annotated[int, position("Only what follows this line.")] = 0
    wait: Annotated[float, msgspec.Meta(ge=0, description="Seconds to wait for more; at most 55.")] = 0.0


class AbortRun(Arguments):
    """End a run and everything it started, or cancel an action that waits to run."""

    run: Annotated[str, about("The run's id, or that of the action.")]


async def _rules(context: CallContext, _a: Rules) -> object:
    return overview_shape(await context.automation.overview())


async def _reload(context: CallContext, _a: ReloadRules) -> object:
    return overview_shape(await context.automation.reload(context.caller))


async def _test(context: CallContext, a: TestRules) -> object:
    found = await context.automation.test(timedelta(seconds=a.since), a.limit, a.rule, has_all=a.all)
    return tested_shape(replace(found, judged=[each for each in found.judged if context.may_read(each.message)]))


async def _try(context: CallContext, a: TryRule) -> object:
    context.caller.require_owner("try rules of your own on your mail")
    return tested_shape(await context.automation.try_rule(a.rule, timedelta(seconds=a.since)))


async def _add(context: CallContext, a: AddRule) -> object:
    return {"rule": (await context.automation.add_rule(context.caller, a.rule)).name}


async def _remove(context: CallContext, a: RemoveRule) -> object:
    await context.automation.remove_rule(context.caller, a.rule)
    return {"rule": a.rule}


async def _explain(context: CallContext, a: ExplainRules) -> object:
    return judged_shape(await context.automation.explain((await context.message(a.message)).id))


async def _pause(context: CallContext, _a: PauseRules) -> object:
    return await _paused(context, is_on=True)


async def _resume(context: CallContext, _a: ResumeRules) -> object:
    return await _paused(context, is_on=False)


async def _paused(context: CallContext, *, is_on: bool) -> object:
    is_changed = await context.automation.pause(context.caller, is_on=is_on)
    summary = await context.automation.summary()
    return {
        "is_paused": is_on,
        "is_changed": is_changed,
        "queued": summary.queued,
        "running": summary.running,
    }


async def _actions(context: CallContext, a: ListActions) -> object:
    try:
        states = [ActionState(a.state)] if a.state else []
    except ValueError as exc:
        known = ", ".join(state.value for state in ActionState)
        raise UserError(f"There is no state {a.state[:40]!r} of actions.", f"Use one of: {known}.") from exc
    found = await context.automation.actions(states, message=a.message, limit=a.limit)
    return {"actions": [action_shape(each) for each in found if _may_see(context, each)]}


async def _confirm(context: CallContext, a: Confirm) -> object:
    if context.caller.scope is not None and not _may_see(context, await context.automation.action(a.action)):
        raise NotFound(f"There is no action {a.action[:80]!r} for you.", "It is about a message in another mailbox.")
    return action_shape(await context.automation.answer(context.caller, a.action, is_yes=a.yes))


async def _run_now(context: CallContext, a: RunNow) -> object:
    told = await context.automation.run_now(
        context.caller,
        a.message,
        RunRequest(rule=a.rule, agent=a.agent, tools=tuple(a.tools), workdir=a.workdir, prompt=a.prompt),
        key=a.key,
    )
    return action_shape(told)


async def _runs(context: CallContext, a: ListRuns) -> object:
    found = await context.automation.runs(is_running=a.running, message=a.message, limit=a.limit)
    return {"runs": [run_shape(card) for card in found if _may_see(context, card)]}


async def _run(context: CallContext, a: ShowRun) -> object:
    return run_shape(await _seen(context, a.run))


async def _output(context: CallContext, a: FollowRun) -> object:
    await _seen(context, a.run)
    return output_shape(*await context.automation.output(a.run, a.after, a.wait))


def _may_see(context: CallContext, found: ActionDetails | RunCard) -> bool:
    """Whether what an action or a run is about is for the caller."""
    if found.message is None:
        return context.caller.mailboxes is None
    return context.may_read(found.message)


async def _seen(context: CallContext, ref: str) -> RunCard:
    found = await context.automation.run(ref)
    if not _may_see(context, found):
        raise NotFound(f"There is no run {ref[:80]!r} for you.", "It is about a message in another mailbox.")
    return found


async def _abort(context: CallContext, a: AbortRun) -> object:
    if a.run.startswith("a-"):
        return action_shape(await context.automation.drop(context.caller, a.run))
    return run_shape(await context.automation.abort(context.caller, a.run))


RULE_VERBS: Final = (
    Verb("rules", Rules, _rules),
    Verb("rules_reload", ReloadRules, _reload),
    Verb("rules_test", TestRules, _test),
    Verb("rules_try", TryRule, _try),
    Verb("rules_add", AddRule, _add),
    Verb("rules_remove", RemoveRule, _remove),
    Verb("rules_explain", ExplainRules, _explain),
    Verb("rules_pause", PauseRules, _pause),
    Verb("rules_resume", ResumeRules, _resume),
    Verb("actions", ListActions, _actions, needs=Grant.APPROVE),
    Verb("confirm", Confirm, _confirm, needs=Grant.APPROVE),
    Verb("run_now", RunNow, _run_now),
    Verb("runs", ListRuns, _runs),
    Verb("run", ShowRun, _run),
    Verb("run_output", FollowRun, _output),
    Verb("run_abort", AbortRun, _abort),
)


GLANCE_CHARS = 400


def glance(message: Message | None) -> dict[str, object] | None:
    """Return what people need to recognise a message by."""
    if message is None:
        return None
    text = message.text
    return {
        "id": message.id,
        "mailbox": message.mailbox,
        "seq": message.seq,
        "source": message.source,
        "channel": message.channel,
        "from": message.sender.label,
        "sender_id": message.sender.id,
        "trust": message.trust.value,
        "received_at": timestamp(message.received_at),
        "text": text if len(text) <= GLANCE_CHARS else f"{text[:GLANCE_CHARS]}…",
    }


def rule_shape(card: RuleCard) -> dict[str, object]:
    """Return a rule: the keys of the file, and what came of it."""
    it, count = card.rule, card.count
    quiet = it.quiet_hours
    return {
        "name": it.name,
        "mode": it.mode.value,
        "server": it.server,
        "channel": it.channel,
        "contentRegex": it.content_regex,
        "prompt": it.prompt,
        "tools": list(it.tools),
        "rateLimit": format_duration(it.rate_limit),
        "dedupWindow": format_duration(it.dedup_window),
        "agent": it.agent,
        "workdir": it.workdir,
        "trust": it.trust.value,
        "timeout": format_duration(it.timeout),
        "maxTurns": it.max_turns,
        "reply": it.has_reply,
        "quietHours": f"{quiet.begin:%H:%M}-{quiet.end:%H:%M}" if quiet else "",
        "mailbox": it.mailbox,
        "machine": it.machine,
        "runs_on": card.fit.agent if card.fit else "",
        "cannot_run": card.fit.refusal if card.fit else "",
        "fired": sum(number for outcome, number in count.outcomes.items() if outcome.value == "fired"),
        "held": {outcome.value: number for outcome, number in count.outcomes.items() if outcome.value != "fired"},
        "last_fired_at": timestamp(count.last_fired_at) if count.last_fired_at else None,
    }


def overview_shape(found: AutomationOverview) -> dict[str, object]:
    """Return the rules in force, and how things stand."""
    return {
        "rules": [rule_shape(card) for card in found.cards],
        "is_paused": found.is_paused,
        "path": found.path,
        "loaded_at": timestamp(found.loaded_at),
        "is_changed": found.is_changed,
        "problem": found.problem,
        "waiting": found.waiting,
        "most_waiting": found.most_waiting,
        "refused": found.refused,
        "warnings": [{"rule": each.rule, "field": each.field, "text": each.sentence} for each in found.warnings],
    }


def judged_shape(found: JudgedMessage) -> dict[str, object]:
    """Return a message and what rules make of it."""
    actions = found.actions or {}
    decided = [shapes.verdict(each, actions[each.rule].id if each.rule in actions else "") for each in found.decided]
    return {
        "message": glance(found.message),
        "verdicts": [shapes.verdict(each) for each in found.verdicts],
        "decided": decided,
    }


def tested_shape(found: RuleReplay) -> dict[str, object]:
    """Return what a replay found."""
    return {
        "messages": [
            {"message": glance(each.message), "verdicts": [shapes.verdict(it) for it in each.verdicts]}
            for each in found.judged
        ],
        "fired": found.fired,
        "looked_at": found.looked_at,
    }


def action_shape(told: ActionDetails) -> dict[str, object]:
    """Return an action."""
    it, order = told.action, told.action.order
    return {
        "id": it.id,
        "rule": it.rule,
        "mode": it.mode.value,
        "state": it.state.value,
        "message_id": it.message,
        "message": glance(told.message),
        "tools": list(order.tools) if order else [],
        "agent": order.agent if order else "",
        "workdir": order.workdir if order else "",
        "machine": order.machine if order else "",
        "runs_on": told.runs_on,
        "folder": told.folder,
        "prompt": order.prompt if order else "",
        "created_at": timestamp(it.created_at),
        "expires_at": timestamp(it.expires_at) if it.expires_at else None,
        "decided_at": timestamp(it.decided_at) if it.decided_at else None,
        "decided_by": it.decided_by,
        "reason": it.reason,
        "run": it.run,
    }


def run_shape(card: RunCard) -> dict[str, object]:
    """Return a run."""
    it = card.run
    return {
        "id": it.id,
        "envelope": "AUTO",
        "action": it.action,
        "rule": it.rule,
        "message_id": it.message,
        "message": glance(card.message),
        "agent": it.agent,
        "workdir": it.workdir,
        "machine": it.machine,
        "tools": list(it.tools),
        "leftover": list(it.leftover),
        "state": it.state.value,
        "started_at": timestamp(it.started_at),
        "ended_at": timestamp(it.ended_at) if it.ended_at else None,
        "exit_code": it.exit_code,
        "turns": it.turns,
        "denied": list(it.denied),
        "answer": it.answer,
        "reason": it.reason,
        "seconds": (it.ended_at - it.started_at).total_seconds() if it.ended_at else None,
        "changes": changes_shape(card.changes) if card.changes is not None else None,
    }


def changes_shape(found: FolderChanges) -> dict[str, object]:
    """Return what became of the folder of a run."""
    return {
        "files": [
            {
                "path": each.path,
                "change": each.kind.value,
                "is_held": each.is_held,
                "is_undone": each.is_undone,
                "note": each.note,
                "diff": each.diff,
                "aside": each.aside,
            }
            for each in found.files
        ],
        "more": found.more,
        "note": found.note,
    }


def output_shape(card: RunCard, part: OutputPart) -> dict[str, object]:
    """Return some lines of a run's output."""
    first = part.following - len(part.lines) + 1
    return {
        "lines": [
            {"n": first + number, "at": line.at, "kind": line.kind, "text": line.text, "tool": line.tool}
            for number, line in enumerate(part.lines)
        ],
        "next": part.following,
        "is_over": card.run.state is not RunState.RUNNING,
        "run": run_shape(card),
    }
