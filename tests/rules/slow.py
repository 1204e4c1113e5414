"""What rules decide, written again from their description alone: slow, plain, and sharing no code with `harken`.

Rules are the objects of the file, messages and everything that happened are plain values. Nothing is carried along: for
each decision the whole past is gone through again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

MAX_WAITING: Final = 64
DEEPEST_CHAIN: Final = 3
MILLISECONDS: Final[Mapping[str, int]] = {
    "": 0,
    "0": 0,
    "1ms": 1,
    "30s": 30_000,
    "1m": 60_000,
    "1m30s": 90_000,
    "5m": 300_000,
    "2h": 7_200_000,
}
TRUST: Final = ("unknown", "known", "owner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message; `at` is in milliseconds since some midnight, UTC."""

    number: int
    at: int
    mailbox: str = "inbox"
    source: str = "s"
    channel: str = ""
    text: str = ""
    trust: str = "known"
    ancestry: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decided:
    """What one rule made of one message."""

    said: Said
    rule: str
    outcome: str
    earlier: int | None = None


@dataclass(slots=True)
class World:
    """The rules, what was decided so far, and what the person did."""

    rules: Sequence[Mapping[str, Any]]
    unable: frozenset[str] = frozenset()
    minutes_east: int = 0
    waited_before: int = 0
    answered: int = 0
    is_paused: bool = False
    past: list[Decided] = field(default_factory=list[Decided])

    def hear(self, said: Said) -> None:
        """Judge a message by every rule."""
        for rule in self.rules:
            decided = self._judged(rule, said)
            if decided.outcome != "no match":
                self.past.append(decided)

    def _judged(self, rule: Mapping[str, Any], said: Said) -> Decided:
        name = rule["name"]
        if not fits(rule, said):
            return Decided(said, name, "no match")
        for outcome, is_so in (
            ("cannot run", name in self.unable),
            ("paused", self.is_paused),
            ("quiet hours", self._is_quiet(rule, said)),
            ("not trusted", TRUST.index(said.trust) < TRUST.index(least_trust(rule))),
            ("loop", name in said.ancestry),
            ("chain too long", asks(rule) and len(said.ancestry) >= DEEPEST_CHAIN),
        ):
            if is_so:
                return Decided(said, name, outcome)
        fired = [item for item in self.past if item.rule == name and item.outcome == "fired"]
        alike = [item for item in fired if beginning(item.said) == beginning(said)]
        for outcome, earlier, window in (("duplicate", alike, "dedupWindow"), ("rate limit", fired, "rateLimit")):
            if earlier and abs(said.at - earlier[-1].said.at) < MILLISECONDS[rule.get(window, "")]:
                return Decided(said, name, outcome, earlier[-1].said.number)
        is_full = asks(rule) and self._waiting() >= MAX_WAITING
        return Decided(said, name, "queue full" if is_full else "fired")

    def _waiting(self) -> int:
        asking = {rule["name"] for rule in self.rules if asks(rule)}
        fired = [item for item in self.past if item.outcome == "fired" and item.rule in asking]
        return max(0, self.waited_before + len(fired) - self.answered)

    def _is_quiet(self, rule: Mapping[str, Any], said: Said) -> bool:
        hours = rule.get("quietHours", "")
        if not hours:
            return False
        begin, end = (int(part[:2]) * 60 + int(part[3:]) for part in hours.split("-"))
        now = (said.at / 60_000 + self.minutes_east) % 1440
        return begin <= now < end if begin < end else not end <= now < begin


def fits(rule: Mapping[str, Any], said: Said) -> bool:
    """Whether a rule is about a message."""
    mailbox, server, channel = rule.get("mailbox", "inbox"), rule.get("server", ""), rule.get("channel", "")
    if said.mailbox != mailbox and (mailbox != "*" or said.mailbox == "replies"):
        return False
    if server and server not in ("*", said.source):
        return False
    if channel.endswith("/*"):
        if not said.channel.startswith(channel[:-1]):
            return False
    elif channel and channel not in ("*", said.channel):
        return False
    return re.search(rule.get("contentRegex", ""), said.text) is not None


def asks(rule: Mapping[str, Any]) -> bool:
    """Whether it makes something wait: an answer, or a free agent."""
    return rule.get("mode") in ("confirm", "auto")


def least_trust(rule: Mapping[str, Any]) -> str:
    """Return the least trust of the sender."""
    return str(rule.get("trust", "known" if rule.get("mode") == "auto" else "unknown"))


def beginning(said: Said) -> bytes:
    """Return what tells duplicates."""
    return said.text.encode()[:256]
