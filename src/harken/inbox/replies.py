"""Replies on their way out, as people see them: what waits, what could not be sent, and to try that once more.

Sending is the outbox's business (`dispatch`), answering that of `inbox.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from harken.errors import UserError
from harken.inbox.caller import Caller
from harken.inbox.results import ReplyRow
from harken.model import OutboxId
from harken.store.contract.outbox import OutboxStore

STATES = ("queued", "sent", "parked")


class Replies:
    """The use cases around the outbox."""

    def __init__(self, outbox: OutboxStore) -> None:
        self._outbox = outbox

    async def list(self, state: str = "") -> Sequence[ReplyRow]:
        """Return the newest replies, of one state, or what has not left."""
        if state and state not in STATES:
            raise UserError(f"There is no state {state[:40]!r}.", f"States: {', '.join(STATES)}.")
        if state:
            return await self._outbox.list(state=state)
        return [*await self._outbox.list(state="parked"), *await self._outbox.list(state="queued")]

    async def retry(self, caller: Caller, replies: Sequence[str], *, is_unsent: bool) -> Sequence[ReplyRow]:
        """Let parked replies be tried once more, now. Raises `NotFound` before anything is changed.

        With `is_unsent` the person has looked, and none of them was sent.
        """
        caller.require_owner("have replies sent again")
        return await self._outbox.retry([OutboxId(each.strip()) for each in replies], is_unsent=is_unsent)
