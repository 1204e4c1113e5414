"""Which parts of long messages a conversation was given, piece by piece. Pure, in memory.

A message that is read in pieces has arrived when all of its text has. What is not known, because the daemon was
restarted or another conversation began, counts as not given.
"""

from __future__ import annotations

from typing import Final

from harken.model import MessageId

MOST_MESSAGES: Final = 200
MOST_SPANS: Final = 200

Span = tuple[int, int]
"""TimelinePart of a text: its first character, and the one after its last."""


class Coverage:
    """What one conversation was given of the messages that it reads in pieces."""

    def __init__(self) -> None:
        self._spans: dict[MessageId, tuple[Span, ...]] = {}

    def add(self, message: MessageId, span: Span) -> None:
        """A piece was given. Of very many messages, or scattered pieces, the oldest are forgotten."""
        spans = _merged([*self._spans.pop(message, ()), span])
        self._spans[message] = spans[-MOST_SPANS:]
        if len(self._spans) > MOST_MESSAGES:
            del self._spans[next(iter(self._spans))]

    def gap(self, message: MessageId, length: int, span: Span) -> int | None:
        """Return the first character that is not given, counting a piece that is about to be; None when all is."""
        spans = _merged([*self._spans.get(message, ()), span])
        end = spans[0][1] if spans[0][0] == 0 else 0
        return end if end < length else None


def _merged(spans: list[Span]) -> tuple[Span, ...]:
    """Return the same parts, in order, with those joined that touch."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return tuple(joined)
