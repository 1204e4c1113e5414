"""What a person has chosen in `harken watch`, and whether a key may act on it. Pure.

Things come and go by themselves while a key is on its way down. So what Harken has chosen for the person is acted on
only after it stood there for a while, and what they chose themselves at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

SETTLE_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChoice:
    """Which question or run is chosen, since when, and by whom."""

    chosen: str = ""
    since: float = 0.0
    is_own: bool = False  # the person's own, not one that was made for them
    ending: str = ""  # the run that a second Esc ends
    ending_until: float = 0.0
    careful_until: float = 0.0  # a run has just been ended: one Esc too many must not end another

    def among(self, ids: Sequence[str], now: float) -> Self:
        """Return the choice when these are what there is: the same, else the first."""
        if self.chosen in ids:
            return self
        return replace(self, chosen=ids[0] if ids else "", since=now, is_own=False)

    def moved(self, ids: Sequence[str], by: int, now: float) -> Self:
        """Return the choice after the person went up or down."""
        if not ids:
            return self
        place = ids.index(self.chosen) + by if self.chosen in ids else 0
        return replace(self, chosen=ids[min(max(place, 0), len(ids) - 1)], since=now, is_own=True)

    def is_settled(self, now: float) -> bool:
        """Whether a key that is pressed now is meant for what is chosen."""
        return self.is_own or now - self.since >= SETTLE_SECONDS

    def held(self, now: float) -> Self:
        """Return the choice after a key came too early: one that is held down never gets through."""
        return replace(self, since=now)

    def ending_soon(self, run: str, now: float) -> Self:
        """Return the choice after a first Esc."""
        return replace(self, ending=run, ending_until=now + AGAIN_SECONDS)

    def ends(self, run: str, now: float) -> bool:
        """Whether an Esc now is the second one for this run."""
        return self.ending == run and now < self.ending_until

    def ended(self, now: float) -> Self:
        """Return the choice after a run was ended."""
        return replace(self, ending="", careful_until=now + AGAIN_SECONDS)

    def is_careful(self, now: float) -> bool:
        """Whether also the only run needs a second Esc."""
        return now < self.careful_until
