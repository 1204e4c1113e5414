"""The part of the store's contract that is about conversations: messages of one thread, as the person sorts them.

A conversation is everything that a source says under one thread: a chat, a pull request, an alert with its repeats. A
message without a thread is one by itself. It is open until the person is done with it or puts it off, and open again as
soon as somebody else writes in it; what only the person wrote is `sent`. Edits and deletions bring nothing back. Mail
for tasks is their agents' and in no conversation. What holds for every method is in `store/contract`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from harken.model import Message, MessageId

MAX_WALKED: Final = 2_000
"""Of what is narrowed down (unread, for you) the newest so many conversations are looked at."""

MAX_UNREAD_COUNTED: Final = 100


class ConversationState(StrEnum):
    """Where a conversation is in the person's own order."""

    OPEN = "open"
    SENT = "sent"
    DONE = "done"
    SNOOZED = "snoozed"


class ConversationView(StrEnum):
    """Which conversations are listed. `UNREAD` and `FOR_YOU` are parts of `OPEN`."""

    OPEN = "open"
    UNREAD = "unread"
    FOR_YOU = "for-you"
    SNOOZED = "snoozed"
    DONE = "done"
    SENT = "sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationKey:
    """What names a conversation."""

    source: str
    thread: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSummary:
    """A conversation: how many messages it has, the newest of them, and where the person put it.

    `unread` is counted among its newest `MAX_UNREAD_COUNTED`. `is_marked`: it counts as unread, because the person
    wants that. `is_asked`: somebody in it waits for an answer. `position` is what to ask `before` for what follows.
    """

    key: ConversationKey
    newest: Message
    count: int
    state: ConversationState
    until: datetime | None = None
    unread: int = 0
    is_marked: bool = False
    is_asked: bool = False
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCounts:
    """How many conversations there are in each state, those that are due among the open ones; and what is due next."""

    by_state: Mapping[ConversationState, int]
    next_due: datetime | None = None


class ConversationStore(Protocol):
    """Conversations, and what the person did about them."""

    async def list(
        self, view: ConversationView, limit: int, *, at: datetime, before: int = 0
    ) -> Sequence[ConversationSummary]:
        """Return conversations, the newest first; those whose time has come at `at` precede the open ones.

        With `before`, what follows that position. Of `SNOOZED`, those that are due first come first.
        """
        ...

    async def of(self, messages: Collection[MessageId]) -> Mapping[MessageId, ConversationSummary]:
        """Return the conversations of some messages; mail for tasks is in none."""
        ...

    async def counts(self, at: datetime) -> ConversationCounts:
        """Return how many conversations there are in each state at a time."""
        ...

    async def put(
        self, keys: Collection[ConversationKey], state: ConversationState, *, until: datetime | None = None
    ) -> int:
        """Put conversations where the person wants them; return how many were elsewhere. Idempotent.

        Journals `triage` for each, with its newest message. One that is done is not marked as unread any more.
        """
        ...

    async def mark(self, keys: Collection[ConversationKey], *, is_unread: bool) -> int:
        """Let conversations count as unread, or no longer; return how many did not. Idempotent. Journals `triage`."""
        ...
