"""Pairing: a code made on the person's own machine admits the one sender who sends it.

Codes are held in memory only, last ten minutes, work once, and a few wrong tries end them: an unknown sender can
not guess its way in. A message can never change access by anything else it says.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta

from harken.clock import Clock
from harken.model import NewMessage, SenderRule, Trust, fresh_id

LIFETIME = timedelta(minutes=10)
MAX_TRIES = 5
MAX_CODES = 3


@dataclass(slots=True)
class _Code:
    text: str
    until: datetime
    tries_left: int = MAX_TRIES


class Pairings:
    """The codes that are open now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: list[_Code] = []

    def begin(self) -> tuple[str, datetime]:
        """Make a code; the oldest goes when there are too many."""
        code = _Code(fresh_id("pair-", 8), self._clock.now() + LIFETIME)
        self._open = [*self._open, code][-MAX_CODES:]
        return code.text, code.until

    def redeem(self, message: NewMessage) -> SenderRule | None:
        """Return the rule that admits the sender of a message whose whole text is an open code."""
        said = message.text.strip().lower().encode()
        if not said.startswith(b"pair-"):
            return None
        now = self._clock.now()
        self._open = [code for code in self._open if code.until > now and code.tries_left > 0]
        for code in self._open:
            if hmac.compare_digest(code.text.encode(), said):
                self._open.remove(code)
                return SenderRule(message.source, message.sender.id, Trust.KNOWN)
            code.tries_left -= 1
        return None
