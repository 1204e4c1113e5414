"""How long to wait before the next try: full jitter, from half a second to half a minute, without end.

Pure: chance is given. A connection was good when it stood for `STEADY_SECONDS`, or was ended properly by the server
after it had sent something; one that is accepted and dropped at once is not, or a broken server would be called
several times a second for ever. What a server asks for (`Retry-After`, `retry:`) is respected up to a limit, and at
least the first wait is kept: one that asks us back at once after each word would be called without a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.5
MOST_SECONDS: Final = 30.0
MAX_ASKED_SECONDS: Final = 300.0
STEADY_SECONDS: Final = 10.0
REFUSED_SECONDS: Final = 60.0  # between tries after the server has refused us more than twice
REFUSALS_BEFORE_SLOW: Final = 2

_MAX_DOUBLINGS: Final = 6  # already above the most: a bigger power would only grow


class Backoff:
    """Counts the tries in a row that failed and says how long to wait. `chance` returns a number from 0 up to 1."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._failures = 0
        self._refusals = 0

    @property
    def needs_person(self) -> bool:
        """Whether the server refused us so often that only a person can help."""
        return self._refusals > REFUSALS_BEFORE_SLOW

    def was_good(self) -> None:
        """Begin again at the shortest wait."""
        self._failures = 0
        self._refusals = 0

    def next_wait(self, asked: float | None = None, *, is_refused: bool = False) -> float:
        """Return the seconds to wait after one more failure; `asked` is what the server said."""
        ceiling: float = min(MOST_SECONDS, FIRST_SECONDS * 2.0 ** min(self._failures, _MAX_DOUBLINGS))
        self._failures += 1
        self._refusals = self._refusals + 1 if is_refused else 0
        wait = ceiling * self._chance()
        if self.needs_person:
            wait += REFUSED_SECONDS
        if asked is None:
            return wait
        return max(wait, min(max(asked, FIRST_SECONDS), MAX_ASKED_SECONDS))
