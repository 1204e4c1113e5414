"""What the tests of notifications share: the service, a source, its subscriptions and its door, all in one loop.

The service posts over real HTTP to a real listener. The feed and the subscriptions wait until the test says that the
time is over, so whatever happens meanwhile happened because somebody was told.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2
import pytest

from harken.daemon import http
from harken.model import Draft
from harken.sources.feed import FeedTiming as MailTiming
from harken.sources.microsoft.client import GraphClient, GraphLimits, GraphTiming, LaneLimit
from harken.sources.microsoft.notifications import FOLD_SECONDS, NET_SECONDS, Subscriptions, path_of
from harken.sources.microsoft.sent import SentMessages
from harken.sources.outlook.settings import OutlookSettings
from harken.sources.outlook.source import OutlookSource
from harken.sources.source import Batch
from harken.sources.teams.settings import TeamsSettings
from harken.sources.teams.source import TeamsSource
from harken.surfaces.doors import create_doors
from tests.graph.service import Graph
from tests.graph.world import Person
from tests.sources.microsoft.teams_rig import Kept, Keys

SECONDS: Final = 30
LOOK_SECONDS: Final = 0.005
LOOKS: Final = 2_000
FOLDED: Final = 0.1
NAME: Final = "work"
POLL: Final = 8.0


async def until(condition: Callable[[], object], what: str) -> None:
    """Return when something is so; fail when it takes too long."""
    for _ in range(LOOKS):
        if condition():
            return
        await anyio.sleep(LOOK_SECONDS)
    raise AssertionError(f"not in time: {what}")


@dataclass
class Nap:
    """A wait that is over when the test says so, or when whoever waits is woken; the service's time passes with it."""

    graph: Graph
    asked: list[float] = field(default_factory=list)
    passed: int = 0
    _over: anyio.Event | None = None

    async def wait(self, seconds: float) -> None:
        """Wait for the test. What is only there to fold a burst is over soon."""
        if seconds <= FOLD_SECONDS:
            await anyio.sleep(seconds * FOLDED)
            return
        self.asked.append(seconds)
        self._over = anyio.Event()
        try:
            await self._over.wait()
        finally:
            self._over = None

    @property
    def seconds(self) -> float:
        """How long the wait is that goes on, 0 if none does."""
        return self.asked[-1] if self._over is not None else 0.0

    async def goes_on(self, least: float = 0.0, most: float = inf) -> None:
        """Return when a wait of such a length goes on."""
        await until(lambda: self.seconds and least <= self.seconds <= most, f"a wait of {least} to {most} s")

    async def let_pass(self) -> None:
        """Let the time of the wait be over."""
        await self.goes_on()
        assert self._over is not None
        self.passed += 1
        self.graph.clock.advance(self.seconds)
        self._over.set()
        count = len(self.asked)
        await until(lambda: len(self.asked) > count, "the next wait")


class Followed(Protocol):
    """What can be followed."""

    def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield batches."""
        ...


@dataclass
class Rig:
    """A source at work, and how it is told."""

    graph: Graph
    client: GraphClient
    keys: Keys
    source: TeamsSource | OutlookSource
    notices: Subscriptions
    url: str
    looking: Nap
    keeping: Nap
    who: list[Person]  # who signed in, the last one now
    kept: Kept = field(default_factory=Kept)

    @property
    def works(self) -> bool:
        """Whether the source relies on being told."""
        return self.notices.works

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the source and keep its subscriptions, for the time of the block."""
        async with anyio.create_task_group() as group:
            for feed in self.source.feeds():
                group.start_soon(self._follow, feed)
            group.start_soon(self._follow, self.notices)
            yield
            group.cancel_scope.cancel()

    @asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Be where word comes and nothing else happens."""
        async with self.running():
            await until(lambda: self.works, f"word comes: {self.notices.reason}")
            await self.quiet()
            yield

    async def quiet(self) -> None:
        """Let the looks pass that follow a word, until the feed waits for the next."""
        await self.looking.goes_on()
        while self.looking.seconds < NET_SECONDS:
            await self.looking.let_pass()

    async def post(self, body: object, **query: str) -> httpx2.Response:
        """Post to the door as anybody can."""
        async with httpx2.AsyncClient(timeout=SECONDS, trust_env=False) as client:
            if isinstance(body, bytes):
                return await client.post(self.url, content=body, params=query)
            return await client.post(self.url, json=body, params=query)

    def secret(self) -> str:
        """Return the secret of the only subscription, as the service knows it."""
        (held,) = self.graph.subscriptions.held.values()
        return held.state

    async def settle(self) -> None:
        """Return when the service has posted everything."""
        await anyio.to_thread.run_sync(self.graph.subscriptions.settle)

    async def _follow(self, feed: Followed) -> None:
        async with aclosing(feed.follow(self.kept.checkpoint)) as batches:
            async for batch in batches:
                self.kept.take(batch)


async def at_once(_seconds: float) -> None:
    """Wait no time."""
    await anyio.lowlevel.checkpoint()


async def refuse_all(_drafts: Sequence[Draft]) -> Sequence[bool]:
    """Store nothing: word of changes is no message."""
    pytest.fail("a notification was to be stored")


@asynccontextmanager
async def rigged(graph: Graph, kind: str = "teams", *folders: str, **more: str) -> AsyncIterator[Rig]:
    """Make a source for the service, with a listener for its door; `url` is where the service is told to post."""
    graph.limits.is_on = False
    graph.subscriptions.accepts_plain_http = True
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    url = f"http://127.0.0.1:{sock.getsockname()[1]}{path_of(NAME)}"
    url = more.get("url", url)
    settings = (
        TeamsSettings(name=NAME, poll=POLL, notifications=True, notice_url=url)
        if kind == "teams"
        else OutlookSettings(name=NAME, poll=POLL, folders=folders, notifications=True, notice_url=url)
    )
    keys = Keys(graph)
    verify = ssl.create_default_context(cafile=str(graph.ca))
    limits = GraphLimits(chat=LaneLimit(1), all_chats=LaneLimit(20), chats=LaneLimit(5), mailbox=LaneLimit(4))
    with anyio.fail_after(SECONDS), sock:
        async with GraphClient(
            keys,
            graph.clock,
            name=NAME,
            base_url=graph.url,
            verify=verify,
            limits=limits,
            timing=GraphTiming(wait=at_once),
        ) as client:
            looking, keeping, who = Nap(graph), Nap(graph), [graph.me]
            source = _source(settings, client, looking, lambda: who[-1].id)
            timing = GraphTiming(wait=keeping.wait)
            notices = Subscriptions(settings, client, graph.clock, source.topics(), lambda: who[-1].id, timing=timing)
            server = http.make_server(create_doors([notices.door], refuse_all))
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: server.serve(sockets=[sock]))
                await until(lambda: server.started, "the listener")
                yield Rig(graph, client, keys, source, notices, url, looking, keeping, who)
                server.should_exit = True


def _source(
    settings: TeamsSettings | OutlookSettings, client: GraphClient, nap: Nap, me: Callable[[], str]
) -> TeamsSource | OutlookSource:
    if isinstance(settings, TeamsSettings):
        return TeamsSource(settings, client, nap.graph.clock, SentMessages(), me, timing=GraphTiming(wait=nap.wait))
    timing = MailTiming(wait=nap.wait)
    return OutlookSource(settings, client, nap.graph.clock, SentMessages(), me, timing=timing)
