"""What goes wrong on the way: errors of the service, resets, silence, half of an answer, pages twice or out of order.

Drawn by chance that can be repeated (per method, path and how often it was asked), or ordered for the next request.
The door carries them out; this only decides.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tests.graph.dice import Dice


class Fault(StrEnum):
    """One thing that can go wrong."""

    SERVER_ERROR = "server_error"
    """500 with an error body, nothing done."""
    BAD_GATEWAY = "bad_gateway"
    """502 with a page of HTML, nothing done."""
    UNAVAILABLE = "unavailable"
    """503, with or without the seconds to wait, nothing done."""
    GATEWAY_TIMEOUT = "gateway_timeout"
    """504, and yet it was done."""
    THROTTLED = "throttled"
    """429 without the seconds to wait, nothing done."""
    RESET = "reset"
    """The connection is reset, nothing done."""
    LOST = "lost"
    """It was done, and the connection is reset before the answer."""
    DELAYED = "delayed"
    """The connection is reset, and a message that was to be sent is there only a while later."""
    TRUNCATED = "truncated"
    """It was done, and the answer stops half-way."""
    STALLED = "stalled"
    """Nothing done and nothing said until the client gives up."""
    REORDERED = "reordered"
    """A page of a list comes in another order."""
    DUPLICATED = "duplicated"
    """The next link of a page leads to the same page again."""


# A bad day: what a feed has to bear, and how often.
BAD_DAY: Final[Mapping[str, float]] = MappingProxyType(
    {
        Fault.SERVER_ERROR: 0.05,
        Fault.BAD_GATEWAY: 0.03,
        Fault.UNAVAILABLE: 0.04,
        Fault.GATEWAY_TIMEOUT: 0.03,
        Fault.THROTTLED: 0.04,
        Fault.RESET: 0.05,
        Fault.LOST: 0.03,
        Fault.TRUNCATED: 0.05,
        Fault.REORDERED: 0.05,
        Fault.DUPLICATED: 0.05,
    }
)


class Faults:
    """Decides for each request what goes wrong, if anything."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._lock = threading.Lock()
        self._asked: Counter[tuple[str, str]] = Counter()
        self._rates: dict[Fault, float] = {}
        self._ordered: list[tuple[Fault, str, str]] = []
        self._under = ""

    def set_rates(self, rates: dict[Fault, float], under: str) -> None:
        """Let each of these happen to a share of the requests whose path starts so."""
        with self._lock:
            self._rates, self._under = dict(rates), under

    def order(self, fault: Fault, path: str, times: int, method: str = "") -> None:
        """Let this happen to the next requests whose path holds the text, of one method or of all."""
        with self._lock:
            self._ordered += [(fault, path, method)] * times

    def draw(self, method: str, path: str) -> Fault | None:
        """What goes wrong with this request."""
        with self._lock:
            for place, (fault, text, of) in enumerate(self._ordered):
                if text in path and of in {"", method}:
                    del self._ordered[place]
                    return fault
            if not self._rates or not path.startswith(self._under):
                return None
            self._asked[method, path] += 1
            drawn = self._dice.fraction("fault", method, path, self._asked[method, path])
            for fault, rate in self._rates.items():
                if drawn < rate:
                    return fault
                drawn -= rate
            return None
