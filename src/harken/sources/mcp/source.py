"""An MCP server as a source: one feed that connects, listens, and connects again, for ever.

A task of its own reads the server while the last batch is being stored, so what arrives meanwhile is the next batch.
`follow` keeps that task, so it is iterated inside `contextlib.aclosing`, by one task. Above is `daemon/source_set.py`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

import anyio

from harken.clock import Clock
from harken.errors import NeedsPerson, UserError
from harken.model import Draft
from harken.sources.check import CheckContext, CheckReport, listen
from harken.sources.feed import Backoff, FeedTiming
from harken.sources.mcp.http import StreamableHttp
from harken.sources.mcp.legacy_sse import LegacySse
from harken.sources.mcp.link import Link, LinkClosed, LinkLost, PushUnsupported, SessionGone
from harken.sources.mcp.queue import AnnouncementQueue
from harken.sources.mcp.settings import KIND, McpSettings, McpTransport, read_settings
from harken.sources.mcp.stdio import StdioLink
from harken.sources.source import Batch, Source, SourceEntry, SourceHealth, ToolServerAddress

FEED: Final = "notifications"
STEADY_SECONDS: Final = 10.0  # a connection that stood so long was good
# `Bearer env:CI_TOKEN`: many programs keep the token without the word before it.
_MAY_BE_SECRET: Final = frozenset({"url", "headers", "env", "args"})
_REFERENCE: Final = re.compile(r"(?P<scheme>(?:[A-Za-z]+ )?)(?P<reference>(?:env|file|keyring):.+)", re.DOTALL)


class McpSource(Source):
    """One MCP server that is listened to."""

    def __init__(self, settings: McpSettings, clock: Clock, timing: FeedTiming | None = None) -> None:
        self.settings = settings
        self._feed = McpFeed(settings, clock, timing or FeedTiming())

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

    def tool_server(self) -> ToolServerAddress:
        """Return the server, for runs that may use its tools."""
        how = self.settings
        if how.transport is McpTransport.STDIO:
            return ToolServerAddress(name=how.name, command=(how.command, *how.args), env=how.env)
        is_sse = how.transport is McpTransport.SSE
        return ToolServerAddress(name=how.name, url=how.url, headers=how.headers, is_sse=is_sse)


class McpFeed:
    """What one MCP server announces."""

    def __init__(self, settings: McpSettings, clock: Clock, timing: FeedTiming) -> None:
        self._settings = settings
        self._timing = timing
        self._queue = AnnouncementQueue(settings, clock)

    @property
    def name(self) -> str:
        """Its name, under which checkpoints are kept."""
        return FEED

    def health(self) -> SourceHealth:
        """Return how the source is doing now."""
        return self._queue.health()

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield what is announced, in order, until the server turns out to be unable to push."""
        queue = self._queue
        queue.begins(checkpoint)
        has_ended = anyio.Event()

        async def listen() -> None:
            try:
                await self._listen(queue, checkpoint)
            finally:
                has_ended.set()
                queue.wake()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                while queue.has_news or not has_ended.is_set():
                    batch = await queue.next_batch()
                    if not (batch.drafts or batch.checkpoint is not None or batch.dropped):
                        continue
                    try:
                        yield batch
                    except GeneratorExit:
                        break  # closed from outside; raised on, the group would wrap it into an error
                group.cancel_scope.cancel()
        finally:
            queue.stops()

    def rest(self) -> Batch:
        """Return what was read and not yielded."""
        return self._queue.hand_over()

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of what was stored of a batch."""
        self._queue.stored(drafts, known=known)

    async def _listen(self, queue: AnnouncementQueue, checkpoint: str) -> None:
        backoff = Backoff(self._timing.chance)
        async with open_link(self._settings, checkpoint) as link:
            while True:
                begun = self._timing.monotonic()
                try:
                    ended = await _listen_once(link, queue)
                except PushUnsupported as silent:
                    queue.is_silent(silent.reason)
                    return
                has_stood = self._timing.monotonic() - begun >= STEADY_SECONDS
                # A server that ends its stream and says when to come again is well; one that only ends it after every
                # word would be asked again many times a second.
                is_asked_back = isinstance(ended, LinkClosed) and ended.retry_after is not None
                if queue.is_open and (has_stood or (is_asked_back and queue.has_heard)):
                    backoff.was_good()
                is_refused = isinstance(ended, LinkLost) and ended.is_refused
                wait = backoff.next_wait(ended.retry_after, is_refused=is_refused)
                reason = ended.reason if isinstance(ended, LinkLost) else "the server ended the stream"
                queue.retries(reason, wait, needs_person=backoff.needs_person)
                await self._timing.wait(wait)


async def _listen_once(link: Link, queue: AnnouncementQueue) -> LinkLost | LinkClosed:
    queue.tries()
    try:
        return await link.listen(queue)
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


def make_source(entry: SourceEntry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    secrets: set[str] = set()

    def resolved(value: object) -> object:
        if isinstance(value, Mapping):
            return {str(key): resolved(item) for key, item in value.items()}
        if isinstance(value, list):
            # Among arguments the address of a file is what it is; as a header it can only be a reference.
            return [item if str(item).startswith("file://") else resolved(item) for item in value]
        if isinstance(value, str) and (found := _REFERENCE.fullmatch(value)):
            secret = entry.secret(found["reference"])
            secrets.add(secret)
            return found["scheme"] + secret
        return value

    # Elsewhere a text that looks like a reference is something else, such as the address of a resource.
    may_hold = {key: value for key, value in entry.table.items() if key in _MAY_BE_SECRET}
    try:
        known = {**entry.table, **{key: resolved(value) for key, value in may_hold.items()}}
        return McpSource(read_settings(entry.name, known, secrets), entry.clock)
    except (UserError, NeedsPerson) as exc:
        if not _has_references(may_hold):
            raise
        # A secret is missing, or is not what it should be; what is written in the settings may be right.
        return entry.unready(exc)


def _has_references(value: object) -> bool:
    """Whether something in an entry is looked up elsewhere."""
    if isinstance(value, Mapping):
        return any(_has_references(item) for item in value.values())
    if isinstance(value, list):
        return any(_has_references(item) for item in value)
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Listen for some seconds."""
    return listen(make_source(entry), context.seconds)
