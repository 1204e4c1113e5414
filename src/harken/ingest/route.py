"""Which mailbox a draft goes to, and how far it may push.

The owner's routes and attention rules, the first match wins. Text and channel are given cleaned. What trust a sender
has is decided before, in `trust`; who is pushed how is decided later, by dispatch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harken.ingest.trust import same_id
from harken.model import INBOX, TASK, Attention, Draft, Mailbox, Priority, Trust

_RAISED: Final[Mapping[Attention, Attention]] = {
    Attention.PROMPT: Attention.BOUNDARY,
    Attention.BOUNDARY: Attention.WAKE,
}
_LOWERED: Final[Mapping[Attention, Attention]] = {Attention.WAKE: Attention.BOUNDARY}


@dataclass(frozen=True, slots=True)
class Route:
    """Where matching drafts go. Empty fields match everything; `channel` may be `*` or `prefix/*`."""

    mailbox: Mailbox
    channel: str = ""
    sender: str = ""
    source: str = ""
    contains: str = ""


@dataclass(frozen=True, slots=True)
class AttentionRule:
    """How far matching drafts may push. An unknown sender's only where `allow_unknown` says so."""

    attention: Attention
    source: str = ""
    channel: str = ""
    sender: str = ""
    allow_unknown: bool = False


def route(draft: Draft, text: str, routes: Sequence[Route]) -> Mailbox:
    """Return the mailbox of the first route that matches the draft and its cleaned text, else `inbox`."""
    folded = text.casefold()
    for candidate in routes:
        if _matches(candidate, draft) and candidate.contains.casefold() in folded:
            return candidate.mailbox
    return INBOX


def attention(
    draft: Draft, trust: Trust, rules: Sequence[AttentionRule], default: Attention, *, mailbox: str = ""
) -> Attention:
    """Return how far the draft may push: the first matching rule or the default, then its priority.

    An unknown sender is only counted, unless a rule allows it; even then their priority never raises it. Mail to a task
    goes at the next boundary, as colleagues' words do: only what is urgent, or the answer to a question, wakes.
    """
    is_unknown = trust is Trust.UNKNOWN
    is_task_mail = mailbox.startswith(TASK) and not draft.refers_to
    base = Attention.COUNT if is_unknown else _LOWERED.get(default, default) if is_task_mail else default
    for rule in rules:
        if _matches(rule, draft) and (rule.allow_unknown or not is_unknown):
            base = rule.attention
            break
    if draft.priority is Priority.HIGH and not is_unknown:
        return _RAISED.get(base, base)
    return _LOWERED.get(base, base) if draft.priority is Priority.LOW else base


def channel_matches(pattern: str, channel: str) -> bool:
    """Whether a channel is the one named, any (`*`), or below a prefix (`alerts/*`)."""
    if pattern.endswith("/*"):
        return channel.startswith(pattern[:-1])
    return pattern in ("*", channel)


def _matches(rule: Route | AttentionRule, draft: Draft) -> bool:
    if rule.source not in ("", "*", draft.source):
        return False
    if rule.channel and not channel_matches(rule.channel.strip(), draft.channel):
        return False
    return not rule.sender or same_id(rule.sender, draft.sender.id)
