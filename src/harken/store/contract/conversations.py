"""The part of the store's contract that is about conversations: messages of one thread, and the person's triage.

A conversation is everything that a source says under one thread: a chat, a pull request, an alert with its repeats. A
message without a thread is one by itself. It is open until the person is done with it or puts it off. Either holds up
to the message that was named with it: what somebody else says after that message, also if it came before the person
acted, keeps the conversation open. What the person says, here or through a source, brings nothing back, and where
nobody else has spoken the conversation is `sent`. Edits and deletions bring nothing back either. Mail for tasks is
their agents' and in no conversation. What holds for every method is in `store/contract`; each sees every message that
was accepted before it was called.
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

MAX_SEEN_WITH: Final = 500
"""Of a conversation that is read or done, so many of the newest messages are seen with it."""


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
    wants that, or because it came back. `is_asked`: somebody in it waits for an answer. `position` says where in its
    list it is, and is what to ask `before` for what follows.
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
class Triage:
    """What the person does about the conversation of a message, up to that message.

    `is_unread`: it counts as unread from now on, or no longer; None leaves that to the state.
    """

    message: MessageId
    state: ConversationState
    until: datetime | None = None
    is_unread: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageResult:
    """What became of it: the conversation before and after. It is still open where there is something newer."""

    message: MessageId
    was: ConversationSummary
    now: ConversationSummary


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
        """Return conversations, the newest first; those that are due at `at` precede the open ones.

        They are among those for you, and among the unread until they are read. With `before`, what follows that
        position. Of `SNOOZED`, those that are due first come first.
        """
        ...

    async def counts(self, at: datetime) -> ConversationCounts:
        """Return how many conversations there are in each state at a time."""
        ...

    async def triage(self, orders: Sequence[Triage]) -> Sequence[TriageResult]:
        """Put conversations where the person wants them, all or none; return each of them once. Idempotent.

        Journals `triage` for each that changed. What is done is seen, up to its message and with the edits of that; it
        is not marked any more, and what is put off is marked for when it comes back. Of two messages of a conversation
        the newer one counts; one that was done up to a newer message stays done up to there. Raises `NotFound` for a
        message that is in no conversation.
        """
        ...

    async def mark(self, messages: Collection[MessageId], *, is_unread: bool) -> Sequence[ConversationSummary]:
        """Let the conversations of messages count as unread, or be read up to there; return them as they are then.

        All or none, idempotent. Journals `triage` for each that changed. Raises `NotFound` as `triage` does.
        """
        ...

    async def see(self, key: ConversationKey, *, since: int, up_to: int, evidence: str) -> int:
        """Let what is between two positions of the thread be seen by the person, and end the mark of the conversation.

        The positions are those of its timeline, both included. Returns how many messages were not seen. Idempotent.
        """
        ...

    async def take_returned(self, at: datetime, limit: int) -> Sequence[ConversationSummary]:
        """Return the conversations that have come back since this was asked last, the newest return first.

        Each is returned once, so that the person is told once. Best effort: what is not told then is in the list.
        """
        ...
