"""The verbs for what waits for an answer."""

from __future__ import annotations

from typing import Annotated, Final

from harken.inbox.questions import Question, WaitingSummary
from harken.model import Mailbox, MessageId
from harken.verbs import shapes
from harken.verbs.verb import Arguments, CallContext, Verb, about


class ListQuestions(Arguments):
    """Show what was asked and not answered, the oldest first."""

    mailbox: Annotated[str, about("Only this mailbox; all when empty.", command="Only this mailbox.")] = ""
    limit: Annotated[int, about("At most this many.")] = 50


class SettleQuestions(Arguments):
    """Say that messages need no answer, or have got one elsewhere."""

    refs: Annotated[list[str], about("The messages.")]


def waiting(value: WaitingSummary) -> dict[str, object]:
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


async def standing_of(context: CallContext, message: MessageId) -> dict[str, object] | None:
    """Return how far a message got as a question; None for one that waits for no answer."""
    found = await context.questions.of([message])
    return standing(found[0], context.questions.how_long(found[0])) if found else None


async def _questions(context: CallContext, a: ListQuestions) -> object:
    own = context.among(a.mailbox)
    among = (Mailbox(a.mailbox),) if a.mailbox else own
    found = await context.questions.list(among, a.limit)
    listed = [
        {"message": shapes.message(each.message, ()), **standing(each, context.questions.how_long(each))}
        for each in found
    ]
    return {"questions": listed, **waiting(await context.questions.waiting(among))}


async def _question_done(context: CallContext, a: SettleQuestions) -> object:
    return {"settled": list(await context.questions.settle(context.caller, a.refs))}


QUESTION_VERBS: Final = (
    Verb("questions", ListQuestions, _questions),
    Verb("question_done", SettleQuestions, _question_done),
)
