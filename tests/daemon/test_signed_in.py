"""A source behind a sign-in: held back until somebody is signed in, and followed on from where it was."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import anyio

from harken.clock import SystemClock
from harken.errors import NeedsPerson, UserError
from harken.model import Draft
from harken.sources.microsoft.account import AccountSignIn, SignedInSource
from harken.sources.microsoft.client import GraphClient
from harken.sources.microsoft.sent import SentMessages
from harken.sources.microsoft.sign_in import SignedInPerson, SignInStatus
from harken.sources.microsoft.sign_in import SignInRecord as Kept
from harken.sources.source import Batch, Source, SourceHealth, SourceState
from tests.sources.microsoft.loopback import calling, told

SECONDS = 10
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANN = SignedInPerson(name="Ann", upn="ann@example.com", user_id="1")
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

    async def standing(self) -> SignInStatus:
        """Say who it is."""
        self.looked.set()
        if self.is_locked:
            raise UserError("The keyring is not installed.", "Install it.")
        return SignInStatus(sign_in=self.kept, action="" if self.kept else "sign in with: harken source login chats")

    def sign_in(self) -> None:
        """Do what a command does."""
        self.kept, self.stamp = KEPT, self.stamp + 1


@dataclass(slots=True)
class Counting(Source):
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
    return SignedInSource(inner, AccountSignIn(tokens=sign, stamp=lambda: sign.stamp), client, clock, sender=None)


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


async def test_a_token_says_whose_it_is_as_soon_as_somebody_else_has_signed_in() -> None:
    """A sign-in over another one ends nothing by itself: with the old name, our own words would be somebody else's."""
    sign = Sign(kept=KEPT)
    sign_in = AccountSignIn(tokens=sign, stamp=lambda: sign.stamp)
    await sign_in.look()
    await sign_in.token()
    assert sign_in.me() == "1"
    sign.kept, sign.stamp = replace(KEPT, person=replace(ANN, user_id="2")), sign.stamp + 1
    await sign_in.token()
    assert sign_in.me() == "2"


async def test_what_was_sent_before_the_start_is_told_to_the_source() -> None:
    """Nothing may depend on the last line of an answer alone, which people can cut off."""
    clock, sign, sent = SystemClock(), Sign(kept=KEPT), SentMessages()
    client = GraphClient(sign, clock, name="chats")
    source = SignedInSource(Counting(stops_at=0), AccountSignIn(tokens=sign), client, clock, sender=None, sent=sent)
    source.remember(["c/1", "c/2"])
    assert sent.is_ours({"chatId": "c", "id": "2"})
    await source.aclose()


async def test_since_when_somebody_is_signed_in_is_known_with_the_first_token() -> None:
    """A feed begins there; an Agent User is signed in only when it has its first token."""
    sign = Sign()
    sign_in = AccountSignIn(tokens=sign, user_id="agent")
    await sign_in.look()
    assert sign_in.since() is None
    sign.kept = KEPT
    await sign_in.token()
    assert sign_in.since() == NOW


async def test_a_token_and_whose_it_is_belong_together() -> None:
    """Somebody signs in while it is looked who has: a token of the one with the name of the other is never told."""
    bob = replace(KEPT, person=replace(ANN, user_id="2"))

    class Changing(Sign):
        async def token(self, *, is_fresh: bool = False) -> str:
            del is_fresh
            found = "of nobody" if self.kept is None else f"of {self.kept.person.user_id}"
            if self.stamp == 1:
                self.kept, self.stamp = bob, 2  # right behind the token that was had
            return found

    sign = Changing(kept=KEPT)
    sign_in = AccountSignIn(tokens=sign, stamp=lambda: sign.stamp)
    await sign_in.look()
    sign.stamp = 1
    assert await sign_in.token() == f"of {sign_in.me()}" == "of 2"


async def test_who_signed_in_is_asked_for_where_the_sign_in_does_not_say() -> None:
    """Without it our own words are the person's: it is asked once, and again when somebody else signs in."""
    sign = Sign(kept=replace(KEPT, person=SignedInPerson(name="Ann")))
    sign_in = AccountSignIn(tokens=sign, stamp=lambda: sign.stamp)
    ids = ["1", "2"]
    async with calling(lambda _: told({"id": ids.pop(0)})) as far:
        await sign_in.look()
        assert sign_in.me() == ""
        for _ in range(2):
            await sign_in.learn(far.client)
        assert sign_in.me() == "1"
        sign.stamp += 1  # renewed
        await sign_in.token()
        assert sign_in.me() == "1"
        sign.kept, sign.stamp = (
            replace(KEPT, person=SignedInPerson(name="Bob"), since=NOW + timedelta(days=1)),
            sign.stamp + 1,
        )
        await sign_in.token()
        assert sign_in.me() == ""
        await sign_in.learn(far.client)
        assert sign_in.me() == "2"
