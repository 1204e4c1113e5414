"""The verbs for what waits for an answer."""

from __future__ import annotations

from typing import Annotated, Final

from harken.model import Mailbox
from harken.verbs import shapes
from harken.verbs.verb import Arguments, CallContext, Verb, about


class ListQuestions(Arguments):
    """Show what was asked and not answered, the oldest first."""

    mailbox: Annotated[str, about("Only this mailbox; all when empty.", command="Only this mailbox.")] = ""
    limit: Annotated[int, about("At most this many.")] = 50


class SettleQuestions(Arguments):
    """Say that messages need no answer, or have got one elsewhere."""

    refs: Annotated[list[str], about("The messages.")]


async def _questions(context: CallContext, a: ListQuestions) -> object:
    own = context.among(a.mailbox)
    among = (Mailbox(a.mailbox),) if a.mailbox else own
    found = await context.questions.list(among, a.limit)
    listed = [
        {"message": shapes.message(each.message, ()), **shapes.question_state(each, context.questions.how_long(each))}
        for each in found
    ]
    return {"questions": listed, **shapes.waiting(await context.questions.waiting(among))}


async def _question_done(context: CallContext, a: SettleQuestions) -> object:
    return {"settled": list(await context.questions.settle(context.caller, a.refs))}


QUESTION_VERBS: Final = (
    Verb("questions", ListQuestions, _questions),
    Verb("question_done", SettleQuestions, _question_done),
)
