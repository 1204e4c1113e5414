"""Where time comes from, and how loops wait.

Everything that needs the time is given a `Clock`; nothing calls `datetime.now` by itself, so that tests can
move time and a clock set back by the machine is seen in one place. `SystemClock` is the machine's; where machines share
a store, each has a `ServerClock` over it. A loop that looks when something changes, and now and then, waits for a
`Signal`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

import anyio


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


class ServerClock:
    """The time of a server, by this machine's clock and by how far that was off when the server last told its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = timedelta()

    def now(self) -> datetime:
        """Return the present time in UTC."""
        return self._clock.now() + self._ahead

    def observe(self, moment: datetime) -> None:
        """Take over what the server says that it is."""
        self._ahead = moment - self._clock.now()


class Signal:
    """Wakes one loop: rung any number of times, it is waited for once. Rung in the event loop only."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self, _change: object = None) -> None:
        """Let the task that waits, or waits next, go on; what has changed makes no difference."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Return when it was rung since the last wait, or when the seconds are over."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()
