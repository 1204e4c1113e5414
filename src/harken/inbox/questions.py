"""What was asked and not answered, and the replies on their way out, as people see them.

A question is closed by its answer; here is only what is done by hand. When a person is reminded is the ladder's
business, and sending that of the outbox (both in `dispatch`); answering is in `inbox.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from harken.clock import Clock
from harken.errors import UserError
from harken.inbox.caller import Caller, bounded
from harken.inbox.results import ReplyRow
from harken.model import Consumer, Mailbox, MessageId, OutboxId
from harken.store.contract import Store
from harken.store.contract.outbox import OutboxStore
from harken.store.contract.questions import Question, QuestionCount

__all__ = ["Question", "QuestionCount", "Questions", "WaitingSummary", "ago", "sentence"]

MAX_LISTED: Final = 500
BY_PERSON: Final = "you"
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)


def ago(since: datetime, now: datetime) -> str:
    """Return how long ago something was, roughly: `25 min`, `2 h`, `3 d`."""
    passed = max(now - since, timedelta(0))
    if passed < _HOUR:
        return f"{passed // timedelta(minutes=1)} min"
    return f"{passed // _HOUR} h" if passed < 2 * _DAY else f"{passed // _DAY} d"


def sentence(count: int, oldest: datetime | None, now: datetime) -> str:
    """Return how much waits for an answer, and since when, in words."""
    if not count or oldest is None:
        return "nothing waits for an answer"
    since = ago(oldest, now)
    return f"1 waits for an answer, for {since}" if count == 1 else f"{count} wait for an answer, oldest {since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSummary:
    """How much waits for an answer: in total, since when, and where."""

    count: int = 0
    oldest: datetime | None = None
    mailboxes: Sequence[QuestionCount] = ()
    sentence: str = ""


class Questions:
    """The use cases around open questions."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(self, mailboxes: Collection[Mailbox] | None = None, limit: int = 50) -> Sequence[Question]:
        """Return what waits for an answer, the oldest first."""
        return await self._store.questions.open(bounded(limit, MAX_LISTED, "limit"), mailboxes=mailboxes)

    async def waiting(self, among: Collection[Mailbox] | None = None) -> WaitingSummary:
        """Return how much waits, in some mailboxes or in all."""
        counts = [each for each in await self._store.questions.counts() if among is None or each.mailbox in among]
        count, oldest = sum(each.count for each in counts), min((each.oldest for each in counts), default=None)
        said = sentence(count, oldest, self._clock.now())
        return WaitingSummary(count=count, oldest=oldest, mailboxes=counts, sentence=said)

    async def of(self, messages: Collection[MessageId]) -> Sequence[Question]:
        """Return those of some messages that wait for an answer, the oldest first."""
        return await self._store.questions.open(MAX_LISTED, messages=messages) if messages else []

    async def owed(self, mailboxes: Collection[Mailbox], consumer: Consumer, limit: int) -> Sequence[Question]:
        """Return what waits in some mailboxes, was seen by a consumer, and has no answer on its way."""
        found = [each for each in await self.list(mailboxes, limit) if each.is_seen and not each.has_reply]
        seen = await self._store.deliveries.seen_by([each.message.id for each in found]) if found else {}
        return [each for each in found if consumer in seen[each.message.id]]

    def how_long(self, question: Question) -> str:
        """Return for how long a question waits, roughly."""
        return ago(question.message.received_at, self._clock.now())

    async def settle(self, caller: Caller, refs: Sequence[str]) -> Sequence[MessageId]:
        """Say that these need no answer (any more); return them. Raises `NotFound` before anything is changed."""
        caller.require_owner("say that nothing waits for an answer")
        messages = [(await self._store.messages.get(ref)).id for ref in refs]
        await self._store.questions.settle(messages, BY_PERSON)
        return messages


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
