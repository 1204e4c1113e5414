"""An MCP server as a source: one feed that connects, listens, and connects again, for ever.

A task of its own reads the server while the last batch is being stored, so what arrives meanwhile is the next batch.
`follow` keeps that task, so it is iterated inside `contextlib.aclosing`, by one task. Above is `daemon/feeding.py`.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from harken.clock import Clock
from harken.model import Draft
from harken.sources.base import Batch, SourceHealth
from harken.sources.mcp.backoff import STEADY_SECONDS, Backoff
from harken.sources.mcp.http import StreamableHttp
from harken.sources.mcp.legacy_sse import LegacySse
from harken.sources.mcp.link import Link, LinkClosed, LinkLost, PushUnsupported, SessionGone
from harken.sources.mcp.settings import McpSettings, McpTransport
from harken.sources.mcp.standing import McpStanding
from harken.sources.mcp.stdio import StdioLink

KIND: Final = "mcp"
FEED: Final = "notifications"


@dataclass(frozen=True, slots=True)
class McpTiming:
    """Where the waits between tries come from: chance, a way to wait, and a clock that is never set."""

    chance: Callable[[], float] = random.random
    wait: Callable[[float], Awaitable[None]] = anyio.sleep
    monotonic: Callable[[], float] = anyio.current_time


class McpSource:
    """One MCP server that is listened to."""

    def __init__(self, settings: McpSettings, clock: Clock, timing: McpTiming | None = None) -> None:
        self.settings = settings
        self._feed = McpFeed(settings, clock, timing or McpTiming())

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.settings.name

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        return KIND

    @property
    def address(self) -> str:
        """Where the server is, without anything secret."""
        return self.settings.address

    def feeds(self) -> tuple[McpFeed, ...]:
        """Return its only stream."""
        return (self._feed,)

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return self._feed.health()


class McpFeed:
    """What one MCP server announces."""

    def __init__(self, settings: McpSettings, clock: Clock, timing: McpTiming) -> None:
        self._settings = settings
        self._timing = timing
        self._standing = McpStanding(settings, clock)

    @property
    def name(self) -> str:
        """Its name, under which checkpoints are kept."""
        return FEED

    def health(self) -> SourceHealth:
        """Return how the source is doing now."""
        return self._standing.health()

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield what is announced, in order, until the server turns out to be unable to push."""
        standing = self._standing
        standing.begins(checkpoint)
        has_ended = anyio.Event()

        async def listen() -> None:
            try:
                await self._listen(standing, checkpoint)
            finally:
                has_ended.set()
                standing.wake()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                while standing.has_news or not has_ended.is_set():
                    batch = await standing.next_batch()
                    if not (batch.drafts or batch.checkpoint is not None or batch.dropped):
                        continue
                    try:
                        yield batch
                    except GeneratorExit:
                        break  # closed from outside; raised on, the group would wrap it into an error
                group.cancel_scope.cancel()
        finally:
            standing.stops()

    def rest(self) -> Batch:
        """Return what was read and not yielded."""
        return self._standing.hand_over()

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of what was stored of a batch."""
        self._standing.stored(drafts, known=known)

    async def _listen(self, standing: McpStanding, checkpoint: str) -> None:
        backoff = Backoff(self._timing.chance)
        async with open_link(self._settings, checkpoint) as link:
            while True:
                begun = self._timing.monotonic()
                try:
                    ended = await _listen_once(link, standing)
                except PushUnsupported as silent:
                    standing.is_silent(silent.reason)
                    return
                has_stood = self._timing.monotonic() - begun >= STEADY_SECONDS
                # A server that ends its stream and says when to come again is well; one that only ends it after every
                # word would be asked again many times a second.
                is_asked_back = isinstance(ended, LinkClosed) and ended.retry_after is not None
                if standing.is_open and (has_stood or (is_asked_back and standing.has_heard)):
                    backoff.was_good()
                is_refused = isinstance(ended, LinkLost) and ended.is_refused
                wait = backoff.next_wait(ended.retry_after, is_refused=is_refused)
                reason = ended.reason if isinstance(ended, LinkLost) else "the server ended the stream"
                standing.retries(reason, wait, needs_person=backoff.needs_person)
                await self._timing.wait(wait)


async def _listen_once(link: Link, standing: McpStanding) -> LinkLost | LinkClosed:
    standing.tries()
    try:
        return await link.listen(standing)
    except LinkLost as lost:
        return lost
    except SessionGone as gone:
        return LinkLost(gone.reason)


def open_link(settings: McpSettings, checkpoint: str = "") -> Link:
    """Return the link that the settings ask for, not yet entered."""
    match settings.transport:
        case McpTransport.STDIO:
            return StdioLink(settings)
        case McpTransport.SSE:
            return LegacySse(settings)
        case McpTransport.HTTP:
            return StreamableHttp(settings, checkpoint)
