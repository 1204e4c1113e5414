"""What Claude Code's own record of a conversation proves. Pure.

What waits in a queue is recorded as such, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harken.hosts.transcript import above_an_answer

_KINDS = frozenset({"user", "attachment"})


def recorded(lines: Sequence[bytes], ids: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand above an answer of the model."""
    return above_an_answer(lines, ids, _KINDS)
