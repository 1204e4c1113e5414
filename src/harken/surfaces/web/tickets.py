"""Tickets: what binds the proofs of a page to this run of the daemon, and keeps a proof from being used twice.

Anyone may have one; it is worth nothing without a session's key. It begins to be used soon after it was given or never,
and under each a page numbers its requests: a number counts once. What is remembered is bounded, and what is forgotten
is too old to begin again.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import Enum
from typing import Final

from harken.clock import Clock
from harken.surfaces.web.proofs import is_same, tagged

HEADER: Final = "harken-ticket"
BEGIN_SECONDS: Final = 120
MOST_OPEN: Final = 1_000
WINDOW: Final = 1_024  # requests of one page may overtake each other by so much


class NumberState(Enum):
    """What a number under a ticket is."""

    NEW = "new"
    STALE = "stale"  # of another run, or too old to begin: the page gets a new ticket
    SPENT = "spent"


@dataclass(slots=True)
class _Count:
    """The numbers that came under a ticket: the highest, and which of those below it."""

    highest: int = 0
    seen: int = 0

    def take(self, number: int) -> bool:
        """Note a number; return whether it is new."""
        if number > self.highest:
            self.seen = (self.seen << min(number - self.highest, WINDOW) | 1) & ((1 << WINDOW) - 1)
            self.highest = number
            return True
        behind = self.highest - number
        if behind >= WINDOW or self.seen >> behind & 1:
            return False
        self.seen |= 1 << behind
        return True


class Tickets:
    """The tickets of one run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._counts: dict[tuple[str, str], _Count] = {}  # the one that was used last is last

    def issue(self) -> str:
        """Return a new ticket."""
        body = f"{self._now()}.{secrets.token_urlsafe(12)}"
        return f"{body}.{tagged(self._key, 'ticket', body)}"

    def take(self, session: str, ticket: str, number: int) -> NumberState:
        """Use a number of a session's ticket up. The proof that names them has been checked."""
        name = (session, ticket)
        count = self._counts.pop(name, None)
        if count is None:
            if not self._may_begin(ticket) or not self._has_room():
                return NumberState.STALE
            count = _Count()
        self._counts[name] = count
        return NumberState.NEW if count.take(number) else NumberState.SPENT

    def _may_begin(self, ticket: str) -> bool:
        body, _, signature = ticket.rpartition(".")
        if not is_same(signature, tagged(self._key, "ticket", body)):
            return False
        # A clock that was set back must not let one begin again that is forgotten.
        return 0 <= self._now() - _given_at(ticket) <= BEGIN_SECONDS

    def _has_room(self) -> bool:
        if len(self._counts) < MOST_OPEN:
            return True
        # Only what could not begin again is forgotten: else its numbers would count twice.
        old = next((name for name in self._counts if self._now() - _given_at(name[1]) > BEGIN_SECONDS), None)
        if old is not None:
            del self._counts[old]
        return old is not None

    def _now(self) -> int:
        return int(self._clock.now().timestamp())


def _given_at(ticket: str) -> int:
    return int(ticket.partition(".")[0])
