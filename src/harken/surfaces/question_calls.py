"""The verbs for what waits for an answer. Like those in `calls`: one table for the socket and the HTTP API."""

from __future__ import annotations

from typing import Annotated

from harken.inbox.questions import Question, Waiting
from harken.model import Mailbox, MessageId
from harken.surfaces import shapes
from harken.surfaces.desk import Arguments, Desk, Verb, about


class ListQuestions(Arguments):
    """Show what was asked and not answered, the oldest first."""

    mailbox: Annotated[str, about("Only this mailbox; all when empty.")] = ""
    limit: Annotated[int, about("At most this many.")] = 50


class SettleQuestions(Arguments):
    """Say that messages need no answer, or have got one elsewhere."""

    refs: Annotated[list[str], about("The messages.")]


def waiting(value: Waiting) -> dict[str, object]:
    """Return how much waits for an answer."""
    return {
        "count": value.count,
        "oldest_at": shapes.moment(value.oldest),
        "sentence": value.sentence,
        "mailboxes": [
            {"mailbox": each.mailbox, "count": each.count, "oldest_at": shapes.moment(each.oldest)}
            for each in value.mailboxes
        ],
    }


def standing(value: Question, how_long: str) -> dict[str, object]:
    """Return how far a question got."""
    return {
        "how_long": how_long,
        "is_seen": value.is_seen,
        "has_reply": value.has_reply,
        "reminders": value.reminders,
    }


async def standing_of(desk: Desk, message: MessageId) -> dict[str, object] | None:
    """Return how far a message got as a question; None for one that waits for no answer."""
    found = await desk.questions.of([message])
    return standing(found[0], desk.questions.how_long(found[0])) if found else None


async def _questions(desk: Desk, a: ListQuestions) -> object:
    own = desk.among(a.mailbox)
    among = (Mailbox(a.mailbox),) if a.mailbox else own
    found = await desk.questions.list(among, a.limit)
    listed = [
        {"message": shapes.message(each.message, ()), **standing(each, desk.questions.how_long(each))} for each in found
    ]
    return {"questions": listed, **waiting(await desk.questions.waiting(among))}


async def _question_done(desk: Desk, a: SettleQuestions) -> object:
    return {"settled": list(await desk.questions.settle(desk.caller, a.refs))}


QUESTION_VERBS: tuple[tuple[str, Verb], ...] = (
    ("questions", Verb(ListQuestions, _questions)),
    ("question_done", Verb(SettleQuestions, _question_done)),
)
