"""A clock that stands still until a test moves it.

It satisfies `harken.clock.Clock`. It is not a timer: nothing waits on it and moving it wakes nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_START: Final = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


class FakeClock:
    """The present, as a test decides it. Begins on a Monday morning unless told otherwise."""

    def __init__(self, start: datetime = _START) -> None:
        self._now = start

    def now(self) -> datetime:
        """Return the present time in UTC."""
        return self._now

    def advance(self, seconds: float) -> datetime:
        """Let time pass and return the new present."""
        if seconds < 0:
            raise ValueError("time only passes forwards; use set_back for a clock that is corrected")
        self._now += timedelta(seconds=seconds)
        return self._now

    def set_back(self, seconds: float) -> datetime:
        """Turn the clock back, as a machine does when its time is corrected, and return the new present."""
        if seconds < 0:
            raise ValueError("a clock is set back by a positive number of seconds")
        self._now -= timedelta(seconds=seconds)
        return self._now
