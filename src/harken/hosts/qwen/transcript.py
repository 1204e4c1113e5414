"""What Qwen Code's own record of a conversation proves. Pure.

What its own inbox brought is recorded when the turn for it begins, not when it was queued.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harken.hosts.transcript import above_an_answer

_KINDS = frozenset({"user", "tool_result"})


def recorded(lines: Sequence[bytes], ids: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand above an answer of the model."""
    return above_an_answer(lines, ids, _KINDS)
