"""The source: it looks into the folder again and again, and goes on behind the last note that was stored."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

import anyio

from harken.clock import Clock
from harken.errors import Forbidden, NeedsPerson, UserError
from harken.model import Draft, OutgoingReply, Sender
from harken.sources.check import CheckContext, CheckReport, listen
from harken.sources.feed import FeedTiming, HealthRecorder, wait_seconds
from harken.sources.source import Batch, Source, SourceEntry, SourceHealth
from harken_bulletin.settings import BulletinSettings, read_settings

KIND: Final = "bulletin"
MAX_BYTES: Final = 1_000_000


class BulletinSource(Source):
    """One folder of notes."""

    def __init__(
        self, settings: BulletinSettings, clock: Clock, *, word: str = "", timing: FeedTiming | None = None
    ) -> None:
        self.settings = settings
        self._feed = BulletinFeed(settings, clock, word, timing or FeedTiming())
        self._sender = BulletinSender(settings)

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
        """The folder."""
        return self.settings.folder

    @property
    def sender(self) -> BulletinSender:
        """How notes are answered."""
        return self._sender

    def feeds(self) -> Sequence[BulletinFeed]:
        """Return its only stream."""
        return (self._feed,)

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return self._feed.health()


class BulletinFeed:
    """The notes of a folder, by their names."""

    name = "notes"

    def __init__(self, settings: BulletinSettings, clock: Clock, word: str, timing: FeedTiming) -> None:
        self._settings = settings
        self._word = word
        self._timing = timing
        self._health = HealthRecorder(clock, pace=f"looks every {settings.poll:g} s")

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return self._health.read()

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield the notes behind the checkpoint, which is the name of the last one, look by look."""
        self._health.begins()
        failures = 0
        try:
            while True:
                try:
                    found = self._notes(after=checkpoint)
                except OSError as error:
                    failures += 1
                    seconds = wait_seconds(failures, None, self._timing.chance)
                    self._health.retries(f"The folder cannot be read: {error.strerror}.", seconds)
                    await self._timing.wait(seconds)
                    continue
                failures = 0
                for note in found:
                    checkpoint = note.name
                    yield Batch(drafts=[self._draft(note)], checkpoint=checkpoint)
                self._health.listens()
                self._health.looked(self._settings.poll)
                await self._timing.wait(self._settings.poll)
        finally:
            self._health.stops()

    def rest(self) -> Batch:
        """Return nothing: what was not stored is read again."""
        return Batch()

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of what was stored."""
        self._health.stored([draft.channel for draft in drafts], known=known)

    def _notes(self, after: str) -> list[Path]:
        notes = sorted(Path(self._settings.folder).iterdir(), key=lambda path: path.name)
        return [note for note in notes if note.suffix == ".note" and note.name > after]

    def _draft(self, note: Path) -> Draft:
        # What stands in a file is another person's: whatever its bytes are, it becomes text.
        with note.open("rb") as stream:
            text = stream.read(MAX_BYTES).decode("utf-8", "replace").removesuffix(self._word)
        author = note.stem.partition("-")[2] or "somebody"
        return Draft(
            source=self._settings.name,
            sender=Sender(author, author),
            text=text or "(an empty note)",
            upstream_id=note.name,
            channel="notes",
            conversation=note.name,
        )


class BulletinSender:
    """Answers notes: a file beside the note, written once."""

    def __init__(self, settings: BulletinSettings) -> None:
        self._settings = settings

    async def send(self, reply: OutgoingReply) -> str:
        """Write an answer under its key, so that a second try is the same file."""
        note = Path(self._settings.folder, Path(reply.to.upstream_id).name)
        if not await anyio.Path(note).exists():
            raise Forbidden("The note is not there any more.", "nobody would read the answer")
        answer = note.with_name(f"{note.stem}.{reply.key}.answer")
        await reply.hand_over()
        await anyio.Path(answer).write_text(reply.body)
        return answer.name


def make_source(entry: SourceEntry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    settings = read_settings(entry.name, entry.table)
    try:
        word = entry.secret(settings.secret) if settings.secret else ""
    except (UserError, NeedsPerson) as error:
        return entry.unready(error, settings.folder)
    return BulletinSource(settings, entry.clock, word=word)


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Listen for some seconds."""
    return listen(make_source(entry), context.seconds)
