"""What one server announced and is not stored yet, and how it is doing: what a link reports to.

It turns announcements into drafts after the allow-list, keeps at most `MAX_WAITING` of them and `MAX_WAITING_CHARS`
of text, and lets the link wait when there are more: then the server is not read, and its own buffers fill. What it
tells people is true at any moment. It opens nothing and decides no waits; `source.py` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio

from harken.clock import Clock
from harken.model import Draft, Sender
from harken.sources.feed import HealthRecorder
from harken.sources.mcp.protocol import mark_checkpoint, was_heard
from harken.sources.mcp.routing import Announcement, is_allowed
from harken.sources.mcp.settings import McpSettings
from harken.sources.source import Batch, SourceHealth

MAX_WAITING: Final = 1_000
MAX_WAITING_CHARS: Final = 16_000_000


class AnnouncementQueue:
    """The state of one source, its counts, and the drafts that wait to be stored."""

    def __init__(self, settings: McpSettings, clock: Clock) -> None:
        self._settings = settings
        self._where = settings.url or settings.command
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
        self._is_marked = was_heard(checkpoint, self._where)
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

    def _keep(self, announcement: Announcement) -> None:
        self._has_heard = True
        channel = announcement.channel
        if not is_allowed(self._settings.channels, channel):
            self._health.dropped(channel)
            return
        self._waiting_chars += len(announcement.content)
        self._waiting.append(
            Draft(
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
        )
