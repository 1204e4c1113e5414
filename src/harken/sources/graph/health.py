"""How the calls to Microsoft Graph are doing: what people are told, and nothing secret.

`GraphHealth` is a snapshot; `Pulse` is what the client notes as it goes. It decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from harken.clock import Clock


@dataclass(frozen=True, slots=True)
class GraphHealth:
    """When it last worked, what last went wrong since then, and until when Microsoft asked us to wait."""

    last_ok_at: datetime | None = None
    last_error: str = ""
    throttled_until: datetime | None = None
    requests: int = 0  # made since the start, repeats included
    repeats: int = 0


class Pulse:
    """Notes how calls end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ok_at: datetime | None = None
        self._error = ""
        self._throttled_until: datetime | None = None
        self._requests = 0
        self._repeats = 0

    def asked(self, *, is_repeat: bool) -> None:
        """Note a request."""
        self._requests += 1
        self._repeats += is_repeat

    def worked(self) -> None:
        """Note that a request worked."""
        self._ok_at = self._clock.now()
        self._error = ""

    def failed(self, message: str) -> None:
        """Note in one sentence why a request did not work."""
        self._error = message

    def throttled(self, seconds: float) -> None:
        """Note that we were asked to wait."""
        until = self._clock.now() + timedelta(seconds=seconds)
        self._throttled_until = max(until, self._throttled_until or until)

    def read(self) -> GraphHealth:
        """Return how it is now; a wait that is over is not told."""
        until = self._throttled_until
        if until is not None and until <= self._clock.now():
            until = None
        return GraphHealth(self._ok_at, self._error, until, self._requests, self._repeats)
