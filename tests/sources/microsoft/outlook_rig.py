"""Outlook against the service that is built from Microsoft's documentation: a listener that stores as ingest does.

The listener keeps what it is given by the keys of ingest and stops after every look, so each look of a test is also
the restart of a daemon. Waits take no time.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import anyio
import anyio.lowlevel
import msgspec
import pytest

from harken.ingest.prepare import identify
from harken.model import Draft
from harken.sources.feed import FeedTiming
from harken.sources.microsoft.client import GraphClient, GraphTiming
from harken.sources.microsoft.sent import SentMessages
from harken.sources.outlook import source as outlook
from harken.sources.outlook.settings import OutlookSettings
from harken.sources.source import Batch
from tests.graph.service import Graph

SECONDS: Final = 60
LOOK_SECONDS: Final = 0.01
LOOKS: Final = 1_000
NAME: Final = "work"


@dataclass
class Keys:
    """Tokens of the service, without the trouble of signing in."""

    graph: Graph
    scopes: tuple[str, ...] = ()
    held: str = ""

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return the token that is held, or a fresh one."""
        if is_fresh or not self.held:
            self.held = self.graph.token(*self.scopes)
        return self.held


@dataclass
class Listener:
    """What was stored of a source, and how far."""

    checkpoint: str = ""
    heard: list[Draft] = field(default_factory=list)
    repeated: int = 0
    keys: set[bytes | None] = field(default_factory=set)

    @property
    def subjects(self) -> list[str]:
        """What the mails are about, in the order in which they were stored."""
        return [draft.meta["subject"] for draft in self.heard]

    def take(self, batch: Batch) -> None:
        """Store a batch with its checkpoint, in one go."""
        for draft in batch.drafts:
            key = identify(draft).dedup_key
            if key in self.keys:
                self.repeated += 1
                continue
            self.keys.add(key)
            self.heard.append(draft)
        if batch.checkpoint is not None:
            self.checkpoint = batch.checkpoint

    async def look(self, feed: outlook.OutlookFolderFeed, *, kill: Callable[[], bool] = lambda: False) -> None:
        """Follow a feed to the end of one look; `kill` is asked before each batch is stored."""
        with anyio.fail_after(SECONDS):
            async with aclosing(feed.follow(self.checkpoint)) as batches:
                async for batch in batches:
                    if kill():
                        return
                    self.take(batch)
                    if batch.checkpoint is not None:
                        return

    async def hear(self, graph: Graph) -> None:
        """Look once into the inbox, as a daemon that has just started."""
        async with calling(graph) as client:
            await self.look(feed_of(graph, client))


async def begun(graph: Graph, *, mails: int = 0) -> Listener:
    """Let some mail be there, and begin to listen a minute later; another minute passes after that."""
    ann = graph.person("Ann Old")
    for number in range(mails):
        graph.mail(ann, f"Old {number}", "<p>old</p>")
        graph.clock.advance(60)
    graph.clock.advance(60)
    listener = Listener()
    await listener.hear(graph)
    graph.clock.advance(60)
    return listener


async def at_once(_seconds: float) -> None:
    """Wait no time."""
    await anyio.lowlevel.checkpoint()


async def somebody_is_inside(graph: Graph) -> None:
    """Return when the service, in its own thread, works on a request that it holds."""
    for _ in range(LOOKS):
        if graph.door.holds.inside:
            return
        await anyio.sleep(LOOK_SECONDS)
    pytest.fail("no request was held")


class Leaping:
    """Time that leaps over every wait, so that what is held back until then is free at once."""

    def __init__(self) -> None:
        self._leapt = 0.0

    def monotonic(self) -> float:
        """Return the present."""
        return anyio.current_time() + self._leapt

    async def wait(self, seconds: float) -> None:
        """Let as much time have passed."""
        self._leapt += seconds
        await anyio.lowlevel.checkpoint()


def settings(graph: Graph, *folders: str, **more: str) -> OutlookSettings:
    """Return what somebody configured who reads these folders."""
    agent = OutlookSettings(name=NAME, graph_url=graph.url, folders=folders, sign_in="agent")
    return agent if more.get("mode") == "agent" else msgspec.structs.replace(agent, sign_in="delegated")


@asynccontextmanager
async def calling(graph: Graph, keys: Keys | None = None) -> AsyncIterator[GraphClient]:
    """Call the service."""
    verify = ssl.create_default_context(cafile=str(graph.ca))
    time = Leaping()
    timing = GraphTiming(wait=time.wait, monotonic=time.monotonic)
    with anyio.fail_after(SECONDS):
        async with GraphClient(
            keys or Keys(graph), graph.clock, name=NAME, base_url=graph.url, verify=verify, timing=timing
        ) as client:
            yield client


def source_of(
    graph: Graph, client: GraphClient, *folders: str, sent: SentMessages | None = None, since: datetime | None = None
) -> outlook.OutlookSource:
    """Return the mail of the account as a source; `sent` is what was sent, `since` when somebody signed in."""
    timing = FeedTiming(wait=at_once)
    wanted, known = settings(graph, *folders), sent or SentMessages()
    return outlook.OutlookSource(
        wanted, client, graph.clock, known, lambda: graph.me.id, since=lambda: since, timing=timing
    )


def feed_of(
    graph: Graph, client: GraphClient, sent: SentMessages | None = None, since: datetime | None = None
) -> outlook.OutlookFolderFeed:
    """Return the inbox of the account as a feed."""
    return source_of(graph, client, sent=sent, since=since).feeds()[0]
