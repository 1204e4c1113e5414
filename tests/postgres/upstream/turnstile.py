"""A source for tests, as another package offers it: a folder of numbered notes that nobody can recognise again.

A note has no id of its own. So one that two daemons read, or one daemon twice, is stored twice: that each is stored
once proves that one daemon reads at a time, and that what a late one brings is refused. Answers are lines of a file.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Annotated, Final

from harken.clock import Clock
from harken.model import Draft, OutgoingReply, Sender
from harken.plugins import LazyPart
from harken.sources.feed import FeedTiming, RecordedFeed
from harken.sources.settings import SettingKey, SourceSettings
from harken.sources.source import Batch, Source, SourceEntry, SourceHealth, SourceKind, Speakers

SENT: Final = "sent"
POLL_SECONDS: Final = 0.05


class TurnstileSettings(SourceSettings, frozen=True, kw_only=True):
    """One folder."""

    what = "a folder"

    folder: Annotated[str, SettingKey("The folder.", metavar="DIR")]


read_settings = TurnstileSettings.read


class TurnstileFeed(RecordedFeed):
    """The notes of a folder, by their numbers."""

    def __init__(self, settings: TurnstileSettings, clock: Clock) -> None:
        super().__init__("notes", clock)
        self._settings = settings
        self._timing = FeedTiming()

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield the notes behind the checkpoint, which is the number of the last one."""
        place = int(checkpoint or 0)
        while True:
            self._health.listens()
            for number in self._numbers():
                if number > place:
                    place = number
                    draft = Draft(source=self._settings.name, sender=Sender("ann"), text=f"note {place}")
                    yield Batch(drafts=[draft], checkpoint=str(place))
            await self._timing.wait(POLL_SECONDS)

    def _numbers(self) -> list[int]:
        return sorted(int(note.stem) for note in Path(self._settings.folder).glob("*.note"))


class TurnstileSender:
    """Writes answers into a file, one line each, and looks there first where one may have been written."""

    def __init__(self, settings: TurnstileSettings) -> None:
        self._file = Path(settings.folder, SENT)

    async def send(self, reply: OutgoingReply) -> str:
        """Add a line."""
        if reply.tried_at is not None and self._file.exists() and f"{reply.key} " in self._file.read_text():
            return reply.key
        await reply.hand_over()
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{reply.key} {reply.body}\n".encode())
        os.close(descriptor)
        return reply.key


class TurnstileSource(Source):
    """A folder of notes."""

    def __init__(self, settings: TurnstileSettings, clock: Clock) -> None:
        self._settings = settings
        self._sender = TurnstileSender(settings)
        self._feed = TurnstileFeed(settings, clock)

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self._settings.name

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        return KIND.name

    @property
    def address(self) -> str:
        """The folder."""
        return self._settings.folder

    @property
    def sender(self) -> TurnstileSender:
        """What answers."""
        return self._sender

    def feeds(self) -> Sequence[TurnstileFeed]:
        """Return its only stream."""
        return (self._feed,)

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return self._feed.health()


def make_source(entry: SourceEntry) -> Source:
    """Return the source of an entry."""
    return TurnstileSource(read_settings(entry.name, entry.table), entry.clock)


KIND: Final = SourceKind(
    name="turnstile",
    title="Turnstile",
    summary="A folder of numbered notes.",
    speakers=Speakers.PEOPLE,
    read_settings=LazyPart("turnstile:read_settings"),
    make=LazyPart("turnstile:make_source"),
    setup=LazyPart("turnstile:make_source"),
    check=LazyPart("turnstile:make_source"),
)
