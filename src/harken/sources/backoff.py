"""How long to wait before something is tried again. Pure: chance and the present are given.

What the service asks for is respected, never shortened, up to a limit that keeps one strange answer from switching a
source off. Without a word from it, waits double. Chance only ever adds to what was asked, so that many who were told
the same second do not come back in the same instant. `Backoff` is for connections that are kept: one that is accepted
and dropped at once was not good, or a broken server would be called several times a second for ever. Above are the
clients and the feeds; they decide whether they wait at all.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import anyio

FIRST_SECONDS: Final = 0.5
MOST_SECONDS: Final = 30.0
MAX_ASKED_SECONDS: Final = 900.0
MAX_ADDED_SECONDS: Final = 0.5
MAX_ASKED_BACK_SECONDS: Final = 300.0  # of a connection that the other side has ended
REFUSED_SECONDS: Final = 60.0  # between tries after the other side has refused us more than twice
REFUSALS_BEFORE_SLOW: Final = 2

_MAX_DOUBLINGS: Final = 60
_SECONDS: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class FeedTiming:
    """Where the waits of a feed come from: chance, a way to wait, and a clock that is never set."""

    chance: Callable[[], float] = random.random
    wait: Callable[[float], Awaitable[None]] = anyio.sleep
    monotonic: Callable[[], float] = anyio.current_time


def doubled(first: float, failures: int, most: float) -> float:
    """Return the first wait, doubled for every failure, and at most so long."""
    return min(most, first * 2.0 ** min(max(failures, 0), _MAX_DOUBLINGS))


class Backoff:
    """Counts the tries in a row that failed and says how long to wait. `chance` returns a number from 0 up to 1."""

    def __init__(self, chance: Callable[[], float], *, most_seconds: float = MOST_SECONDS) -> None:
        self._chance = chance
        self._most = most_seconds
        self._failures = 0
        self._refusals = 0

    @property
    def needs_person(self) -> bool:
        """Whether the other side refused us so often that only a person can help."""
        return self._refusals > REFUSALS_BEFORE_SLOW

    def was_good(self) -> None:
        """Begin again at the shortest wait."""
        self._failures = 0
        self._refusals = 0

    def next_wait(self, asked: float | None = None, *, is_refused: bool = False) -> float:
        """Return the seconds to wait after one more failure; `asked` is what the other side said."""
        wait = doubled(FIRST_SECONDS, self._failures, self._most) * self._chance()
        self._failures += 1
        self._refusals = self._refusals + 1 if is_refused else 0
        if self.needs_person:
            wait += REFUSED_SECONDS
        if asked is None:
            return wait
        return max(wait, min(max(asked, FIRST_SECONDS), MAX_ASKED_BACK_SECONDS))


def asked_seconds(headers: Mapping[str, str], present: datetime) -> float | None:
    """Return what `Retry-After` asks for, capped, or None. A date counts by the service's own clock if it tells it."""
    said = _header(headers, "retry-after")
    if _SECONDS.fullmatch(said):
        return min(float(said), MAX_ASKED_SECONDS)
    until = _moment(said)
    if until is None:
        return None
    seconds = (until - (_moment(_header(headers, "date")) or present)).total_seconds()
    return min(max(seconds, 0.0), MAX_ASKED_SECONDS)


def wait_seconds(failures: int, asked: float | None, chance: Callable[[], float]) -> float:
    """Return the seconds to wait after so many failures in a row (from 1 on). It is never nothing."""
    ceiling = doubled(FIRST_SECONDS, failures - 1, MOST_SECONDS)
    if asked is None or not math.isfinite(asked):
        return ceiling * (0.5 + chance() / 2)
    return max(min(asked, MAX_ASKED_SECONDS), FIRST_SECONDS / 2) + MAX_ADDED_SECONDS * chance()


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((value.strip() for key, value in headers.items() if key.lower() == name), "")


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
