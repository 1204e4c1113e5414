"""The part of `SqliteStore` about questions: the contract of `store/contract/questions.py`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from harken.model import Mailbox, MessageId
from harken.store.contract.questions import Question, QuestionCount
from harken.store.sqlite import questions
from harken.store.sqlite.readers import Readers
from harken.store.sqlite.writer import Writer


class Asked:
    """Open questions."""

    _writer: Writer
    _readers: Readers

    async def questions(
        self, limit: int, *, mailboxes: Collection[Mailbox] | None = None, messages: Collection[MessageId] | None = None
    ) -> list[Question]:
        """Return open questions."""
        return await self._readers.run(lambda db: questions.opened(db, limit, mailboxes, messages))

    async def question_counts(self) -> list[QuestionCount]:
        """Return how much waits."""
        return await self._readers.run(questions.counts)

    async def questions_due(self, at: datetime, limit: int) -> list[Question]:
        """Return what is to be decided."""
        return await self._readers.run(lambda db: questions.due(db, at, limit))

    async def move_questions(
        self, messages: Collection[MessageId], *, due_at: datetime, way: str = "", kind: str = ""
    ) -> int:
        """Let nothing be due for questions until then."""
        # That nothing is due yet can be found out again; that somebody was told must not be forgotten.
        return await self._writer.run(
            lambda tx: questions.move(tx, messages, due_at=due_at, way=way, kind=kind), is_durable=bool(kind)
        )

    async def wake_questions(self, beyond: datetime) -> int:
        """Let questions that were put off for long be due now."""
        return await self._writer.run(lambda tx: questions.wake(tx, beyond), is_durable=False)

    async def settle_questions(self, messages: Collection[MessageId], by: str) -> int:
        """Close questions that need no answer."""
        return await self._writer.run(lambda tx: questions.settle(tx, messages, by))
