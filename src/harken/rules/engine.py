"""What comes of the rules that a message fits: each is decided on its own, in the order of `Outcome`.

Pure: messages, rules and the standing in, verdicts out. All times are those at which messages were received, never the
clock on the wall, so that a restart or a second look changes no decision. Who matches is told by `match`; storing the
verdicts, and deciding again when the standing changed meanwhile, is above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from typing import Final

from harken.automation import (
    DEEPEST_CHAIN,
    MAX_WAITING,
    Mode,
    Order,
    Outcome,
    Rule,
    RuleFiring,
    RuleState,
    RuleVerdict,
)
from harken.model import Message, MessageId, Trust
from harken.rules.fields import format_duration
from harken.rules.match import RuleMatch
from harken.rules.prompt import render_prompt

_TRUSTED: Final[Mapping[Trust, int]] = {Trust.UNKNOWN: 0, Trust.KNOWN: 1, Trust.OWNER: 2}


@dataclass(frozen=True, slots=True)
class _HoldReason:
    """Why a rule that fits does not fire."""

    outcome: Outcome
    reason: str
    earlier: MessageId | None = None


def decide(
    candidates: Sequence[tuple[Message, Sequence[RuleMatch]]],
    standing: RuleState,
    ancestry: Mapping[MessageId, tuple[str, ...]],
    unable: Mapping[str, str],
    *,
    local: tzinfo,
    nonce: Callable[[], str],
    is_replay: bool = False,
) -> list[RuleVerdict]:
    """Return the verdict on each match, message by message, as if each had been settled before the next.

    `ancestry` are the rules that led to a message, nearest first; `unable` says by name which rules cannot run, and
    why; `nonce` is asked for each prompt. In a replay nothing that fires waits: it is not known when it would have
    ended.
    """
    deciding = _DecisionState(standing, ancestry, unable, local, is_replay=is_replay)
    verdicts = []
    for message, fitting in candidates:
        for candidate in fitting:
            rule = candidate.rule
            held = deciding.held(message, candidate)
            if held is None:
                deciding.fire(message, candidate)
            verdicts.append(
                RuleVerdict(
                    message=message.id,
                    rule=rule.name,
                    mode=rule.mode,
                    outcome=held.outcome if held else Outcome.FIRED,
                    reason=held.reason if held else "",
                    earlier=held.earlier if held else None,
                    digest=candidate.digest,
                    order=None if held or rule.mode is Mode.NOTIFY else _order(rule, message, nonce()),
                )
            )
    return verdicts


class _DecisionState:
    """The standing, as it becomes while verdicts are found."""

    def __init__(
        self,
        standing: RuleState,
        ancestry: Mapping[MessageId, tuple[str, ...]],
        unable: Mapping[str, str],
        local: tzinfo,
        *,
        is_replay: bool,
    ) -> None:
        self._is_paused = standing.is_paused
        self._waiting = standing.waiting
        self._fired = dict(standing.fired)
        self._duplicates = dict(standing.duplicates)
        self._ancestry = ancestry
        self._unable = unable
        self._local = local
        self._is_replay = is_replay

    def held(self, message: Message, candidate: RuleMatch) -> _HoldReason | None:
        """Return why a rule does not fire, or None when it does: the first reason counts."""
        rule = candidate.rule
        return (
            self._by_person(message, rule)
            or _by_trust(message, rule)
            or _by_chain(rule, self._ancestry.get(message.id, ()))
            or self._by_duplicate(message, candidate)
            or self._by_limit(message, rule)
            or self._by_queue(rule)
        )

    def fire(self, message: Message, candidate: RuleMatch) -> None:
        """Begin the windows of a rule that fires, and let its action wait."""
        rule, fired = candidate.rule, RuleFiring(message.id, message.received_at)
        self._fired[rule.name] = fired
        self._duplicates[rule.name, candidate.digest] = fired
        self._waiting += rule.is_run and not self._is_replay

    def _by_person(self, message: Message, rule: Rule) -> _HoldReason | None:
        if reason := self._unable.get(rule.name, ""):
            return _HoldReason(Outcome.CANNOT_RUN, reason)
        if self._is_paused:
            return _HoldReason(Outcome.PAUSED, "rules are paused")
        quiet = rule.quiet_hours
        if quiet is not None and quiet.covers(message.received_at.astimezone(self._local)):
            return _HoldReason(Outcome.QUIET, f"inside the quiet hours {quiet.begin:%H:%M}-{quiet.end:%H:%M}")
        return None

    def _by_duplicate(self, message: Message, candidate: RuleMatch) -> _HoldReason | None:
        rule = candidate.rule
        fired = self._duplicates.get((rule.name, candidate.digest))
        if fired is None or not _is_inside(message, fired, rule.dedup_window):
            return None
        window = format_duration(rule.dedup_window)
        reason = f"the same as {fired.message} {self._when(fired, message)}, less than {window} apart"
        return _HoldReason(Outcome.DUPLICATE, reason, fired.message)

    def _by_limit(self, message: Message, rule: Rule) -> _HoldReason | None:
        fired = self._fired.get(rule.name)
        if fired is None or not _is_inside(message, fired, rule.rate_limit):
            return None
        limit = format_duration(rule.rate_limit)
        reason = f"inside the rate limit of {limit} since {fired.message} {self._when(fired, message)}"
        return _HoldReason(Outcome.LIMITED, reason, fired.message)

    def _by_queue(self, rule: Rule) -> _HoldReason | None:
        if rule.mode is Mode.NOTIFY or self._waiting < MAX_WAITING:
            return None
        return _HoldReason(Outcome.FULL, f"{MAX_WAITING} actions wait already: answer or decline some")

    def _when(self, fired: RuleFiring, message: Message) -> str:
        at = fired.at.astimezone(self._local)
        is_same_day = at.date() == message.received_at.astimezone(self._local).date()
        return f"at {at:%H:%M}" if is_same_day else f"on {at:%Y-%m-%d at %H:%M}"


def _by_trust(message: Message, rule: Rule) -> _HoldReason | None:
    if _TRUSTED[message.trust] >= _TRUSTED[rule.trust]:
        return None
    return _HoldReason(Outcome.UNTRUSTED, f"its sender is {message.trust}, the rule asks for {rule.trust}")


def _by_chain(rule: Rule, ancestry: Sequence[str]) -> _HoldReason | None:
    if rule.name in ancestry:
        return _HoldReason(Outcome.LOOP, "a run of this rule led to it")
    if rule.mode is not Mode.NOTIFY and len(ancestry) >= DEEPEST_CHAIN:
        return _HoldReason(
            Outcome.TOO_DEEP, f"{len(ancestry)} runs led to it, at most {DEEPEST_CHAIN} may follow one another"
        )
    return None


def _is_inside(message: Message, fired: RuleFiring, window: timedelta) -> bool:
    # Either way round: after the clock stepped back, a window in the future must not silence a rule for long.
    return abs(message.received_at - fired.at) < window


def _order(rule: Rule, message: Message, nonce: str) -> Order:
    return Order(
        agent=rule.agent,
        workdir=rule.workdir,
        tools=rule.allowed,
        prompt=render_prompt(rule.prompt, message, nonce),
        timeout=rule.timeout,
        max_turns=rule.max_turns,
        has_reply=rule.has_reply,
        machine=rule.machine,
    )
