"""Rules, and what they asked for, in the words of the page. Pure.

Takes what `inbox.automation` returns. What a rule held back is counted by reason: a rule that is silent must not look
like one that has nothing to say. The templates are `panels/rules` and those of a message; runs are in `runs.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final, Self

from harken.automation import (
    ANY,
    DEFAULT_TOOLS,
    OWN_FOLDER,
    SHELL,
    Action,
    ActionState,
    Mode,
    Outcome,
    Rule,
    RuleVerdict,
)
from harken.hosts.registry import host_title
from harken.inbox.automation import ActionDetails, AutomationOverview, RuleCard
from harken.model import INBOX, LOCAL, Message, Trust
from harken.rules.fields import format_duration
from harken.surfaces.web.page.links import message_href
from harken.surfaces.web.page.markdown import excerpt, visible
from harken.surfaces.web.page.messages import SenderView, sender_of

BY_HAND: Final = "by hand"
ANY_AGENT: Final = "as configured, or the first that can"
GLANCE_CHARS: Final = 400
MINUTE: Final = 60

_MODES: Final[Mapping[Mode, str]] = MappingProxyType(
    {Mode.NOTIFY: "tells you", Mode.CONFIRM: "asks you, then runs an agent", Mode.AUTO: "runs an agent by itself"}
)
_TRUSTED: Final[Mapping[Trust, str]] = MappingProxyType(
    {Trust.OWNER: "only you", Trust.KNOWN: "known senders", Trust.UNKNOWN: "anyone"}
)
_STATES: Final[Mapping[ActionState, str]] = MappingProxyType(
    {
        ActionState.TOLD: "you were told",
        ActionState.WAITING: "waits for your answer",
        ActionState.QUEUED: "starts when its agent and folder are free",
        ActionState.STARTED: "was started",
        ActionState.DECLINED: "was refused: nothing runs",
        ActionState.EXPIRED: "expired without an answer: nothing runs",
        ActionState.REFUSED: "could not be run",
    }
)
# Which sign of the ledger fits.
_ICONS: Final[Mapping[ActionState, str]] = MappingProxyType(
    {
        ActionState.TOLD: "seen",
        ActionState.WAITING: "queued",
        ActionState.QUEUED: "queued",
        ActionState.STARTED: "answered",
        ActionState.DECLINED: "refused",
        ActionState.EXPIRED: "expired",
        ActionState.REFUSED: "failed",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageGlance:
    """What people recognise a message by."""

    id: str
    href: str
    sender: SenderView
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """A rule: what it listens to, what it does, and what came of it."""

    name: str
    mode: str
    does: str
    hears: Sequence[tuple[str, str]]
    limits: Sequence[tuple[str, str]]
    agent: str
    folder: str
    tools: Sequence[str]
    prompt: str
    is_run: bool
    has_shell: bool
    cannot_run: str
    warnings: Sequence[str]
    fired: int
    held: Sequence[tuple[str, int]]
    last_fired_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionCard:
    """What a rule, or the person, asked for. `left` are the seconds in which it can still be answered."""

    id: str
    rule: str
    state: str
    icon: str
    said: str
    reason: str
    message: MessageGlance | None
    agent: str
    folder: str
    tools: Sequence[str]
    has_shell: bool
    prompt: str
    created_at: datetime
    decided_at: datetime | None
    decided_by: str
    run: str
    left: float = 0.0

    @property
    def left_words(self) -> str:
        """The time that is left, for browsers without a script."""
        if self.left <= 0:
            return "expired"
        return f"{self.left // MINUTE:.0f} min left" if self.left >= MINUTE else f"{self.left:.0f} s left"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTrace:
    """What one rule decided about a message, and what came of that; or what the person asked for."""

    rule: str
    outcome: str
    reason: str
    has_fired: bool
    action: ActionCard | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleForm:
    """What a person has filled in for a rule."""

    name: str = ""
    server: str = ""
    channel: str = ""
    content: str = ""
    mode: str = Mode.NOTIFY.value
    prompt: str = ""
    agent: str = ""
    workdir: str = ""

    @classmethod
    def of(cls, form: Mapping[str, str]) -> Self:
        """Return what a form says; not trusted."""
        return cls(**{each: form.get(each, "").strip() for each in cls.__slots__})

    @property
    def document(self) -> Mapping[str, object]:
        """The rule as `triggers.json` has it, without what is empty."""
        is_run = self.mode != Mode.NOTIFY.value
        found: dict[str, object] = {
            "name": self.name,
            "server": self.server,
            "channel": self.channel,
            "contentRegex": self.content,
            "mode": self.mode,
        }
        if is_run:
            found |= {"prompt": self.prompt, "tools": list(DEFAULT_TOOLS), "agent": self.agent, "workdir": self.workdir}
        return {name: value for name, value in found.items() if value}


def rule_form(message: Message) -> RuleForm:
    """Return a rule about messages like this one: of its source and channel, telling you."""
    words = re.findall(r"[a-z0-9]+", (message.channel or message.sender.label).lower())
    return RuleForm(
        name="-".join(words)[:40] or "new-rule",
        server=message.source,
        channel=message.channel,
        prompt="Find out what this is about. Change nothing.\n\n{{content}}",
    )


def rule_lines(overview: AutomationOverview) -> Sequence[RuleLine]:
    """Return the rules in force, in their order."""
    warned: dict[str, list[str]] = {}
    for fault in overview.warnings:
        warned.setdefault(fault.rule, []).append(fault.sentence)
    return [_rule_line(card, warned.get(card.rule.name, [])) for card in overview.cards]


def file_warnings(overview: AutomationOverview) -> Sequence[str]:
    """Return the warnings that are about no rule in force."""
    names = {card.rule.name for card in overview.cards}
    return [fault.sentence for fault in overview.warnings if fault.rule not in names]


def counted(overview: AutomationOverview) -> str:
    """Say how many rules there are, by what they do."""
    modes = Counter(card.rule.mode for card in overview.cards)
    return ", ".join(f"{modes[mode]} {mode.value}" for mode in Mode if modes[mode])


def action_card(told: ActionDetails, now: datetime) -> ActionCard:
    """Return an action as the page shows it."""
    it, order = told.action, told.action.order
    return ActionCard(
        id=it.id,
        rule=it.rule or BY_HAND,
        state=it.state.value,
        icon=_ICONS[it.state],
        said=_STATES[it.state],
        reason=visible(it.reason),
        message=glance(told.message),
        agent=agent_title(told.runs_on),
        folder=told.folder or OWN_FOLDER,
        tools=order.tools if order else (),
        has_shell=order is not None and SHELL in order.tools,
        prompt=visible(order.prompt) if order else "",
        created_at=it.created_at,
        decided_at=it.decided_at,
        decided_by=visible(it.decided_by),
        run=it.run or "",
        left=(it.expires_at - now).total_seconds() if it.expires_at else 0.0,
    )


def traces(decided: Sequence[RuleVerdict], found: Sequence[ActionDetails], now: datetime) -> Sequence[RuleTrace]:
    """Return what rules decided about a message when it came, each with its action, and what was asked for by hand."""
    by_rule = {told.action.rule: told for told in found if told.action.rule}
    ruled = [_trace(verdict, by_rule.get(verdict.rule), now) for verdict in decided]
    return [*ruled, *(_by_hand(told, now) for told in found if not told.action.rule)]


def agent_title(host: str) -> str:
    """Return what people call the agent of an order."""
    return host_title(host) or ANY_AGENT


def glance(message: Message | None) -> MessageGlance | None:
    """Return what to recognise a message by; None for one that retention took."""
    if message is None:
        return None
    return MessageGlance(
        id=message.id,
        href=message_href(message),
        sender=sender_of(message),
        text=excerpt(message.text, GLANCE_CHARS),
        at=message.received_at,
    )


def answered_words(action: Action) -> str:
    """Say what an answer leads to."""
    if action.state is ActionState.DECLINED:
        return "Refused. Nothing runs."
    agent = agent_title(action.order.agent) if action.order and action.order.agent else "an agent"
    return f"Accepted. It starts when {agent} and its folder are free."


def _rule_line(card: RuleCard, warnings: Sequence[str]) -> RuleLine:
    it, count, fit = card.rule, card.count, card.fit
    held = [(outcome.value, count.outcomes[outcome]) for outcome in Outcome if count.outcomes.get(outcome)]
    return RuleLine(
        name=it.name,
        mode=it.mode.value,
        does=_MODES[it.mode],
        hears=_hears(it),
        limits=_limits(it),
        agent=agent_title((fit.agent if fit else "") or it.agent),
        folder=it.workdir or OWN_FOLDER,
        tools=it.allowed if it.is_run else (),
        prompt=it.prompt,
        is_run=it.is_run,
        has_shell=it.is_run and SHELL in it.tools,
        cannot_run=fit.refusal if fit else "",
        warnings=warnings,
        fired=count.outcomes.get(Outcome.FIRED, 0),
        held=[(name, number) for name, number in held if name != Outcome.FIRED.value],
        last_fired_at=count.last_fired_at,
    )


def _hears(rule: Rule) -> Sequence[tuple[str, str]]:
    """Return where a rule listens, what is any left out as far as it can be."""
    server = {"": "any source", ANY: "any source", LOCAL: "this machine"}.get(rule.server, rule.server)
    channel = rule.channel if rule.channel not in ("", ANY) else "any channel"
    mailbox = "any mailbox" if rule.mailbox == ANY else rule.mailbox
    said = [("source", server), ("channel", channel)]
    said += [("mailbox", mailbox)] if rule.mailbox != INBOX else []
    said += [("text", rule.content_regex)] if rule.content_regex else []
    return [*said, ("from", _TRUSTED[rule.trust])]


def _limits(rule: Rule) -> Sequence[tuple[str, str]]:
    quiet = rule.quiet_hours
    every = [
        ("once in", format_duration(rule.rate_limit)),
        ("same text once in", format_duration(rule.dedup_window)),
        ("quiet", f"{quiet.begin:%H:%M}-{quiet.end:%H:%M}" if quiet else ""),
        ("at most", format_duration(rule.timeout) if rule.is_run else ""),
        ("turns", str(rule.max_turns) if rule.is_run else ""),
        ("answer", "goes back to the channel" if rule.is_run and rule.has_reply else ""),
    ]
    return [(name, value) for name, value in every if value]


def _trace(verdict: RuleVerdict, told: ActionDetails | None, now: datetime) -> RuleTrace:
    return RuleTrace(
        rule=verdict.rule,
        outcome=verdict.outcome.value,
        reason=visible(verdict.reason),
        has_fired=verdict.outcome is Outcome.FIRED,
        action=action_card(told, now) if told and verdict.outcome is Outcome.FIRED else None,
    )


def _by_hand(told: ActionDetails, now: datetime) -> RuleTrace:
    return RuleTrace(rule=BY_HAND, outcome="asked for", reason="", has_fired=True, action=action_card(told, now))
