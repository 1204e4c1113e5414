"""The JSON of rules, actions and runs, for every surface that shows them. Messages in it are cut to a glance."""

from __future__ import annotations

from harken.automation import FolderChanges, OutputPart, RuleVerdict, RunState
from harken.inbox.automation import (
    ActionDetails,
    AutomationOverview,
    AutomationSummary,
    JudgedMessage,
    RuleCard,
    RuleReplay,
    RunCard,
)
from harken.model import Message, timestamp
from harken.rules.durations import format_duration

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


def rule(card: RuleCard) -> dict[str, object]:
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
        "runs_on": card.fit.agent if card.fit else "",
        "cannot_run": card.fit.refusal if card.fit else "",
        "fired": sum(number for outcome, number in count.outcomes.items() if outcome.value == "fired"),
        "held": {outcome.value: number for outcome, number in count.outcomes.items() if outcome.value != "fired"},
        "last_fired_at": timestamp(count.last_fired_at) if count.last_fired_at else None,
    }


def overview(found: AutomationOverview) -> dict[str, object]:
    """Return the rules in force, and how things stand."""
    return {
        "rules": [rule(card) for card in found.cards],
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


def summary(found: AutomationSummary) -> dict[str, object]:
    """Return how things stand, in a few numbers."""
    return {
        "rules": found.rules,
        "is_paused": found.is_paused,
        "problem": found.problem,
        "is_changed": found.is_changed,
        "asked": found.asked,
        "oldest_asked_at": timestamp(found.oldest) if found.oldest else None,
        "queued": found.queued,
        "running": found.running,
    }


def verdict(it: RuleVerdict, action: str = "") -> dict[str, object]:
    """Return what a rule makes of a message."""
    return {
        "rule": it.rule,
        "mode": it.mode.value,
        "outcome": it.outcome.value,
        "reason": it.reason,
        "earlier": it.earlier,
        "action": action,
    }


def judged(found: JudgedMessage) -> dict[str, object]:
    """Return a message and what rules make of it."""
    actions = found.actions or {}
    decided = [verdict(each, actions[each.rule].id if each.rule in actions else "") for each in found.decided]
    return {
        "message": glance(found.message),
        "verdicts": [verdict(each) for each in found.verdicts],
        "decided": decided,
    }


def tested(found: RuleReplay) -> dict[str, object]:
    """Return what a replay found."""
    return {
        "messages": [
            {"message": glance(each.message), "verdicts": [verdict(it) for it in each.verdicts]}
            for each in found.judged
        ],
        "fired": found.fired,
        "looked_at": found.looked_at,
    }


def action(told: ActionDetails) -> dict[str, object]:
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
        "prompt": order.prompt if order else "",
        "created_at": timestamp(it.created_at),
        "expires_at": timestamp(it.expires_at) if it.expires_at else None,
        "decided_at": timestamp(it.decided_at) if it.decided_at else None,
        "decided_by": it.decided_by,
        "reason": it.reason,
        "run": it.run,
    }


def run(card: RunCard) -> dict[str, object]:
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
        "changes": changes(card.changes) if card.changes is not None else None,
    }


def changes(found: FolderChanges) -> dict[str, object]:
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


def output(card: RunCard, part: OutputPart) -> dict[str, object]:
    """Return some lines of a run's output."""
    first = part.following - len(part.lines) + 1
    return {
        "lines": [
            {"n": first + number, "at": line.at, "kind": line.kind, "text": line.text, "tool": line.tool}
            for number, line in enumerate(part.lines)
        ],
        "next": part.following,
        "is_over": card.run.state is not RunState.RUNNING,
        "run": run(card),
    }
