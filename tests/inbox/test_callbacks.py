"""Callback subscriptions over time: tried again, suspended, lapsed, told what is missing, ended with their token."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec
import pytest

from harken.errors import Forbidden
from harken.inbox.access import holder_of
from harken.inbox.callbacks import (
    GIVE_UP_AFTER,
    MAX_CHALLENGES,
    MAX_OF_TOKEN,
    RETRY_SECONDS,
    CallbackDelivery,
    CallbackGrant,
    CallbackRequest,
    CallbackSubscriptions,
    TooManySubscriptions,
)
from harken.inbox.posting import CLIENT_ERROR, SERVER_ERROR, CallbackAnswer, CallbackWire
from harken.inbox.subscriptions import (
    EVENT_TYPES,
    RECEIVED,
    EventAudience,
    EventOccurrence,
    EventSubscriptions,
    Subscription,
)
from harken.inbox.ticker import Ticker
from harken.model import INBOX, Consumer
from harken.store.contract.outbox import CallbackSubscription
from harken.store.contract.retention import Limits
from harken.store.contract.tokens import Token, TokenScope
from tests.inbox.rig import Bench
from tests.remote.receiver import SECRET

SOON: Final = 30.0
URL: Final = "https://agent.example.org/hooks"
GOOD: Final = CallbackAnswer(status=204)
BAD: Final = CallbackAnswer(status=503, error=SERVER_ERROR)
TTL: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Said:
    """One post."""

    id: str
    body: Mapping[str, Any]


class Line(CallbackWire):
    """A wire that is answered as the test wants."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.clock.now)
        self.answer = GOOD
        self.said: list[Said] = []
        self._changed = anyio.Event()

    async def post(self, to: CallbackSubscription, identifier: str, body: bytes) -> CallbackAnswer:
        """Note a post; a challenge is answered."""
        assert to.url.startswith(URL)
        said = msgspec.json.decode(body, type=dict[str, Any])
        if said.get("type") == "verification":
            return CallbackAnswer(status=200, body=body)
        self.said.append(Said(identifier, said))
        self._changed.set()
        return self.answer

    async def until(self, count: int) -> list[Said]:
        """Return what was posted, as soon as it is so many."""
        with anyio.fail_after(SOON):
            while len(self.said) < count:
                self._changed = anyio.Event()
                await self._changed.wait()
        return self.said


@dataclass(slots=True)
class Post:
    """The use cases, and the line that they post on."""

    bench: Bench
    line: Line
    ticker: Ticker
    feed: EventSubscriptions
    use: CallbackSubscriptions
    token: Token

    async def subscribe(
        self, *, url: str = URL, cursor: str | None = None, life: timedelta = TTL, **arguments: str
    ) -> CallbackGrant:
        """Subscribe to messages."""
        kind = EVENT_TYPES[RECEIVED]
        wanted = Subscription(kind, kind.parse(arguments))
        asked = CallbackRequest(wanted=wanted, url=url, secret=SECRET, cursor=cursor, life=life)
        return await self.use.subscribe(holder_of(self.token), asked)

    async def one(self) -> CallbackSubscription:
        """Return the only subscription."""
        (found,) = await self.use.list()
        return found

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and have everything looked at again."""
        self.bench.clock.advance(seconds)
        self.ticker.poke()

    async def settled(self, reference: CallbackSubscription | None) -> CallbackSubscription | None:
        """Return what the subscription has become."""
        with anyio.fail_after(SOON):
            while (found := next(iter(await self.use.list()), None)) == reference:
                await anyio.lowlevel.checkpoint()
        return found

    @asynccontextmanager
    async def delivering(self) -> AsyncIterator[None]:
        """Have events posted until the block ends."""
        delivery = CallbackDelivery(self.bench.store, self.feed, self.bench.clock, self.line, words)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delivery.run)
            yield
            tasks.cancel_scope.cancel()


def words(each: EventOccurrence) -> Mapping[str, object]:
    """Return an event as it is posted."""
    return {"eventId": each.id, "message": each.message.id if each.message else ""}


@pytest.fixture
async def post(bench: Bench) -> AsyncIterator[Post]:
    """A holder of a token, and a line to it."""
    ticker = Ticker()
    await ticker.attach(bench.store.events, bench.store.messages)
    scope = TokenScope(may=frozenset({"read"}), mailboxes=(INBOX,), consumer=Consumer("elsewhere"))
    expires = bench.clock.now() + timedelta(days=30)
    made = Token(id="t-1", name="elsewhere", kind="agent", made_at=bench.clock.now(), expires_at=expires, scope=scope)
    token = await bench.store.tokens.add(made, b"d" * 32)
    line, feed = Line(bench), EventSubscriptions(bench.store, ticker, bench.clock)
    yield Post(bench, line, ticker, feed, CallbackSubscriptions(bench.store, feed, bench.clock, line), token)
    ticker.close()


async def test_failing_posts_wait_longer_each_time_and_suspend_the_subscription(bench: Bench, post: Post) -> None:
    """An address that nothing reaches is tried for minutes, not for ever, and renewing tries it again."""
    await post.subscribe(life=timedelta(days=1))
    sent = [await bench.send(f"number {number}") for number in range(GIVE_UP_AFTER + 1)]
    post.line.answer = BAD
    async with post.delivering():
        count = 0
        for message in sent[:GIVE_UP_AFTER]:
            for delay in (*RETRY_SECONDS, 0.0):
                count += 1
                said = await post.line.until(count)
                assert (said[-1].id, said[-1].body["message"]) == (f"evt-received-{message}", message)
                if delay:
                    await row_has(post, message, count % (len(RETRY_SECONDS) + 1))
                    post.pass_time(delay)
        with anyio.fail_after(SOON):
            while not (await post.one()).is_suspended:
                await anyio.lowlevel.checkpoint()
        parked = [row.message.id for row in await bench.store.outbox.list(state="parked")]
        assert sorted(parked) == sorted(sent[:GIVE_UP_AFTER])
        assert len(post.line.said) == count
        post.line.answer = GOOD
        grant = await post.subscribe()
        assert grant.before is not None
        assert (grant.before.is_suspended, grant.before.error) == (True, SERVER_ERROR)
        post.ticker.poke()
        said = await post.line.until(count + 1)
        assert said[-1].body["message"] == sent[-1]


async def test_a_receiver_that_is_gone_is_not_told_for_ever(bench: Bench, post: Post) -> None:
    """What it will never take is not tried again; but each event kept for it would keep its message."""
    await post.subscribe()
    for number in range(GIVE_UP_AFTER + 1):
        await bench.send(f"number {number}")
    post.line.answer = CallbackAnswer(status=410, error=CLIENT_ERROR)
    async with post.delivering():
        await post.line.until(GIVE_UP_AFTER)
        with anyio.fail_after(SOON):
            while not (await post.one()).is_suspended:
                await anyio.lowlevel.checkpoint()
    assert len(post.line.said) == GIVE_UP_AFTER
    assert len(await bench.store.outbox.list(state="parked")) == GIVE_UP_AFTER


async def row_has(post: Post, message: str, attempts: int) -> None:
    """Wait until so many tries of an event are noted."""
    with anyio.fail_after(SOON):
        while not any(
            (row.message.id, row.attempts) == (message, attempts)
            for row in await post.bench.store.outbox.list(state="queued")
        ):
            await anyio.lowlevel.checkpoint()


async def test_what_is_not_renewed_lapses_and_goes_on_from_a_cursor(bench: Bench, post: Post) -> None:
    """A client that was away for too long subscribes again with the last cursor that it has."""
    grant = await post.subscribe()
    bench.clock.advance(TTL.total_seconds() + 1)
    missed = await bench.send()
    async with post.delivering():
        assert await post.settled(grant.subscription) is None
        assert post.line.said == []
        again = await post.subscribe(cursor=grant.cursor)
        assert (again.subscription.id, again.is_truncated, again.before) == (grant.subscription.id, False, None)
        (said,) = await post.line.until(1)
        assert said.body["message"] == missed


async def test_what_cannot_be_told_any_more_is_said(bench: Bench, post: Post) -> None:
    """A subscriber that knows of the gap looks for itself; it is told of it once, and then what follows."""
    await post.subscribe()
    await bench.send("first")
    last = await bench.send("second")
    for _ in range(2):
        await bench.store.retention.prune(Limits(max_count=1, max_age_seconds=1e9))
    async with post.delivering():
        gap, event = await post.line.until(2)
        assert gap.body["type"] == "gap"
        assert event.body["message"] == last
        place = await post.feed.place(str(gap.body["cursor"]))
        wanted = Subscription(EVENT_TYPES[RECEIVED], EVENT_TYPES[RECEIVED].parse({}))
        page = await post.feed.page(wanted, audience(post), place.number, 10)
        assert [each.message.id for _, each in page.occurrences if each.message] == [last]
        assert not page.is_truncated
    assert not (await post.one()).has_gap


def audience(post: Post) -> EventAudience:
    """Return what the holder reads."""
    holder = holder_of(post.token)
    return EventAudience(
        mailboxes=frozenset({INBOX}), consumer=holder.consumer, session=holder.session, sender=holder.sender.id
    )


async def test_what_a_token_may_read_now_decides_what_is_posted(bench: Bench, post: Post, tmp_path: Path) -> None:
    """What waited for a mailbox that is not the token's any more is not posted, and stands where people see it."""
    await post.subscribe()
    sent = await bench.send()
    post.line.answer = BAD
    async with post.delivering():
        await post.line.until(1)
        await row_has(post, sent, 1)
    scope = msgspec.json.encode({"may": ["read"], "mailboxes": ["replies"], "consumer": "elsewhere", "trust": None})
    with closing(sqlite3.connect(tmp_path / "harken.db")) as database:
        database.execute("UPDATE tokens SET scope = ?", (scope.decode(),))
        database.commit()
    bench.clock.advance(60)
    async with post.delivering():
        with anyio.fail_after(SOON):
            while not await bench.store.outbox.list(state="parked"):
                await anyio.lowlevel.checkpoint()
    (row,) = await bench.store.outbox.list(state="parked")
    assert row.error == "its token is not for this mailbox"
    assert len(post.line.said) == 1


async def test_a_subscription_ends_when_its_token_expires(bench: Bench, post: Post) -> None:
    """Renewing it does not help: the token is what lets its holder read."""
    grant = await post.subscribe()
    bench.clock.advance(86_400 * 30)
    await bench.send()
    async with post.delivering():
        assert await post.settled(grant.subscription) is None
        (said,) = await post.line.until(1)
        assert (said.body["type"], said.body["error"]["data"]) == ("terminated", {"reason": "its token has expired"})
    with pytest.raises(Forbidden):
        await post.subscribe()


async def test_a_holder_has_so_many_subscriptions_and_no_more(post: Post) -> None:
    """One that makes a new address for each would fill the store; and an address is not asked again and again."""
    for number in range(MAX_OF_TOKEN):
        await post.subscribe(channel=f"ci/{number}")
    with pytest.raises(TooManySubscriptions, match="has 32 subscriptions"):
        await post.subscribe(channel="one more")
    await post.subscribe(channel="ci/0")
    assert len(await post.use.list()) == MAX_OF_TOKEN


async def test_a_place_is_not_asked_again_and_again(post: Post) -> None:
    """Otherwise we would be the hammer that somebody swings at a third."""
    for number in range(MAX_CHALLENGES):
        await post.subscribe(url=f"{URL}/{number}")
    with pytest.raises(TooManySubscriptions, match="asked too often"):
        await post.subscribe(url=f"{URL}/more")
    post.bench.clock.advance(61)
    await post.subscribe(url=f"{URL}/more")
