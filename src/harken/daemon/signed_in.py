"""A source behind a sign-in: it is followed while somebody is signed in, and says whose turn it is while nobody is.

What is followed knows nothing of that: it raises `NeedsPerson`, and is followed again from where it was as soon as the
person has acted. A sign-in by a command is seen within seconds, because it changes the cache's stamp. Above are
`graph.py`, which makes these, and `feeding.py`; below are the sources.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import anyio

from harken.clock import Clock
from harken.dispatch.outbox import ReplySender
from harken.errors import HarkenError, NeedsPerson
from harken.model import Draft, timestamp
from harken.sources.base import Batch, Feed, Source, SourceHealth, SourceState
from harken.sources.graph.client import GraphClient
from harken.sources.graph.tokens.who import Person, Standing

LOOK_SECONDS: Final = 1.0
LOOKS: Final = 300  # then it is tried anyway: consent is given elsewhere, and nobody tells us


class SignsIn(Protocol):
    """Who gets tokens: a person's sign-in or an Agent User's."""

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return an access token; raises `NeedsPerson` and `Unavailable`."""
        ...

    async def standing(self) -> Standing:
        """Return who is signed in, and what a person must do."""
        ...


@dataclass(slots=True, kw_only=True)
class SignIn:
    """Whether somebody is signed in, as last seen. `stamp` changes whenever what is kept of it does."""

    tokens: SignsIn
    stamp: Callable[[], int] = lambda: 0
    user_id: str = ""  # known without asking, of an Agent User
    person: Person = field(default_factory=Person)
    action: str = ""

    @property
    def title(self) -> str:
        """Who is signed in, for people; empty: nobody, as far as is known."""
        return self.person.title if self.person != Person() else ""

    def me(self) -> str:
        """Return the id of who is signed in."""
        return self.person.user_id or self.user_id

    async def look(self) -> bool:
        """Return whether somebody is signed in."""
        try:
            standing = await self.tokens.standing()
        except HarkenError as exc:
            # Such as a keyring that is locked.
            self.action = exc.action if isinstance(exc, NeedsPerson) else f"{exc.message} {exc.hint}"
            return False
        self.person = standing.sign_in.person if standing.sign_in else Person()
        is_in = bool(self.user_id) or standing.sign_in is not None
        self.action = "" if is_in else standing.action
        return is_in

    async def acted(self, before: int) -> None:
        """Wait until what is kept has another stamp, or for as long as it takes to ask again anyway."""
        for _ in range(LOOKS):
            if self.stamp() != before:
                return
            await anyio.sleep(LOOK_SECONDS)


class SignedInSource:
    """A source, its sign-in, and how what it yields is answered."""

    def __init__(
        self, inner: Source, sign_in: SignIn, client: GraphClient, clock: Clock, *, sender: ReplySender | None
    ) -> None:
        self._inner = inner
        self._sign_in = sign_in
        self._client = client
        self._clock = clock
        self.sender = sender

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self._inner.name

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        return self._inner.kind

    @property
    def address(self) -> str:
        """Where the other side is."""
        return self._inner.address

    def feeds(self) -> Sequence[Feed]:
        """Return its streams, each held back until somebody is signed in."""
        return [SignedInFeed(feed, self._sign_in) for feed in self._inner.feeds()]

    def health(self) -> SourceHealth:
        """Return how it is doing, as whom, and what a person must do."""
        health = self._inner.health()
        health = replace(health, server=health.server or self._sign_in.title)
        if action := self._sign_in.action:
            said = f"{action[:1].upper()}{action[1:]}"
            return replace(health, state=SourceState.NEEDS_PERSON, reason=said, next_try=None)
        until = self._client.health().throttled_until
        if until is not None and until > self._clock.now() and not health.reason:
            said = f"Microsoft asks to wait until {timestamp(until)}."
            return replace(health, reason=said, next_try=health.next_try or until)
        return health

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()


class SignedInFeed:
    """One stream of such a source."""

    def __init__(self, inner: Feed, sign_in: SignIn) -> None:
        self._inner = inner
        self._sign_in = sign_in

    @property
    def name(self) -> str:
        """Its name."""
        return self._inner.name

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield what is new after a checkpoint, while somebody is signed in."""
        position = checkpoint
        while True:
            before = self._sign_in.stamp()
            if not await self._sign_in.look():
                await self._sign_in.acted(before)
                continue
            try:
                async with aclosing(self._inner.follow(position)) as batches:
                    async for batch in batches:
                        yield batch
                        position = position if batch.checkpoint is None else batch.checkpoint
            except NeedsPerson as exc:
                self._sign_in.action = exc.action or exc.hint
                await self._sign_in.acted(self._sign_in.stamp())
            else:
                return

    def rest(self) -> Batch:
        """Return what was read and not yielded."""
        return self._inner.rest()

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of what was stored."""
        self._inner.stored(drafts, known=known)
