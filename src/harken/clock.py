"""Where time comes from.

Everything that needs the time is given a `Clock`; nothing calls `datetime.now` by itself, so that tests can
move time and a clock set back by the machine is seen in one place. `SystemClock` is the only real one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The present, as an aware UTC datetime. It may go backwards: never order messages by it."""

    def now(self) -> datetime:
        """Return the present time in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present time in UTC."""
        return datetime.now(UTC)
