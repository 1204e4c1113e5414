"""The person's triage: marks conversations as done, snoozed or unread.

Triage does not affect agents: a message in a conversation that is done stays queued for agents that have not seen it. A
conversation is named by one of its messages, and a decision covers it up to that message: the list and the page name
the newest message that they show. A conversation returns to the list when another sender writes in it, or when its
snooze ends. The verbs and the page are above; the store is below.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from harken.clock import Clock
from harken.errors import UserError
from harken.inbox.caller import Caller, bounded
from harken.model import MessageId
from harken.store.contract.conversations import (
    ConversationCounts,
    ConversationState,
    ConversationStore,
    ConversationSummary,
    ConversationView,
    Triage,
    TriageResult,
)
from harken.store.contract.messages import MessageStore
from harken.times import LENGTHS

__all__ = ["ConversationCounts", "ConversationState", "ConversationSummary", "Conversations", "Triage", "TriageResult"]

MAX_LISTED: Final = 200
MAX_AT_ONCE: Final = 200
LONGEST_SNOOZE: Final = timedelta(days=3_650)
DEFAULT_SNOOZE: Final = timedelta(hours=3)


class Conversations:
    """The use cases of conversations. One per daemon."""

    def __init__(self, conversations: ConversationStore, messages: MessageStore, clock: Clock) -> None:
        self._store = conversations
        self._messages = messages
        self._clock = clock

    async def list(self, view: str = "open", *, before: int = 0, limit: int = 50) -> Sequence[ConversationSummary]:
        """Return conversations, newest first; `before` is the position of the last one on the previous page."""
        try:
            which = ConversationView(view)
        except ValueError as exc:
            views = ", ".join(each.value for each in ConversationView)
            raise UserError(f"There is no view {view[:40]!r}.", f"Views: {views}.") from exc
        most = bounded(limit, MAX_LISTED, "limit")
        return await self._store.list(which, most, at=self._clock.now(), before=max(0, before))

    async def counts(self) -> ConversationCounts:
        """Return the number of conversations in each state."""
        return await self._store.counts(self._clock.now())

    async def done(self, caller: Caller, refs: Sequence[str]) -> Sequence[TriageResult]:
        """Mark conversations as done, and their messages as seen, up to the messages that name them.

        A conversation with newer messages from another sender stays in the list.
        """
        return await self._put(caller, refs, ConversationState.DONE, None)

    async def snooze(
        self, caller: Caller, refs: Sequence[str], *, seconds: float | None = None, until: datetime | None = None
    ) -> Sequence[TriageResult]:
        """Snooze conversations, for a while or until a time; three hours by default."""
        caller.require_owner("sort your conversations")
        if seconds is not None and until is not None:
            raise UserError("For how long, or until when?", "Use one of them: --for or --until.")
        now = self._clock.now()
        if until is None:
            until = now + (DEFAULT_SNOOZE if seconds is None else timedelta(seconds=seconds))
        if not now < until <= now + LONGEST_SNOOZE:
            said = "That time has passed." if until <= now else "That is more than ten years off."
            raise UserError(said, f"Say for how long ({LENGTHS}), or a time in the future.")
        return await self._put(caller, refs, ConversationState.SNOOZED, until)

    async def reopen(self, caller: Caller, refs: Sequence[str]) -> Sequence[TriageResult]:
        """Reopen conversations: undo `done` and `snooze`."""
        return await self._put(caller, refs, ConversationState.OPEN, None)

    async def mark(self, caller: Caller, refs: Sequence[str], *, is_unread: bool) -> Sequence[ConversationSummary]:
        """Mark conversations as unread, or as read up to these messages."""
        return await self._store.mark(await self._named(caller, refs), is_unread=is_unread)

    async def restore(self, caller: Caller, orders: Sequence[Triage]) -> Sequence[TriageResult]:
        """Restore the earlier state of conversations, all or none; those with newer messages stay in the list."""
        caller.require_owner("sort your conversations")
        if not orders or len(orders) > MAX_AT_ONCE:
            raise UserError("There is nothing to undo.", "Load the page again.")
        return await self._store.triage(orders)

    async def _put(
        self, caller: Caller, refs: Sequence[str], state: ConversationState, until: datetime | None
    ) -> Sequence[TriageResult]:
        named = await self._named(caller, refs)
        return await self._store.triage([Triage(message=each, state=state, until=until) for each in named])

    async def _named(self, caller: Caller, refs: Sequence[str]) -> Sequence[MessageId]:
        caller.require_owner("sort your conversations")
        if not refs:
            raise UserError("Which conversation?", "Name a message of it, as `harken conversations` shows it.")
        if len(refs) > MAX_AT_ONCE:
            raise UserError("That is too much at once.", f"Name {MAX_AT_ONCE} conversations at most.")
        return [(await self._messages.get(ref)).id for ref in refs]
