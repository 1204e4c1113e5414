"""One at a time in each chat: whoever writes there waits for those before, and not for other chats.

Two at a time could change places when the first is told to wait; and what stands in the place of an answer must be
there before the answer, or not at all. Above is `sender.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio


@dataclass(slots=True)
class _Turn:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    users: int = 0


class Turns:
    """Whose turn it is. A chat in which nobody writes is not remembered."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    @asynccontextmanager
    async def of(self, chat_id: str) -> AsyncIterator[None]:
        """Have a chat for oneself until the block ends."""
        turn = self._turns.setdefault(chat_id, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[chat_id]
