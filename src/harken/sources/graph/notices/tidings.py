"""What a feed waits on between two looks: the time, or word from Microsoft that something changed.

While word comes, the time between two looks is long; it is kept only as a net for what got lost. Whether word comes is
not believed for ever: when the net finds something that nobody told of, the feed goes back to its usual pace until the
next word. Nothing here talks to anybody. Above are the feeds, `door.py` and `keeping.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import anyio

NET_SECONDS: Final = 300.0  # between two looks while word comes
FOLD_SECONDS: Final = 1.0  # word that comes while the feed looks is folded into one more look, so much later
MOST_CHATS: Final = 200

Wait: TypeAlias = Callable[[float], Awaitable[None]]


class Rest:
    """A wait that can be ended from elsewhere, also before it begins. One task waits."""

    def __init__(self) -> None:
        self._scope: anyio.CancelScope | None = None
        self.is_ended = False

    def end(self) -> None:
        """End the wait, or the next one if nobody waits."""
        self.is_ended = True
        if self._scope is not None:
            self._scope.cancel()

    async def take(self, wait: Wait, seconds: float) -> bool:
        """Wait, and return whether it was ended before its time."""
        if not self.is_ended:
            try:
                with anyio.CancelScope() as self._scope:
                    await wait(seconds)
            finally:
                self._scope = None
        was_ended, self.is_ended = self.is_ended, False
        return was_ended


class Tidings:
    """Word of changes for one feed, and whether it can be relied upon."""

    def __init__(self) -> None:
        self._rest = Rest()
        self._chats: set[str] = set()
        self._is_subscribed = False
        self._is_doubted = False
        self._was_told = False  # the look that goes on, or went on last, follows a word
        self._was_net = False  # it follows a long wait in which no word came
        self._is_whole = True

    @property
    def works(self) -> bool:
        """Whether Microsoft tells of changes, as far as is known."""
        return self._is_subscribed and not self._is_doubted

    @property
    def is_doubted(self) -> bool:
        """Whether something was found lately that nobody told of."""
        return self._is_subscribed and self._is_doubted

    def begins(self) -> None:
        """Take note that word will come from now on; what changed before is looked for at once."""
        self._is_subscribed, self._is_doubted = True, False
        self._rest.end()

    def ends(self) -> None:
        """Take note that no word will come."""
        if self._is_subscribed:
            self._is_subscribed = False
            self._rest.end()

    def tell(self, chat_id: str = "") -> None:
        """Pass on that something changed, in this chat if one is named."""
        self._is_doubted = False
        if chat_id and len(self._chats) < MOST_CHATS:
            self._chats.add(chat_id)
        self._rest.end()

    def take(self) -> frozenset[str]:
        """Return the chats that were named since the last look, which begins now."""
        chats = frozenset(self._chats)
        self._chats.clear()
        return chats

    def found(self, count: int, *, is_whole: bool = True) -> None:
        """Take note of how much a look found that is new, and whether it read all that it should."""
        self._is_whole = is_whole
        if count and self._was_net:
            self._is_doubted = True

    def seconds(self, usual: float) -> float:
        """Return how long the feed will wait if no word comes."""
        return max(NET_SECONDS, usual) if self._can_wait else usual

    @property
    def _can_wait(self) -> bool:
        # After a word once more at the usual pace: it can come before what it is about can be read.
        return self.works and self._is_whole and not self._was_told

    async def rest(self, wait: Wait, usual: float) -> None:
        """Wait until the next look is due."""
        if self._rest.is_ended:
            await wait(min(FOLD_SECONDS, usual))
            self._rest.is_ended = False
            self._was_told, self._was_net = True, False
            return
        is_net = self._can_wait
        self._was_told = await self._rest.take(wait, self.seconds(usual))
        self._was_net = is_net and not self._was_told


@dataclass(frozen=True, slots=True)
class Topic:
    """What a feed is told of: a resource of Graph, and which changes."""

    resource: Callable[[], str]
    changes: str
    tidings: Tidings
