"""One access token in memory, renewed in time and by one caller at a time: what all kinds of sign-in share.

A token of 60 minutes is renewed at 55. When that fails for the moment, the old one is used for as long as it lasts.
It knows nothing of how a token is had: whoever makes a `Holder` gives it a function. Above are the sign-ins of
Graph and of bots, below are the clock and the errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

import anyio

from harken.clock import Clock
from harken.errors import NeedsPerson, Unavailable, UserError

MARGIN: Final = timedelta(minutes=5)  # before the end of a token
LIFETIME_SECONDS: Final = 3_600.0  # of a token whose answer does not say
MAX_SECONDS: Final = 1e9
MIN_LIFE: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An access token and when it is to be renewed."""

    token: str = field(repr=False)
    renew_at: datetime
    expires_at: datetime
    stamp: int = 0  # of the cache it came from


def seconds_of(value: object, default: float = LIFETIME_SECONDS) -> float:
    """Return a number of seconds as services write them: as a number or as its digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return float(value[:9])
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MAX_SECONDS:
        return float(value)
    return default


def needs_person(exc: NeedsPerson | UserError) -> NeedsPerson:
    """Return what the reader of a feed is told: settings that are wrong also wait for a person."""
    return exc if isinstance(exc, NeedsPerson) else NeedsPerson(exc.message, exc.hint, action=exc.hint)


class Renew(Protocol):
    """Gets a token; `is_forced` where one that was had before is not to be used again."""

    def __call__(self, *, is_forced: bool) -> Awaitable[Held]:
        """Return a token; raises `NeedsPerson` and `Unavailable`."""
        ...


def held_until(token: str, now: datetime, lifetime_seconds: float, stamp: int = 0) -> Held:
    """Return a token that lasts so long from now."""
    life = max(timedelta(seconds=lifetime_seconds), MIN_LIFE)
    return Held(token=token, renew_at=now + life - min(MARGIN, life / 2), expires_at=now + life, stamp=stamp)


class Holder:
    """Holds a token. `stamp` says whether what it came from has been changed by somebody else."""

    def __init__(self, clock: Clock, renew: Renew, stamp: Callable[[], int] = lambda: 0) -> None:
        self._clock = clock
        self._renew = renew
        self._stamp = stamp
        self._lock = anyio.Lock()
        self._held: Held | None = None

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return a token; with `is_fresh` another one than those that were returned before the call."""
        before = self._held
        if before is not None and not is_fresh and self._is_good(before):
            return before.token
        async with self._lock:
            held = self._held
            if held is not None and held is not before and self._is_good(held):
                return held.token  # somebody else was faster
            is_same = held is not None and held.stamp == self._stamp()
            try:
                self._held = await self._renew(is_forced=is_fresh or is_same)
            except Unavailable as exc:
                now = self._clock.now()
                if held is None or is_fresh or not is_same or now >= held.expires_at:
                    raise
                self._held = replace(held, renew_at=now + timedelta(seconds=exc.retry_after))
            return self._held.token

    def forget(self) -> None:
        """Hold nothing any more."""
        self._held = None

    def _is_good(self, held: Held) -> bool:
        return self._clock.now() < min(held.renew_at, held.expires_at) and held.stamp == self._stamp()
