"""Which chats are left alone for a while, because they refuse us or do not answer, and when they are tried again.

A chat that refuses us may have something new that changes that; one that does not answer only costs time, of which the
other chats get less. Neither is ever given up. It decides and does nothing; above is `polling.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from harken.errors import HarkenError, Unavailable
from harken.sources.graph.teams.reading import Chat

MOST_REFUSALS: Final = 3
MOST_TROUBLES: Final = 5
MOST_LATE: Final = 2
# Until it is tried again, each time longer: a chat may let us in soon after it was made, or have been left for good.
REFUSED_SECONDS: Final = (60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0)
TROUBLED_SECONDS: Final = (30.0, 60.0, 120.0)


class Late(Unavailable):
    """A chat did not answer for so long that the others would have to wait."""

    def __init__(self) -> None:
        super().__init__("The chat does not answer in time.", "it is read again later")


@dataclass(frozen=True, slots=True)
class _Left:
    """A chat that is left alone: at which gate, how often it was, and until when."""

    gate: str
    times: int
    again_at: float
    is_refused: bool


class Patience:
    """How often chats failed, and which of them are left alone."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failures = Counter[str]()
        self._left: dict[str, _Left] = {}

    @property
    def left(self) -> Collection[str]:
        """The chats that are left alone, or are to be tried at once after a restart."""
        return self._left.keys()

    @property
    def closed(self) -> int:
        """How many chats cannot be read now."""
        return sum(left.times > 0 for left in self._left.values())

    def begin(self, chat_ids: Iterable[str]) -> None:
        """Forget everything but these: they are to be tried, whether the list shows them or not."""
        self._failures.clear()
        self._left = {each: _Left("", 0, self._monotonic(), is_refused=False) for each in chat_ids}

    def worked(self, chat_id: str) -> None:
        """Take note that a chat was read."""
        self._failures.pop(chat_id, None)
        self._left.pop(chat_id, None)

    def failed(self, chat: Chat, error: HarkenError) -> bool:
        """Take note of a failure, and return whether the chat is left alone now."""
        is_refused = not isinstance(error, Unavailable)
        most = MOST_REFUSALS if is_refused else MOST_LATE if isinstance(error, Late) else MOST_TROUBLES
        self._failures[chat.id] += 1
        before = self._left.get(chat.id)
        if self._failures[chat.id] < most and (before is None or not before.times):
            return False
        times = before.times if before and before.is_refused == is_refused else 0
        pauses = REFUSED_SECONDS if is_refused else TROUBLED_SECONDS
        again_at = self._monotonic() + pauses[min(times, len(pauses) - 1)]
        # One that is tried though the list does not show it comes without a gate: what the list showed last counts.
        gate = chat.gate or (before.gate if before else "")
        self._left[chat.id] = _Left(gate, times + 1, again_at, is_refused)
        return True

    def can_read(self, chat: Chat) -> bool:
        """Whether a chat is not left alone: something new may have changed that it refuses us, or time has passed."""
        left = self._left.get(chat.id)
        if left is None or self._monotonic() >= left.again_at:
            return True
        return left.is_refused and left.gate != chat.gate

    def due(self) -> list[str]:
        """Return the chats that are to be tried again now."""
        now = self._monotonic()
        return [chat_id for chat_id, left in self._left.items() if now >= left.again_at]
