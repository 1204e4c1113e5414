"""How a bot is doing, in numbers: what was stored, known, left out and refused. It decides nothing.

Above are the door, which reports here, and the source, whose health it is.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Final

from harken.clock import Clock
from harken.sources.source import SourceHealth, SourceState

MAX_COUNTED: Final = 50
OTHERS: Final = "(others)"


class BotStanding:
    """What was posted to one bot since the daemon started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.now()
        self._last_message_at: datetime | None = None
        self._counts = Counter[str]()
        self._dropped = Counter[str]()
        self._known = 0
        self._refused = 0
        self._refusal = ""
        self._trouble = ""
        self._waiting = ""

    def stored(self, channel: str, *, is_new: bool) -> None:
        """Note what was posted and is stored."""
        self._trouble = ""
        if is_new:
            self._count(self._counts, channel)
            self._last_message_at = self._clock.now()
        else:
            self._known += 1

    def left_out(self, what: str) -> None:
        """Note what was posted and is no message, by its type."""
        self._count(self._dropped, what)

    def refused(self, reason: str) -> None:
        """Note a post that was refused, and why."""
        self._refused += 1
        self._refusal = reason

    def failed(self, reason: str) -> None:
        """Note why nothing can be taken now."""
        self._trouble = reason

    def waits(self, reason: str) -> None:
        """Note why replies wait for a person; nothing when they do not."""
        self._waiting = reason

    def health(self) -> SourceHealth:
        """Return how it is now."""
        count = "1 post was refused" if self._refused == 1 else f"{self._refused} posts were refused, the last one"
        waiting = f"Replies wait: {self._waiting}" if self._waiting else ""
        reasons = (waiting, self._trouble, f"{count}: {self._refusal}" if self._refused else "")
        return SourceHealth(
            state=SourceState.LISTENING,
            reason=" ".join(filter(None, reasons)),
            since=self._since,
            last_message_at=self._last_message_at,
            known=self._known,
            counts=dict(self._counts),
            dropped=dict(self._dropped),
        )

    def _count(self, counts: Counter[str], name: str) -> None:
        counts[name if name in counts or len(counts) < MAX_COUNTED else OTHERS] += 1
