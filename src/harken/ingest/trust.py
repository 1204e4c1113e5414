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


def judge(draft: Draft, rules: Sequence[SenderRule], default: Trust, *, decisions: Sequence[SenderRule] = ()) -> Trust:
    """Return the trust of the draft's sender.

    A rule about this sender comes before one about everyone, a decision that the person made at run time before what
    is configured, one about this source before one about any; of equal ones the first.
    """
    closest, trust = (0, 0, 0), default
    for is_decision, group in ((1, decisions), (0, rules)):
        for rule in group:
            closeness = _closeness(rule, draft, is_decision)
            if closeness is not None and closeness > closest:
                closest, trust = closeness, rule.trust
    return trust


def _closeness(rule: SenderRule, draft: Draft, is_decision: int) -> tuple[int, int, int] | None:
    """Return how close a rule is, None when it is about someone else. Any that fits is closer than none."""
    if rule.source not in (draft.source, ANYONE):
        return None
    is_specific = 1 + (rule.source != ANYONE)
    if rule.sender.strip() == ANYONE:
        return 0, is_decision, is_specific
    if fold_id(rule.sender) and same_id(rule.sender, draft.sender.id):
        return 1, is_decision, is_specific
    return None


def fold_id(sender_id: str) -> str:
    """Return the form under which an id is compared and kept."""
    return sender_id.strip(" \t\r\n").translate(_ASCII_LOWER)
