"""What the person sorts: conversations that are done, put off, or to be read once more.

It is the person's own order and changes nothing for agents: what is done here stays queued for those who have not seen
it. A conversation comes back by itself when somebody writes in it, or when the time has come until which it was put
off. Above are the verbs and the page; below the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from harken.clock import Clock
from harken.errors import NotFound, UserError
from harken.inbox.caller import Caller, bounded
from harken.inbox.inbox import mark_seen
from harken.model import MessageId
from harken.store.contract import Store
from harken.store.contract.conversations import (
    ConversationCounts,
    ConversationKey,
    ConversationState,
    ConversationSummary,
    ConversationView,
)
from harken.store.contract.timeline import TimelineScope
from harken.times import LENGTHS

__all__ = ["ConversationCounts", "ConversationState", "ConversationSummary", "Conversations", "TriageResult"]

MAX_LISTED: Final = 200
MAX_AT_ONCE: Final = 200
LONGEST_SNOOZE: Final = timedelta(days=3_650)
DEFAULT_SNOOZE: Final = timedelta(hours=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageResult:
    """A conversation that was put somewhere, and where it was before: what an undo needs."""

    message: MessageId
    conversation: ConversationSummary  # as it was
    state: ConversationState
    until: datetime | None = None


class Conversations:
    """The use cases of conversations. One per daemon."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(self, view: str = "open", *, before: int = 0, limit: int = 50) -> Sequence[ConversationSummary]:
        """Return conversations, the newest first; `before` is the position of the last one that is known."""
        try:
            which = ConversationView(view)
        except ValueError as exc:
            views = ", ".join(each.value for each in ConversationView)
            raise UserError(f"There is no view {view[:40]!r}.", f"Views: {views}.") from exc
        most = bounded(limit, MAX_LISTED, "limit")
        return await self._store.conversations.list(which, most, at=self._clock.now(), before=max(0, before))

    async def counts(self) -> ConversationCounts:
        """Return how many conversations there are in each state now."""
        return await self._store.conversations.counts(self._clock.now())

    async def of(self, ref: str) -> ConversationSummary:
        """Return the conversation of a message."""
        [found] = (await self._found([ref])).values()
        return found

    async def done(self, caller: Caller, refs: Sequence[str]) -> Sequence[TriageResult]:
        """Be done with conversations: they leave the list until somebody writes in them. What is in them is seen."""
        return await self._put(caller, refs, ConversationState.DONE, None)

    async def snooze(
        self, caller: Caller, refs: Sequence[str], *, seconds: float | None = None, until: datetime | None = None
    ) -> Sequence[TriageResult]:
        """Put conversations off, for a while or until a time; without either for three hours."""
        caller.require_owner("sort your conversations")
        if seconds is not None and until is not None:
            raise UserError("For how long, or until when?", "Say one of them: --for or --until.")
        now = self._clock.now()
        if until is None:
            until = now + (DEFAULT_SNOOZE if seconds is None else timedelta(seconds=seconds))
        if not now < until <= now + LONGEST_SNOOZE:
            raise UserError("That time has passed.", f"Say for how long ({LENGTHS}), or a time in the future.")
        return await self._put(caller, refs, ConversationState.SNOOZED, until)

    async def reopen(self, caller: Caller, refs: Sequence[str]) -> Sequence[TriageResult]:
        """Put conversations back into the list: the undo of `done` and `snooze`."""
        return await self._put(caller, refs, ConversationState.OPEN, None)

    async def mark(self, caller: Caller, refs: Sequence[str], *, is_unread: bool) -> Sequence[ConversationSummary]:
        """Let conversations count as unread until they are read again; or have read them."""
        caller.require_owner("sort your conversations")
        found = list((await self._found(refs)).values())
        keys = [each.key for each in found]
        if not is_unread:
            await self._see(keys)
        await self._store.conversations.mark(keys, is_unread=is_unread)
        return found

    async def _put(
        self, caller: Caller, refs: Sequence[str], state: ConversationState, until: datetime | None
    ) -> Sequence[TriageResult]:
        caller.require_owner("sort your conversations")
        found = await self._found(refs)
        keys = [each.key for each in found.values()]
        if state is ConversationState.DONE:
            await self._see(keys)
        await self._store.conversations.put(keys, state, until=until)
        return [
            TriageResult(message=message, conversation=each, state=state, until=until)
            for message, each in found.items()
        ]

    async def _see(self, keys: Sequence[ConversationKey]) -> None:
        for key in keys:
            scope = TimelineScope(source=key.source, thread=key.thread)
            await mark_seen(self._store, scope, evidence="done")

    async def _found(self, refs: Sequence[str]) -> Mapping[MessageId, ConversationSummary]:
        """Return the conversations of messages, each once; raises before anything is changed."""
        if not refs:
            raise UserError("Which conversation?", "Name a message of it, as `harken conversations` shows it.")
        if len(refs) > MAX_AT_ONCE:
            raise UserError("That is too much at once.", f"Name {MAX_AT_ONCE} conversations at most.")
        messages = [(await self._store.messages.get(ref)).id for ref in refs]
        found = await self._store.conversations.of(messages)
        if missing := [ref for ref, message in zip(refs, messages, strict=True) if message not in found]:
            raise NotFound(
                f"{missing[0][:80]!r} is in no conversation of yours.", "What is for a task is read by its agent."
            )
        once = {each.key: message for message, each in found.items()}
        return {message: found[message] for message in once.values()}
