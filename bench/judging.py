"""Rules: how many are judged in a second, against one compiled regular expression over the same texts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from bench.plan import Plan
from bench.rows import Row, Unit, most
from bench.samples import samples
from harken.automation import Mode, Rule, RuleState
from harken.model import INBOX, Attention, Message, MessageId, Sender, Trust
from harken.rules.engine import decide
from harken.rules.match import RuleMatcher, compile_pattern

RULES: Final = 100
MESSAGES: Final = 5_000
LIMITED_BY: Final = "encoding, hashing and the verdicts of those that match, in Python"


def measure(plan: Plan) -> Iterator[Row]:
    """Measure rules a second, matched and decided."""
    rules, messages = _rules(), _messages(min(MESSAGES, plan.size.messages))
    judged, searched = list[float](), list[float]()
    for _ in plan.rounds("rules", 9, 3):
        searched.append(len(messages) / _search(messages))
        judged.append(len(messages) * len(rules) / _judge(rules, messages))
    yield Row(
        name="rules",
        what=f"rules judged, {RULES} for each message",
        unit=Unit.PER_SECOND,
        value=most(samples(judged)),
        reference_name="one compiled expression",
        reference=most(samples(searched)),
        limited_by=LIMITED_BY,
    )


def _rules() -> Sequence[Rule]:
    """Return rules of every kind: about all messages, one source, one channel, with and without an expression."""
    return [
        Rule(
            name=f"rule-{number}",
            mode=(Mode.NOTIFY, Mode.CONFIRM)[number % 2],
            server=("", "*", "github", f"server-{number}")[number % 4],
            channel=("", "ci/*", "alerts/critical", "*", f"team/{number}/*")[number % 5],
            content_regex="" if number % 10 == 9 else rf"(?i)\bjob-{number} (failed|was cancelled)\b",
            prompt="Look into it.\n{{content}}",
            rate_limit=timedelta(minutes=5),
            dedup_window=timedelta(minutes=30),
        )
        for number in range(RULES)
    ]


def _messages(count: int) -> Sequence[Message]:
    """Return messages of about 500 characters; some fit some rules."""
    began, filler = datetime(2026, 1, 1, tzinfo=UTC), "All other steps went through; the log is kept for a week. " * 8
    return [
        Message(
            id=MessageId(f"m-{number}"),
            mailbox=INBOX,
            seq=number,
            received_at=began + timedelta(seconds=number),
            source=("github", "prometheus", "local")[number % 3],
            sender=Sender("bot"),
            text=f"Build {number}: job-{number % 150} failed. {filler}",
            trust=Trust.KNOWN,
            attention=Attention.PROMPT,
            channel=("ci/main", "alerts/critical", "chat")[number % 3],
        )
        for number in range(count)
    ]


def _search(messages: Sequence[Message]) -> float:
    """Return how long one expression takes."""
    pattern, found = compile_pattern(r"(?i)\bjob-77 (failed|was cancelled)\b"), 0
    began = time.perf_counter()
    for message in messages:
        found += pattern.is_in(message.text.encode())
    seconds = time.perf_counter() - began
    if found != sum(number % 150 == 77 for number in range(len(messages))):
        raise RuntimeError(f"{found} were found")
    return seconds


def _judge(rules: Sequence[Rule], messages: Sequence[Message]) -> float:
    """Return how long all rules take, in batches as a daemon has them."""
    matcher, standing, verdicts = RuleMatcher(rules), RuleState(), 0
    began = time.perf_counter()
    for first in range(0, len(messages), 100):
        matched = [(message, matcher.candidates(message)) for message in messages[first : first + 100]]
        verdicts += len(decide(matched, standing, {}, {}, local=UTC, nonce=lambda: "n-0123456789"))
    seconds = time.perf_counter() - began
    if not verdicts:
        raise RuntimeError("no rule matched")
    return seconds
