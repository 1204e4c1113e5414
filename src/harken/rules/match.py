"""Which rules a message fits, told by mailbox, server, channel and content.

Pure. Rules are found by the names they are about, and all regular expressions are searched in one pass, so that a
hundred rules cost little more than one. They are RE2's, so that neither a pattern nor a text can make a search take
more than linear time; texts are searched as UTF-8, encoded once for all patterns. No other module knows the library.
What comes of a match is decided in `engine`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from harken.automation import ANY, Rule
from harken.model import REPLIES, Message, MessageKind
from harken.rules.fault import cut, plain_or_quoted

MAX_PATTERN_CHARS: Final = 10_000
_PATTERN_BYTES: Final = 2 << 20
_SET_BYTES: Final = 64 << 20
_SET_STEPS: Final = 400_000  # of the programs that patterns become; far from what fits into the memory of a set
_RE2: Final[Any] = import_module("re2")  # it comes without types
DIGEST_BYTES: Final = 256
_SHOWN_CHARS: Final = 120


class PatternFault(ValueError):
    """A text that is no regular expression; `position` is the character, from 1, and 0 when there is none to blame."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


@dataclass(frozen=True, slots=True)
class TextPattern:
    """One regular expression, ready to search."""

    compiled: Any

    def is_in(self, text: bytes) -> bool:
        """Whether it is found anywhere in a text."""
        return self.compiled.search(text) is not None


def compile_pattern(text: str) -> TextPattern:
    """Return a regular expression. Raises `PatternFault`."""
    if len(text) > MAX_PATTERN_CHARS:
        raise PatternFault(f"it has {len(text):,} characters, at most {MAX_PATTERN_CHARS:,} are allowed")
    reason = _fault(text)
    if reason:
        raise PatternFault(reason, _position(text, reason))
    return TextPattern(_RE2.compile(text, _options(_PATTERN_BYTES)))


class PatternSet:
    """Many regular expressions, searched in one pass over the text."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._parts = tuple(_parts(texts))

    def found_in(self, text: bytes) -> frozenset[int]:
        """Return the places, in the order given, of those that are found in a text."""
        return frozenset(place for part in self._parts for place in part.found_in(text))


@dataclass(frozen=True, slots=True)
class _PatternSet:
    first: int
    compiled: Any

    def found_in(self, text: bytes) -> list[int]:
        return [self.first + place for place in self.compiled.Match(text) or ()]


@dataclass(frozen=True, slots=True)
class _SinglePattern:
    place: int
    pattern: TextPattern

    @property
    def size(self) -> int:
        return int(self.pattern.compiled.programsize)

    def found_in(self, text: bytes) -> list[int]:
        return [self.place] if self.pattern.is_in(text) else []


def _parts(texts: Sequence[str]) -> Iterator[_PatternSet | _SinglePattern]:
    """Yield sets as large as the memory allows: a set that could be compiled has room to search any text."""
    group, size = list[_SinglePattern](), 0
    for place, text in enumerate(texts):
        alone = _SinglePattern(place, compile_pattern(text))
        if size + alone.size > _SET_STEPS:
            yield from _joined(group, texts)
            group, size = [], 0
        group.append(alone)
        size += alone.size
    yield from _joined(group, texts)


def _joined(group: Sequence[_SinglePattern], texts: Sequence[str]) -> Sequence[_PatternSet | _SinglePattern]:
    if len(group) <= 1:
        return group
    together = _RE2.Set.SearchSet(_options(_SET_BYTES))
    try:
        for alone in group:
            together.Add(texts[alone.place])
        together.Compile()
    except _RE2.error:
        return group
    return [_PatternSet(group[0].place, together)]


def _options(most_bytes: int) -> object:
    options = _RE2.Options()
    options.max_mem = most_bytes
    options.log_errors = False
    options.never_capture = True
    return options


def _fault(text: str) -> str:
    """Return what is wrong with a pattern, empty when nothing is."""
    try:
        _RE2.compile(text, _options(_PATTERN_BYTES))
    except UnicodeEncodeError:
        return "it holds half a character"
    except _RE2.error as exc:
        said = exc.args[0] if exc.args else b""
        return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return ""


def _position(text: str, reason: str) -> int:
    """Return the character that a fault is about: the library names the part, but not where it is.

    It reads from left to right, so every beginning that holds the part has the same fault, and shorter ones do not.
    """
    kind, _, part = reason.partition(": ")
    if kind == "missing )":
        return len(text) + 1
    if kind == "missing ]":
        return len(text) - len(part) + 1
    if kind in ("pattern too large - compile failed", "it holds half a character"):
        return 0
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if _same_fault(_fault(text[:middle]), kind, part):
            high = middle
        else:
            low = middle + 1
    return low if kind == "unexpected )" or not part else text.rfind(part, 0, low) + 1


def _same_fault(reason: str, kind: str, part: str) -> bool:
    its_kind, _, its_part = reason.partition(": ")
    return its_kind == kind and (kind == "unexpected )" or its_part == part)


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
        channels = patterns_of(message.channel)
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


def patterns_of(channel: str) -> Collection[str]:
    """Return what a rule or a filter may say to mean a channel: it by name, all, or all that is below another."""
    return {ANY, channel or ANY, *_above(channel)}


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
