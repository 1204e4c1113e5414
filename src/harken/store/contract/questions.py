"""The part of the store's contract that is about questions, of people and of hosts.

What holds for every method is in `store/contract`.

A question is a message with a sender who waits for an answer, as far as its source can tell. It is open from the moment
it is stored until an answer to it, or to something that the same sender said later in its conversation, has left; until
the person writes in that conversation upstream, or says that no answer is needed; or until it is deleted. `tried` are
the ways in which a person was told of it, and `reminders` how often: when which way is taken is decided above.

An approval is one question of one session: whether its host may let a tool be used. Which steps there are, and from
where, is decided by `Approval` in `model.py`; a store takes them one at a time, so of two answers one counts. A step
that is not to be had changes nothing. Every step journals `approval` with its `change`: asked, shown, answered,
withdrawn, expired or obeyed; what was asked is in the line of `asked`, for a recovery alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from harken.model import (
    Approval,
    ApprovalAnswer,
    ApprovalId,
    ApprovalRequest,
    ApprovalState,
    Mailbox,
    Message,
    MessageId,
)


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


MAX_OPEN = 200
KEPT = 1_000  # of those that are not open


class ApprovalStore(Protocol):
    """Questions of hosts, and their answers. Changes ring for `APPROVALS`."""

    async def ask(
        self, request: ApprovalRequest, patience: timedelta, *, refused_by: str = "", reason: str = ""
    ) -> Approval:
        """Store a question that can be answered for so long. It belongs to this daemon.

        With `refused_by` it is answered by that with a no and a reason, in the same step: it is never open.

        With the `native` id of one that is open in the same session, returns that one and changes nothing, unless it
        asks something else: that one is withdrawn then. Raises `Forbidden` when `MAX_OPEN` are open. Of those that
        are not open, the newest `KEPT` stay.
        """
        ...

    async def get(self, ref: str) -> Approval:
        """Return an approval by id or a unique beginning of it. Raises `NotFound`, `UserError` when it fits several."""
        ...

    async def list(
        self, states: Collection[ApprovalState] = (), *, is_own: bool = False, limit: int = 200
    ) -> Sequence[Approval]:
        """Return approvals in some states, or all, the oldest first; `is_own`: only those that this daemon asked for.

        Of more than the limit, the newest are left out where they are open, else the oldest.
        """
        ...

    async def show(self, approval: ApprovalId, surface: str) -> Approval:
        """Note that a surface has shown it. Idempotent. Raises `NotFound`."""
        ...

    async def answer(self, answer: ApprovalAnswer) -> Approval:
        """Answer an open one: the first answer counts.

        Raises `Conflict`, and says what it is now, for one that is not open any more, and when session, hash or choice
        are not those of the question. One that is late becomes `expired` by this call. Raises `NotFound` for anything
        but a whole id: what a beginning means changes with what else is open.
        """
        ...

    async def withdraw(self, approval: ApprovalId, because: str) -> Approval:
        """End one that is open, or answered and not obeyed. Changes nothing about one that is over."""
        ...

    async def expire(self) -> Sequence[Approval]:
        """Let open ones that are late become `expired`; return them."""
        ...

    async def obey(self, approval: ApprovalId, evidence: str) -> Approval:
        """Note the evidence that the host did what was answered. Changes nothing about one that waits for none.

        Raises `UserError` without evidence.
        """
        ...
