"""How far a sender is trusted, by the owner's decisions.

Only the id that the source vouches for is compared; names are the sender's own choice. A message can never change
what is decided here. What trust allows is up to `route` and to those who push.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from harken.model import Draft, SenderRule, Trust

ANYONE = "*"

_ASCII_LOWER: Final[Mapping[int, int]] = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def same_id(left: str, right: str) -> bool:
    """Whether two sender ids are one, whatever the case and the spaces around them.

    ASCII only: folding more would make one id of two that the source tells apart.
    """
    return fold_id(left) == fold_id(right)


def judge(draft: Draft, rules: Sequence[SenderRule], default: Trust) -> Trust:
    """Return the trust of the draft's sender: the closest rule decides, of equally close ones the first."""
    closest, trust = 0, default
    for rule in rules:
        closeness = _closeness(rule, draft)
        if closeness > closest:
            closest, trust = closeness, rule.trust
    return trust


def _closeness(rule: SenderRule, draft: Draft) -> int:
    """Return 0 when the rule is about someone else, else more the closer it is."""
    if rule.source not in (draft.source, ANYONE):
        return 0
    if rule.sender.strip() == ANYONE:
        is_exact = False
    elif fold_id(rule.sender) and same_id(rule.sender, draft.sender.id):
        is_exact = True
    else:
        return 0
    return 1 + is_exact + 2 * (rule.source != ANYONE)


def fold_id(sender_id: str) -> str:
    """Return the form under which an id is compared and kept."""
    return sender_id.strip(" \t\r\n").translate(_ASCII_LOWER)
