"""A source behind a sign-in: held back until somebody is signed in, and followed on from where it was."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio

from harken.clock import SystemClock
from harken.daemon.signed_in import SignedInSource, SignIn
from harken.errors import NeedsPerson, UserError
from harken.model import Draft
from harken.sources.base import Batch, SourceHealth, SourceState
from harken.sources.graph.client import GraphClient
from harken.sources.graph.tokens.who import Person, Standing
from harken.sources.graph.tokens.who import SignIn as Kept

SECONDS = 10
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANN = Person(name="Ann", upn="ann@example.com", user_id="1")
KEPT = Kept(person=ANN, since=NOW, renewed_at=NOW, expires_at=NOW)


@dataclass(slots=True)
class Sign:
    """Somebody who is signed in, or not yet."""

    kept: Kept | None = None
    is_locked: bool = False
    stamp: int = 0
    looked: anyio.Event = field(default_factory=anyio.Event)

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return a token."""
        del is_fresh
        return "t"

    async def standing(self) -> Standing:
        """Say who it is."""
        self.looked.set()
        if self.is_locked:
            raise UserError("The keyring is not installed.", "Install it.")
        return Standing(sign_in=self.kept, action="" if self.kept else "sign in with: harken source login chats")

    def sign_in(self) -> None:
        """Do what a command does."""
        self.kept, self.stamp = KEPT, self.stamp + 1


@dataclass(slots=True)
class Counting:
    """A source that counts on from its checkpoint, and stops once to have a person act."""

    stops_at: int
    begun: list[str] = field(default_factory=list[str])
    name: str = "chats"
    kind: str = "teams"
    address: str = "graph.example"

    def feeds(self) -> Sequence[Counting]:
        """Return itself."""
        return (self,)

    def health(self) -> SourceHealth:
        """Say that all is well."""
        return SourceHealth(state=SourceState.LISTENING)

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Count."""
        self.begun.append(checkpoint)
        for number in range(int(checkpoint or 0) + 1, 6):
            if number == self.stops_at:
                self.stops_at = 0
                raise NeedsPerson("chats: the sign-in has ended.", "Sign in.", action="sign in again")
            yield Batch(checkpoint=str(number))
            yield Batch()  # one without a place of its own

    def rest(self) -> Batch:
        """Return nothing."""
        return Batch()

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Note nothing."""


def made(inner: Counting, sign: Sign) -> SignedInSource:
    """Return the source behind its sign-in."""
    clock = SystemClock()
    client = GraphClient(sign, clock, name="chats")
    return SignedInSource(inner, SignIn(tokens=sign, stamp=lambda: sign.stamp), client, clock, sender=None)


async def test_nothing_is_followed_before_somebody_signs_in_and_then_all_of_it() -> None:
    """The checkpoint waits for the person, who is told what to do meanwhile."""
    sign, inner = Sign(), Counting(stops_at=0)
    source = made(inner, sign)
    seen: list[str | None] = []

    async def follow() -> None:
        async with aclosing(source.feeds()[0].follow("3")) as batches:
            seen.extend([batch.checkpoint async for batch in batches])

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await sign.looked.wait()
            await anyio.lowlevel.checkpoint()
            assert (source.health().state, source.health().reason) == (
                SourceState.NEEDS_PERSON,
                "Sign in with: harken source login chats",
            )
            assert inner.begun == []
            sign.sign_in()
    assert (inner.begun, [each for each in seen if each]) == (["3"], ["4", "5"])
    assert (source.health().state, source.health().server) == (SourceState.LISTENING, "Ann (ann@example.com)")


async def test_after_an_ended_sign_in_it_goes_on_from_the_last_place() -> None:
    """Nothing that was said while nobody was signed in is lost, and nothing before is said twice."""
    sign, inner = Sign(kept=KEPT), Counting(stops_at=3)
    source = made(inner, sign)
    seen: list[str] = []
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:

            async def act() -> None:
                while source.health().reason != "Sign in again":
                    await anyio.lowlevel.checkpoint()
                sign.sign_in()

            group.start_soon(act)
            async with aclosing(source.feeds()[0].follow("")) as batches:
                seen.extend([batch.checkpoint async for batch in batches if batch.checkpoint])
    assert (inner.begun, seen) == (["", "2"], ["1", "2", "3", "4", "5"])
    assert source.health().reason == ""


async def test_a_cache_that_cannot_be_opened_is_told_to_the_person() -> None:
    """A keyring that is missing must not look like a source that is fine."""
    sign = Sign(is_locked=True)
    source = made(Counting(stops_at=0), sign)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:

            async def follow() -> None:
                async with aclosing(source.feeds()[0].follow("")) as batches:
                    assert [batch async for batch in batches] == []

            group.start_soon(follow)
            await sign.looked.wait()
            await anyio.lowlevel.checkpoint()
            assert source.health().reason == "The keyring is not installed. Install it."
            group.cancel_scope.cancel()
