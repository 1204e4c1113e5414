"""How long to wait before a request is made again. Pure: chance and the present are given.

What the service asks for is respected, never shortened, up to a limit that keeps one strange answer from switching a
source off. Without a word from it, waits double. Chance only ever adds to what was asked, so that many who were told
the same second do not come back in the same instant. Above are the clients; they decide whether they wait at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

FIRST_SECONDS: Final = 0.5
MOST_SECONDS: Final = 30.0
MAX_ASKED_SECONDS: Final = 900.0
MAX_ADDED_SECONDS: Final = 0.5

_MAX_DOUBLINGS: Final = 6  # already above the most
_SECONDS: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")


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
    ceiling = min(MOST_SECONDS, FIRST_SECONDS * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS))
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
