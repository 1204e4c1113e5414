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
    Schedule,
    ScheduledMessage,
)

MAX_READ_CHARS = 64_000_000
"""What gives a list of messages or events ends with the one that brings their texts to this, however many were asked
for: memory is not bounded by a count."""


MAX_SCHEDULED = 1_000
"""How many messages may wait for their time; of those that were withdrawn as many are kept."""


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


class ScheduleStore(Protocol):
    """Messages that were accepted and enter their mailbox later. Until then no reader, count or cursor has them.

    Every step journals `scheduled` with its `change`: accepted or withdrawn; the message itself is in the line for a
    recovery alone. Changes ring for `SCHEDULE`.
    """

    async def add(self, message: NewMessage, when: Schedule) -> AppendResult:
        """Accept a message: its id is the one that it will have, and its `seq` is 0.

        A known `dedup_key` is treated as `MessageStore.append` treats it, and this one's is taken from now on. Raises
        `Forbidden` when `MAX_SCHEDULED` wait.
        """
        ...

    async def get(self, ref: str) -> ScheduledMessage:
        """Return one that waits or was withdrawn, by id or a unique beginning of it.

        Raises `NotFound`, also for one that has entered its mailbox, and `UserError` when a beginning fits several.
        """
        ...

    async def list(self, mailbox: str = "", *, limit: int = MAX_SCHEDULED) -> Sequence[ScheduledMessage]:
        """Return those that wait, in one mailbox or all: the next due first, then those without a time."""
        ...

    async def release(self, ids: Collection[MessageId]) -> Sequence[Message]:
        """Let those of some messages that wait enter their mailboxes now, in the order of `list`; return them.

        What follows is what follows from `MessageStore.append`. Each enters once, however often and by how many daemons
        it is released.
        """
        ...

    async def withdraw(self, message: MessageId, by: str) -> ScheduledMessage:
        """Let one that waits never enter its mailbox. Idempotent. Raises `NotFound` as `get` does."""
        ...


class CheckpointStore(Protocol):
    """How far each feed has come. `MessageStore.append` stores a checkpoint with the messages that precede it."""

    async def get(self, source: str, feed: str) -> str:
        """Return the stored checkpoint, or an empty string."""
        ...
