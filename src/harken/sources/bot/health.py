"""How a bot is doing: what was stored, known, left out and refused, and why replies wait. It decides nothing.

Above are the door and the sender, which report here, and the source, whose health it is.
"""

from __future__ import annotations

from dataclasses import replace

from harken.clock import Clock
from harken.sources.health import HealthRecorder, RefusalCount
from harken.sources.source import SourceHealth, SourceState


class BotHealth:
    """What was posted to one bot since the daemon started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recorder = HealthRecorder(clock, state=SourceState.LISTENING)
        self._refusals = RefusalCount()
        self._trouble = ""
        self._waiting = ""

    def stored(self, channel: str, *, is_new: bool) -> None:
        """Note what was posted and is stored."""
        self._trouble = ""
        self._recorder.stored([channel] if is_new else [], known=not is_new)

    def left_out(self, what: str) -> None:
        """Note what was posted and is no message, by its type."""
        self._recorder.dropped(what)

    def refused(self, reason: str) -> None:
        """Note a post that was refused, and why."""
        self._refusals.add(reason, self._clock.now())

    def failed(self, reason: str) -> None:
        """Note why nothing can be taken now."""
        self._trouble = reason

    def waits(self, reason: str) -> None:
        """Note why replies wait for a person; nothing when they do not."""
        self._waiting = reason

    def read(self) -> SourceHealth:
        """Return how it is now."""
        many = self._refusals.count
        count = "1 post was refused" if many == 1 else f"{many} posts were refused, the last one"
        waiting = f"Replies wait: {self._waiting}" if self._waiting else ""
        reasons = (waiting, self._trouble, f"{count}: {self._refusals.why}" if many else "")
        return replace(self._recorder.read(), reason=" ".join(filter(None, reasons)))
