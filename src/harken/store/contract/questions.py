"""The part of the store's contract that is about questions. What holds for every method is in `store/contract`.

A question is a message with a sender who waits for an answer, as far as its source can tell. It is open from the moment
it is stored until an answer to it, or to something that the same sender said later in its conversation, has left; until
the person writes in that conversation upstream, or says that no answer is needed; or until it is deleted. `tried` are
the ways in which a person was told of it, and `reminders` how often: when which way is taken is decided above.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from harken.model import Mailbox, Message, MessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A message that waits for an answer."""

    message: Message
    due_at: datetime
    tried: frozenset[str] = frozenset()
    reminders: int = 0
    is_seen: bool = False  # by an agent
    has_reply: bool = False  # an answer is on its way


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionCount:
    """How much waits in a mailbox, and since when."""

    mailbox: Mailbox
    count: int
    oldest: datetime


class QuestionStore(Protocol):
    """Open questions."""

    async def open(
        self, limit: int, *, mailboxes: Collection[Mailbox] | None = None, messages: Collection[MessageId] | None = None
    ) -> Sequence[Question]:
        """Return open questions, the oldest first, in some mailboxes or all; of `messages` those that are open."""
        ...

    async def counts(self) -> Sequence[QuestionCount]:
        """Return how much waits in each mailbox in which something does, by name."""
        ...

    async def due(self, at: datetime, limit: int) -> Sequence[Question]:
        """Return open questions about which something is to be decided, the oldest first."""
        ...

    async def move(self, messages: Collection[MessageId], *, due_at: datetime, way: str = "", kind: str = "") -> int:
        """Let nothing be due for questions until then; return how many of them are still open.

        A `way` was gone, and is remembered for as long as they are open. With a `kind`, a person was told by it: counts
        that, and journals it for each of them, with the message and the way as `how`.
        """
        ...

    async def wake(self, beyond: datetime) -> int:
        """Let questions that were put off until after a time be due now: what is to be done may have changed."""
        ...

    async def settle(self, messages: Collection[MessageId], by: str) -> int:
        """Close questions that need no answer; return how many were open. Idempotent. Journals `settled` for each."""
        ...
