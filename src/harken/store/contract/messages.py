"""The part of the store's contract that is about messages, and how far each feed has come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from harken.model import (
    Mailbox,
    Message,
    MessageId,
    NewMessage,
)

MAX_READ_CHARS = 64_000_000
"""What gives a list of messages or events ends with the one that brings their texts to this, however many were asked
for: memory is not bounded by a count."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A feed's opaque upstream position, stored with the messages that precede it."""

    source: str
    feed: str
    value: str


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What became of one new message: stored now, or known already."""

    message: Message
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which messages to show; empty fields do not filter, but a trial's mailbox is shown only where it is named."""

    mailbox: str = ""
    among: tuple[Mailbox, ...] | None = None  # any of these, and nothing if there are none; None: all
    channel: str = ""
    sender: str = ""
    source: str = ""
    thread: str = ""
    since: datetime | None = None
    until: datetime | None = None
    after: int = 0  # seq, exclusive
    before: int = 0  # seq, exclusive; 0 = no bound


class MessageStore(Protocol):
    """Everything that was accepted, in order."""

    async def append(
        self, messages: Sequence[NewMessage], checkpoint: Checkpoint | None = None, *, dropped: int = 0
    ) -> list[AppendResult]:
        """Store messages in the given order, and the checkpoint that follows them, together or not at all.

        A message with a known `dedup_key` is not stored again: its entry has the first one and `is_new=False`. That
        holds for ever, also after retention removed the first one (then `message` is a stub with its id). Journals
        `received` per new message, and `dropped` with the count when the source had to drop some.
        """
        ...

    async def get(self, ref: str) -> Message:
        """Return a message by id, by a unique beginning of its id, or by `mailbox#seq` (`#seq`, `seq`: in `inbox`).

        A blank before the sign is allowed, as lists print it. Raises `NotFound`, or `UserError` when a beginning fits
        several.
        """
        ...

    async def get_many(self, ids: Collection[MessageId]) -> Mapping[MessageId, Message]:
        """Return those of some messages that are stored."""
        ...

    async def page(self, where: Filter, limit: int, *, newest_first: bool = False) -> list[Message]:
        """Return messages in order of receipt, oldest or newest first; up to `MAX_READ_CHARS` of text."""
        ...

    async def search(self, text: str, where: Filter, limit: int) -> list[Message]:
        """Return messages that contain all the words, newest first, up to `MAX_READ_CHARS` of text.

        Any text is a valid query.
        """
        ...

    async def index(self, limit: int) -> int:
        """Make up to `limit` stored messages searchable; return how many: none when all are.

        Of long ones fewer at once. Not part of accepting: it may lag. Puts messages into their conversations, too, so
        that who looks at those need not wait for it.
        """
        ...

    async def referring(self, ids: Collection[MessageId]) -> Mapping[MessageId, Sequence[Message]]:
        """Return the newest of what refers to each of some messages (edits, deletions, answers), oldest first."""
        ...


class CheckpointStore(Protocol):
    """How far each feed has come. `MessageStore.append` stores a checkpoint with the messages that precede it."""

    async def get(self, source: str, feed: str) -> str:
        """Return the stored checkpoint, or an empty string."""
        ...
