"""Ways to wake an idle session: by ringing its bell, or by handing a text to whatever can start its turn.

A bell carries nothing: the hook that it starts asks. A text carries what waits, and is taken back when the host does
not take it. Both are kept by the session, for `dispatch/wake.py` to choose from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from harken.inbox import Session
from harken.inbox.turns import Carriage
from harken.surfaces.telling import Manner, Teller

Send = Callable[[str], Awaitable[bool | None]]
"""Brings a text to a host; returns whether it was taken: None when it may have been, but nobody said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BellWaker:
    """Wakes a session whose host watches its bell."""

    session: Session
    ring: Callable[[Session], bool]

    @property
    def name(self) -> str:
        """The surface."""
        return "wake: bell"

    async def wake(self) -> bool:
        """Ring."""
        return self.ring(self.session)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWaker:
    """Wakes a session by a text that somebody else brings to it."""

    name: str
    session: Session
    teller: Teller
    send: Send
    most_chars: int
    speaks_as_user: bool
    is_echoed: bool = True
    close: Callable[[], None] | None = None  # ends what it goes through, when another one takes its place

    async def wake(self) -> bool:
        """Hand over what waits."""
        manner = Manner(
            surface=self.name,
            most_chars=self.most_chars,
            carriage=Carriage.WAKE,
            speaks_as_user=self.speaks_as_user,
            is_echoed=self.is_echoed,
            is_new_turn=True,
        )
        told = await self.teller.tell(self.session, manner)
        if not told.text:
            return False
        is_taken: bool | None = None
        try:
            is_taken = await self.send(told.text)
        finally:
            with anyio.CancelScope(shield=True):
                if is_taken is None:
                    await self.teller.give_up(self.session, told)
                elif not is_taken:
                    await self.teller.take_back(self.session, told)
        if is_taken and not self.is_echoed:
            # No hook will say that its turn has begun.
            self.session.is_busy = True
        return is_taken is True
