"""An MCP server as a source: one feed that connects, listens, and connects again, for ever.

A task of its own reads the server while the last batch is being stored, so what arrives meanwhile is the next batch.
`follow` keeps that task, so it is iterated inside `contextlib.aclosing`, by one task. `AnnouncementQueue` is what a
link reports to: it turns announcements into drafts after the allow-list, keeps a bounded number of them, and lets the
link wait when there are more; then the server is not read, and its own buffers fill. Above is `daemon/source_set.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from harken.clock import Clock
from harken.errors import NeedsPerson, UserError
from harken.model import Draft, Sender
from harken.sources.check import CheckContext, CheckReport, listen
from harken.sources.feed import Backoff, FeedTiming, HealthRecorder
from harken.sources.mcp.http import LegacySse, StreamableHttp
from harken.sources.mcp.link import EventDoor, Link, LinkClosed, LinkLost, PushUnsupported, SessionGone
from harken.sources.mcp.protocol import EVENT_CHANNEL, Announcement, is_allowed, mark_checkpoint, was_heard
from harken.sources.mcp.settings import KIND, McpSettings, McpTransport, read_settings
from harken.sources.mcp.stdio import StdioLink
from harken.sources.source import Batch, NamedSource, Source, SourceEntry, SourceHealth, ToolServerAddress

FEED: Final = "notifications"
KEY_FILE: Final = "events.key"
KEY_BYTES: Final = 32
STEADY_SECONDS: Final = 10.0  # a connection that stood so long was good
# `Bearer env:CI_TOKEN`: many programs keep the token without the word before it.
_MAY_BE_SECRET: Final = frozenset({"url", "headers", "env", "args"})
_REFERENCE: Final = re.compile(r"(?P<scheme>(?:[A-Za-z]+ )?)(?P<reference>(?:env|file|keyring):.+)", re.DOTALL)

MAX_WAITING: Final = 1_000
MAX_WAITING_CHARS: Final = 16_000_000


class McpSource(NamedSource):
    """One MCP server that is listened to."""

    def __init__(
        self,
        settings: McpSettings,
        clock: Clock,
        timing: FeedTiming | None = None,
        *,
        posts: EventAddress | None = None,
    ) -> None:
        super().__init__(settings.name, KIND, settings.address)
        self.settings = settings
        self._feed = McpFeed(settings, clock, timing or FeedTiming(), posts)

    def feeds(self) -> tuple[McpFeed, ...]:
        """Return its only stream."""
        return (self._feed,)

    def doors(self) -> tuple[EventDoor, ...]:
        """Return where its server may post events."""
        return () if self._feed.door is None else (self._feed.door,)

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

    def __init__(
        self, settings: McpSettings, clock: Clock, timing: FeedTiming, posts: EventAddress | None = None
    ) -> None:
        self._settings = settings
        self._timing = timing
        self._queue = AnnouncementQueue(settings, clock)
        self.door: EventDoor | None = None
        if posts is not None:
            self.door = EventDoor(settings.name, posts.base, posts.key, clock, self._queue.draft_of)
            self.door.stored = self._queue.posted

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
        async with open_link(self._settings, checkpoint, self.door) as link:
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


def open_link(settings: McpSettings, checkpoint: str = "", door: EventDoor | None = None) -> Link:
    """Return the link that the settings ask for, not yet entered."""
    match settings.transport:
        case McpTransport.STDIO:
            return StdioLink(settings, checkpoint)
        case McpTransport.SSE:
            return LegacySse(settings)
        case McpTransport.HTTP:
            return StreamableHttp(settings, checkpoint, door)


def make_source(entry: SourceEntry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    found_secrets: set[str] = set()

    def resolved(value: object) -> object:
        if isinstance(value, Mapping):
            return {str(key): resolved(item) for key, item in value.items()}
        if isinstance(value, list):
            # Among arguments the address of a file is what it is; as a header it can only be a reference.
            return [item if str(item).startswith("file://") else resolved(item) for item in value]
        if isinstance(value, str) and (found := _REFERENCE.fullmatch(value)):
            secret = entry.secret(found["reference"])
            found_secrets.add(secret)
            return found["scheme"] + secret
        return value

    # Elsewhere a text that looks like a reference is something else, such as the address of a resource.
    may_hold = {key: value for key, value in entry.table.items() if key in _MAY_BE_SECRET}
    try:
        known = {**entry.table, **{key: resolved(value) for key, value in may_hold.items()}}
        settings = read_settings(entry.name, known, found_secrets)
        return McpSource(settings, entry.clock, posts=_event_address(entry, settings))
    except (UserError, NeedsPerson) as exc:
        if not _has_references(may_hold):
            raise
        # A secret is missing, or is not what it should be; what is written in the settings may be right.
        return entry.unready(exc)


@dataclass(frozen=True, slots=True)
class EventAddress:
    """Where servers post events to us, and the key that their secrets are made of."""

    base: str
    key: bytes = field(repr=False)


def _event_address(entry: SourceEntry, settings: McpSettings) -> EventAddress | None:
    """Return where this server may post, if others can reach us; the key is made once."""
    if not entry.event_url.startswith("https://") or settings.transport is not McpTransport.HTTP:
        return None
    file = entry.folder / KEY_FILE
    try:
        if not file.exists():
            fresh = file.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            fresh.touch(mode=0o600, exist_ok=False)
            fresh.write_bytes(secrets.token_bytes(KEY_BYTES))
            fresh.replace(file)
        key = file.read_bytes()
    except OSError as exc:
        raise UserError(f"{file} cannot be used ({exc.strerror}).", "Let it be readable and writable for you.") from exc
    if len(key) < KEY_BYTES:
        raise UserError(f"{file} is no key.", "Remove it: a new one is made.")
    return EventAddress(entry.event_url, hmac.digest(key, f"{entry.name} {settings.url}".encode(), hashlib.sha256))


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


class AnnouncementQueue:
    """The state of one source, its counts, and the drafts that wait to be stored."""

    def __init__(self, settings: McpSettings, clock: Clock) -> None:
        self._settings = settings
        self._where = settings.where
        self._health = HealthRecorder(clock)
        self._has_history = False  # something may have been announced before this connection
        self._is_marked = False  # what is stored says that something was heard: the next life knows of a gap
        self._waiting: list[Draft] = []
        self._waiting_chars = 0
        self._checkpoint: str | None = None
        self._given_up = 0
        self._changed = anyio.Event()
        self._taken = anyio.Event()
        self._has_heard = False
        self._is_open = False
        self._has_been_open = False

    @property
    def is_open(self) -> bool:
        """Whether announcements arrive, or did until the connection ended."""
        return self._is_open

    @property
    def has_heard(self) -> bool:
        """Whether anything was announced in this connection."""
        return self._has_heard

    def health(self) -> SourceHealth:
        """Return how the source is doing now."""
        return self._health.read()

    def met(self, server: str) -> None:
        """Take note of what the server calls itself."""
        self._health.meets(self._settings.scrub(server))

    def opened(self, *, is_resumed: bool) -> None:
        """Take note that announcements arrive from now on."""
        if self._is_open:
            return
        self._is_open = True
        if self._has_been_open:
            self._health.reconnected()
        self._has_been_open = True
        if self._has_history and not is_resumed:
            self._health.lost()
        self._has_history = True
        self._health.listens()

    def missed(self) -> None:
        """Take note that the server has skipped something."""
        self._health.lost()

    def waits(self, reason: str) -> None:
        """Take note why nothing arrives yet."""
        if not self._is_open:
            self._health.connects(reason)

    def gave_up(self, count: int) -> None:
        """Take note of announcements that were too long to be read; the next batch says how many."""
        self._given_up += count
        self._health.gave_up(count)
        self._changed.set()

    async def take(self, announcements: Sequence[Announcement], checkpoint: str | None = None) -> None:
        """Keep announcements until they are stored, and wait while too many are waiting."""
        before = len(self._waiting)
        for each in announcements:
            self._keep(each)
        if len(self._waiting) > before:
            self._health.heard()
        if checkpoint is None and announcements and not self._is_marked:
            checkpoint = mark_checkpoint(self._where)
        if checkpoint is not None:
            self._checkpoint, self._is_marked = checkpoint, True
        if self._waiting or checkpoint is not None:
            self._changed.set()
        while self._is_full:
            if self._taken.is_set():
                self._taken = anyio.Event()
            await self._taken.wait()

    async def next_batch(self) -> Batch:
        """Wait for something new and return all of it."""
        await self._changed.wait()
        self._changed = anyio.Event()
        return self.hand_over()

    def hand_over(self) -> Batch:
        """Return all that waits to be stored."""
        batch = Batch(drafts=self._waiting, checkpoint=self._checkpoint, dropped=self._given_up)
        self._waiting, self._waiting_chars, self._checkpoint, self._given_up = [], 0, None, 0
        self._taken.set()
        return batch

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of what was stored: only that is counted, so not what a server sends twice."""
        self._health.stored([draft.channel for draft in drafts], known=known)

    @property
    def has_news(self) -> bool:
        """Whether something waits to be stored."""
        return bool(self._waiting) or self._checkpoint is not None or self._given_up > 0

    def wake(self) -> None:
        """Let the task that waits for a batch look again."""
        self._changed.set()

    def begins(self, checkpoint: str) -> None:
        """Note that the feed is followed from now on; with a checkpoint, an earlier run heard something."""
        # An older checkpoint of a program names it without its arguments.
        self._is_marked = was_heard(checkpoint, self._where) or was_heard(checkpoint, self._settings.command)
        self._has_history = self._has_history or self._is_marked
        if self.has_news:
            self._changed.set()
        self._health.begins()

    def tries(self) -> None:
        """Take note that a connection is being made."""
        self._is_open = False
        self._has_heard = False
        self._health.begins()

    def retries(self, reason: str, wait_seconds: float, *, needs_person: bool) -> None:
        """Take note that the connection is gone and when it is tried again."""
        self._is_open = False
        self._health.retries(reason, wait_seconds, needs_person=needs_person)

    def is_silent(self, reason: str) -> None:
        """Take note that the server will never announce anything."""
        self._health.is_silent(reason)

    def stops(self) -> None:
        """Note that the feed is not followed any more."""
        self._health.stops()

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= MAX_WAITING or self._waiting_chars >= MAX_WAITING_CHARS

    def draft_of(self, announcement: Announcement) -> Draft | None:
        """Return what is stored of an announcement, None if the allow-list leaves it out."""
        channel = announcement.channel
        if announcement.is_event and EVENT_CHANNEL in self._settings.channels:
            channel = EVENT_CHANNEL  # as it was when a list could name nothing else
        if not is_allowed(self._settings.channels, channel):
            self._health.dropped(channel)
            return None
        return Draft(
            source=self._settings.name,
            sender=Sender(self._settings.name),
            text=announcement.content,
            upstream_id=announcement.upstream_id,
            channel=channel,
            conversation=channel,
            thread=announcement.thread,
            sent_at=announcement.sent_at,
            meta=announcement.metadata,
        )

    def posted(self, draft: Draft, known: int) -> None:
        """Take note of an event that was posted to us and is stored, or was known."""
        self._has_heard = True
        self._health.heard()
        self.stored([] if known else [draft], known=known)

    def _keep(self, announcement: Announcement) -> None:
        self._has_heard = True
        draft = self.draft_of(announcement)
        if draft is not None:
            self._waiting_chars += len(announcement.content)
            self._waiting.append(draft)
