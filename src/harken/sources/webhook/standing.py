"""How one webhook is doing: what came, what was known, what was left out, and why a post was refused last.

Only what people are told; it decides nothing. Above is `source.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from harken.clock import Clock
from harken.sources.source import SourceHealth, SourceState

MAX_COUNTED: Final = 200  # a service may invent channels without end
OTHERS: Final = "(others)"


class WebhookStanding:
    """The counts of one source. `problem` says what a person must do before anything can arrive."""

    def __init__(self, clock: Clock, problem: str = "") -> None:
        self._clock = clock
        self._problem = problem
        self._since = clock.now()
        self._last_message_at: datetime | None = None
        self._known = 0
        self._counts: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._refused = 0
        self._why = ""
        self._refused_at: datetime | None = None

    def health(self) -> SourceHealth:
        """Return how the source is doing now."""
        return SourceHealth(
            state=SourceState.NEEDS_PERSON if self._problem else SourceState.LISTENING,
            reason=self._problem or self._refusals(),
            since=self._since,
            last_message_at=self._last_message_at,
            known=self._known,
            counts=dict(self._counts),
            dropped=dict(self._dropped),
        )

    def stored(self, channel: str, *, is_new: bool) -> None:
        """Take note of what was stored, now or before."""
        if not is_new:
            self._known += 1
            return
        self._last_message_at = self._clock.now()
        _count(self._counts, channel)

    def dropped(self, channel: str) -> None:
        """Take note of what the person does not want to hear of."""
        _count(self._dropped, channel)

    def refused(self, why: str) -> None:
        """Take note of a post that was not taken."""
        self._refused += 1
        self._why = why
        self._refused_at = self._clock.now()

    def _refusals(self) -> str:
        if self._refused_at is None:
            return ""
        times = "1 post was" if self._refused == 1 else f"{self._refused} posts were"
        return f"{times} not taken, the last one at {self._refused_at:%H:%M} UTC: {self._why}"


def _count(counts: dict[str, int], channel: str) -> None:
    name = channel if channel in counts or len(counts) < MAX_COUNTED else OTHERS
    counts[name] = counts.get(name, 0) + 1
