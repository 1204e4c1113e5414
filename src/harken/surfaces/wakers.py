"""Ways to wake an idle session: by ringing its bell, or by handing a text to whatever can start its turn.

A bell carries nothing: the hook that it starts asks. A text carries what waits, and is taken back when the host refuses
it. Whatever the host took it queues, so only its own prompt or record proves that the model got it. Both are kept by
the session, for `dispatch/wake.py` to choose from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import anyio

from harken.hosts.wake import PushChannel
from harken.model import WakeResult
from harken.sessions.session import Session
from harken.sessions.turns import TurnPhase
from harken.surfaces.composer import HookComposer, SurfaceProfile

Send = Callable[[str], Awaitable[bool | None]]
"""Brings a text to a host; returns whether it was taken: None when it may have been, and its record will show it.

Raises `ConnectionResetError` when nobody is left who could say it: then it goes by the next way, as a repeat.
"""


Notify = Callable[[str, Mapping[str, object]], bool]
"""Sends a notification if there is room for it, and returns whether there was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BellWaker:
    """Wakes a session whose host watches its bell."""

    session: Session
    ring: Callable[[Session], bool]

    @property
    def name(self) -> str:
        """The surface."""
        return "wake: bell"

    async def wake(self) -> WakeResult:
        """Ring."""
        return WakeResult.TAKEN if self.ring(self.session) else WakeResult.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWaker:
    """Wakes a session by a text that somebody else brings to it."""

    name: str
    session: Session
    composer: HookComposer
    send: Send
    most_chars: int
    speaks_as_user: bool
    runs_prompt_hook: bool = True  # the host runs its prompt hook for the turn that this begins
    close: Callable[[], None] | None = None  # ends what it goes through, when another one takes its place

    async def wake(self) -> WakeResult:
        """Hand over what waits, if the session can be woken now."""
        if await self.session.look():
            return WakeResult.POSTPONED
        profile = SurfaceProfile(
            surface=self.name,
            most_chars=self.most_chars,
            phase=TurnPhase.WAKE,
            speaks_as_user=self.speaks_as_user,
            is_new_turn=True,
        )
        told = await self.composer.tell(self.session, profile)
        if not told.text:
            return WakeResult.REFUSED
        # Cancelled in the middle of it, nobody can say whether the host has the text: it stays open until proof.
        try:
            is_taken = await self.send(told.text)
        except ConnectionResetError:
            await self.composer.give_up(self.session, told)
            return WakeResult.REFUSED
        if is_taken is False:
            with anyio.CancelScope(shield=True):
                await self.composer.take_back(self.session, told)
            return WakeResult.REFUSED
        if is_taken and not self.runs_prompt_hook:
            self.session.work()
        return WakeResult.TAKEN


def push_waker(channel: PushChannel, session: Session, composer: HookComposer, notify: Notify) -> TextWaker:
    """Return the way to wake a session that listens to a push channel of its host."""

    async def send(text: str) -> bool:
        return notify(channel.method, channel.params(text))

    return TextWaker(
        name=channel.surface,
        session=session,
        composer=composer,
        send=send,
        most_chars=channel.most_chars,
        speaks_as_user=False,
    )
