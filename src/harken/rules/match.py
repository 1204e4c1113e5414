"""Which rules a message fits, told by mailbox, server, channel and content.

Pure. Rules are found by the names they are about, and all regular expressions are searched in one pass, so that a
hundred rules cost little more than one. They are RE2's, so that neither a pattern nor a text can make a search take
more than linear time; texts are searched as UTF-8, encoded once for all patterns. What comes of a match is decided in
`engine`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from harken.automation import ANY, Rule
from harken.model import REPLIES, Message, MessageKind
from harken.rules.fault import cut, plain_or_quoted
from harken.rules.pattern import (
    PatternSet,
    compile_pattern,
)

DIGEST_BYTES: Final = 256
_SHOWN_CHARS: Final = 120


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """A rule that a message fits, and what duplicates of the message are told by."""

    rule: Rule
    digest: bytes


class RuleMatcher:
    """Rules, made ready to be compared with messages."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        expressions = list(dict.fromkeys(rule.content_regex for rule in rules if rule.content_regex))
        places = {expression: place for place, expression in enumerate(expressions)}
        self._expression = tuple(places.get(rule.content_regex, -1) for rule in rules)
        self._patterns = PatternSet(expressions)
        # By server and channel as the rule says them: a message asks for the few names that it could be meant by.
        self._named = dict[tuple[str, str], list[int]]()
        for number, rule in enumerate(rules):
            self._named.setdefault((rule.server or ANY, rule.channel or ANY), []).append(number)

    def candidates(self, message: Message) -> Sequence[RuleMatch]:
        """Return the rules that a message fits, in their order."""
        if message.kind is MessageKind.DELETION:
            return ()
        named = [number for number in self._meant(message) if _fits_mailbox(self._rules[number], message)]
        if not named:
            return ()
        text = _encoded(message)
        has_expression = any(self._expression[number] >= 0 for number in named)
        found = self._patterns.found_in(text) if has_expression else frozenset[int]()
        fitting = [number for number in named if self._expression[number] < 0 or self._expression[number] in found]
        if not fitting:
            return ()
        digest = hashlib.sha256(text[:DIGEST_BYTES]).digest()
        return [RuleMatch(self._rules[number], digest) for number in sorted(fitting)]

    def mismatch(self, rule: Rule, message: Message) -> str:
        """Return the first field that does not fit, and what was found instead; empty when the rule fits."""
        return mismatch(rule, message)

    def _meant(self, message: Message) -> Iterator[int]:
        channels = {ANY, message.channel or ANY, *_above(message.channel)}
        for server in {ANY, message.source}:
            for channel in channels:
                yield from self._named.get((server, channel), ())


def mismatch(rule: Rule, message: Message) -> str:
    """Return the first field of a rule that does not fit a message, and what was found instead; empty when all do."""
    if message.kind is MessageKind.DELETION:
        return "a deletion fits no rule"
    if not _fits_mailbox(rule, message):
        return f"mailbox: it is in {_shown(message.mailbox)}, the rule is about {_shown(rule.mailbox)}"
    if rule.server not in ("", ANY, message.source):
        return f"server: it came from {_shown(message.source)}, the rule is about {_shown(rule.server)}"
    if rule.channel not in ("", ANY, message.channel, *_above(message.channel)):
        return f"channel: it came on {_shown(message.channel)}, the rule is about {_shown(rule.channel)}"
    if rule.content_regex and not compile_pattern(rule.content_regex).is_in(_encoded(message)):
        return f"contentRegex: {_shown(rule.content_regex)} is not found in its text"
    return ""


def _above(channel: str) -> Iterator[str]:
    """Yield the patterns that fit because a channel is below them."""
    for place, character in enumerate(channel):
        if character == "/":
            yield channel[: place + 1] + ANY


def _fits_mailbox(rule: Rule, message: Message) -> bool:
    return message.mailbox != REPLIES if rule.mailbox == ANY else rule.mailbox == message.mailbox


def _encoded(message: Message) -> bytes:
    return message.text.encode("utf-8", "surrogatepass")


def _shown(text: str) -> str:
    return plain_or_quoted(cut(text, _SHOWN_CHARS))
