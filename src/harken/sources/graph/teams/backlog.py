"""What changed in one chat since it was last read, gathered a few pages at a time. Pure.

Pages come newest first and cannot come otherwise, while messages are passed on oldest first: so all of them are held
until the oldest is there. When that is more than anybody wants to hold, the newer part is put down again, and it is
remembered where it begins, so that it is asked for later as one piece. Above is `chats.py`, which asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from harken.sources.graph.teams.place import OVERLAP_MS
from harken.sources.graph.teams.reading import Chat, Written

MOST_HELD: Final = 6_000  # messages of a chat
MOST_DOUBLINGS: Final = 6


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed in a chat, the oldest change first. `until` is not 0 if only changes up to that were read."""

    messages: Sequence[Written]
    until: int = 0


@dataclass(slots=True)
class Backlog:
    """Changes after a time, of a chat as the list showed it when they were first asked for."""

    chat: Chat
    after: int
    before: int = 0  # what changed from here on is left for later; 0: nothing is
    later: tuple[int, ...] = ()  # where the parts after this one end
    most_held: int = MOST_HELD
    is_part: bool = False  # it is known to be small enough
    found: dict[str, Written] = field(default_factory=dict[str, Written])
    oldest: int = 0  # whatever changed between this and `before` was found
    doublings: int = 0  # how often more pages had to be asked for because they led no further

    @property
    def is_begun(self) -> bool:
        """Whether it says more than where to begin."""
        return bool(self.oldest or self.before or self.later)

    @property
    def end(self) -> int:
        """Before when to ask on, 0 if that is open: changes of one instant may be on two pages."""
        return self.oldest + 1 if self.oldest else self.before

    def take(self, page: Iterable[Written]) -> None:
        """Add a page."""
        for written in page:
            if written.id not in self.found or self.found[written.id].modified < written.modified:
                self.found[written.id] = written
            self.oldest = min(self.oldest or written.modified, written.modified)
        if len(self.found) > self.most_held and self._can_be_cut:
            self.later = (self.before, *self.later)
            self.before = self.end
            self.found = {key: each for key, each in self.found.items() if each.modified < self.before}

    @property
    def _can_be_cut(self) -> bool:
        """Whether a part that ends here leads further than what was read before; one that was cut is not cut again."""
        return not self.is_part and self.end != self.before and self.oldest > self.after + OVERLAP_MS

    def leads_on(self, reached: int) -> bool:
        """Whether it is worth to ask on: it got further than before, or asks for more pages the next time."""
        if self.oldest != reached:
            self.doublings = 0
            return True
        self.doublings += 1
        return self.doublings <= MOST_DOUBLINGS

    def changes(self) -> Changes:
        """Return what was found, once all of it is there."""
        ordered = sorted(self.found.values(), key=lambda each: (each.modified, each.created, each.id))
        return Changes(ordered, until=self.before and self.before - 1)

    def rest(self) -> Backlog | None:
        """Return what is to be read after this, if only a part was."""
        if not self.before:
            return None
        after = self.before - 1 - OVERLAP_MS
        before, *later = self.later or (0,)
        return Backlog(self.chat, after, before, tuple(later), self.most_held, is_part=bool(before))
