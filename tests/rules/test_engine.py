"""Each outcome by an example, with the words in which it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta, timezone
from typing import Final

import pytest
from inline_snapshot import snapshot

from harken.automation import Order, Outcome, Rule, RuleFiring, RuleState, RuleVerdict
from harken.model import Message, MessageId, Trust
from harken.rules.engine import decide
from harken.rules.match import RuleMatcher
from tests.rules.made import NOON, message, rule_of, rules_of

EAST: Final = timezone(timedelta(hours=2))
WORK: Final = {"mode": "auto", "prompt": "Look.", "tools": ["read_file"]}
NOBODY: Final[Mapping[MessageId, tuple[str, ...]]] = {}


def judged(
    rules: Sequence[Rule],
    *messages: Message,
    standing: RuleState | None = None,
    ancestry: Mapping[MessageId, tuple[str, ...]] = NOBODY,
    unable: Mapping[str, str] | None = None,
) -> list[RuleVerdict]:
    """Return what is decided about messages, two hours east of Greenwich."""
    matcher = RuleMatcher(rules)
    candidates = [(item, matcher.candidates(item)) for item in messages]
    return decide(
        candidates, standing or RuleState(), ancestry, unable or {}, local=EAST, nonce=iter(["n-1", "n-2"]).__next__
    )


def told(verdicts: Sequence[RuleVerdict]) -> list[str]:
    """Return outcomes with their reasons."""
    return [f"{verdict.outcome}: {verdict.reason}".removesuffix(": ") for verdict in verdicts]


def test_a_rule_that_fires_has_its_whole_order() -> None:
    """The order is kept with the action: what the rules become later changes nothing about it."""
    ours = {"agent": "codex", "workdir": "/w", "timeout": "1m", "maxTurns": 3, "reply": True}
    (verdict,) = judged([rule_of(**WORK, **ours)], message())
    assert verdict.outcome is Outcome.FIRED
    assert verdict.order == Order(
        agent="codex",
        workdir="/w",
        tools=("read_file",),
        prompt="Look.",
        timeout=timedelta(minutes=1),
        max_turns=3,
        has_reply=True,
    )


def test_each_prompt_has_a_nonce_of_its_own_and_notify_has_no_order() -> None:
    """Whoever saw one prompt must not be able to end the frame in the next."""
    rules = rules_of(
        {"name": "tell"},
        {"name": "ask", "mode": "confirm", "prompt": "{{content}}"},
        {"name": "do", **WORK, "prompt": "{{content}}"},
    )
    tell, ask, do = judged(rules, message())
    assert tell.order is None
    assert ask.order is not None
    assert "n-1" in ask.order.prompt
    assert do.order is not None
    assert "n-2" in do.order.prompt


def test_why_a_rule_does_not_fire_is_told_in_plain_words() -> None:
    """These sentences are all that a person sees who wonders why nothing happened."""
    quiet = rule_of(quietHours="13:30-14:30")
    limited = rule_of(rateLimit="5m", dedupWindow="1h")
    chain = {MessageId("m-1"): ("x", "y", "z")}
    full = RuleState(waiting=64)
    yesterday = RuleState(fired={"ci": RuleFiring(MessageId("m-0"), NOON - timedelta(hours=20))})
    assert told(
        [
            *judged([rule_of(**WORK)], message(), unable={"ci": "no host can fence the tool kubectl"}),
            *judged([rule_of()], message(), standing=RuleState(is_paused=True)),
            *judged([quiet], message()),
            *judged([rule_of(**WORK)], message(trust=Trust.UNKNOWN)),
            *judged([rule_of()], message(), ancestry={MessageId("m-1"): ("x", "ci")}),
            *judged([rule_of(**WORK)], message(), ancestry=chain),
            *judged([limited], message(1), message(2, after=60), message(3, after=61, text="other")),
            *judged([rule_of(rateLimit="24h")], message(), standing=yesterday),
            *judged([rule_of(**WORK)], message(), standing=full),
        ]
    ) == snapshot(
        [
            "cannot run: no host can fence the tool kubectl",
            "paused: rules are paused",
            "quiet hours: inside the quiet hours 13:30-14:30",
            "not trusted: its sender is unknown, the rule asks for known",
            "loop: a run of this rule led to it",
            "chain too long: 3 runs led to it, at most 3 may follow one another",
            "fired",
            "duplicate: the same as m-1 at 14:00, less than 1h apart",
            "rate limit: inside the rate limit of 5m since m-1 at 14:00",
            "rate limit: inside the rate limit of 24h since m-0 on 2026-03-01 at 18:00",
            "queue full: 64 actions wait already: answer or decline some",
        ]
    )


@pytest.mark.parametrize(
    ("hours", "seconds", "is_quiet"),
    [
        ("14:00-15:00", -1, False),
        ("14:00-15:00", 0, True),
        ("14:00-15:00", 3599, True),
        ("14:00-15:00", 3600, False),
        ("22:00-14:00", -1, True),
        ("22:00-14:00", 0, False),
        ("22:00-14:00", 8 * 3600 - 1, False),
        ("22:00-14:00", 8 * 3600, True),
        ("22:00-14:00", 11 * 3600, True),
    ],
)
def test_quiet_hours_begin_and_end_on_the_minute_also_over_midnight(
    hours: str, seconds: int, *, is_quiet: bool
) -> None:
    """Noon in Greenwich is 14:00 here: the first minute is quiet, the last one named is not."""
    (verdict,) = judged([rule_of(quietHours=hours)], message(after=seconds))
    assert (verdict.outcome is Outcome.QUIET) is is_quiet


def test_in_a_replay_nothing_waits_and_windows_still_count() -> None:
    """A week of mail looked at again is not held up by a queue that nobody was there to empty."""
    matcher = RuleMatcher([rule_of(**WORK, rateLimit="1m")])
    arrived = [message(number, after=number * 59) for number in range(200)]
    verdicts = decide(
        [(item, matcher.candidates(item)) for item in arrived],
        RuleState(), {}, {}, local=EAST, nonce=lambda: "n", is_replay=True,
    )  # fmt: skip
    assert [verdict.outcome for verdict in verdicts] == [Outcome.FIRED, Outcome.LIMITED] * 100


def test_a_duplicate_does_not_use_up_the_rate_limit() -> None:
    """In the older tool a repeated message silenced the next new one."""
    rule = rule_of(rateLimit="1m", dedupWindow="1h")
    verdicts = judged([rule], message(1), message(2, after=50), message(3, after=61, text="new"))
    assert [verdict.outcome for verdict in verdicts] == [Outcome.FIRED, Outcome.DUPLICATE, Outcome.FIRED]


def test_a_window_is_over_when_its_time_is() -> None:
    """Exactly then, not a moment later."""
    rule = rule_of(rateLimit="1m")
    verdicts = judged([rule], message(1), message(2, after=59.999), message(3, after=60))
    assert [verdict.outcome for verdict in verdicts] == [Outcome.FIRED, Outcome.LIMITED, Outcome.FIRED]


def test_a_clock_that_stepped_back_silences_no_rule_for_long() -> None:
    """A window begun in what is now the future is over as soon as it is far away."""
    rule = rule_of(rateLimit="1m")
    verdicts = judged([rule], message(1), message(2, after=-30), message(3, after=-86_400))
    assert [verdict.outcome for verdict in verdicts] == [Outcome.FIRED, Outcome.LIMITED, Outcome.FIRED]


def test_one_rule_that_is_held_does_not_hold_another() -> None:
    """Every rule that fits is judged on its own."""
    rules = rules_of({"name": "a", "rateLimit": "1h"}, {"name": "b"})
    verdicts = judged(rules, message(1), message(2, after=1))
    assert [(verdict.rule, verdict.outcome) for verdict in verdicts] == [
        ("a", Outcome.FIRED),
        ("b", Outcome.FIRED),
        ("a", Outcome.LIMITED),
        ("b", Outcome.FIRED),
    ]


def test_a_burst_fills_the_queue_and_the_rest_is_accounted_for() -> None:
    """Ten thousand matches in one batch: as many as may wait are fired, each of the others has its verdict."""
    matcher = RuleMatcher([rule_of(**WORK)])
    candidates = [(item, matcher.candidates(item)) for item in (message(number) for number in range(10_000))]
    verdicts = decide(candidates, RuleState(waiting=60), {}, {}, local=EAST, nonce=lambda: "n")
    assert [verdict.outcome for verdict in verdicts] == [Outcome.FIRED] * 4 + [Outcome.FULL] * 9_996


def test_a_full_queue_holds_no_notice_and_begins_no_window() -> None:
    """Telling costs nothing; and when there is room again, the rule is not silenced by what it did not do."""
    rules = rules_of({"name": "tell"}, {"name": "do", **WORK, "rateLimit": "1h"})
    assert told(judged(rules, message(), standing=RuleState(waiting=64)))[0] == "fired"
    first = judged(rules[1:], message(1), message(2, after=1), standing=RuleState(waiting=64))
    assert [verdict.outcome for verdict in first] == [Outcome.FULL, Outcome.FULL]


def test_a_notice_may_follow_any_chain_but_its_own() -> None:
    """Telling a person starts nothing, so its chain may be as long as it likes."""
    chain = {MessageId("m-1"): ("x", "y", "z", "w")}
    assert told(judged(rules_of({"name": "tell"}, {"name": "w"}), message(), ancestry=chain)) == [
        "fired",
        "loop: a run of this rule led to it",
    ]
