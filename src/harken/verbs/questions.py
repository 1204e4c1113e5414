"""The verbs for what waits for an answer, and for replies on their way out."""

from __future__ import annotations

from typing import Annotated, Final

from harken.inbox.questions import MAX_LISTED
from harken.model import Mailbox
from harken.verbs import shapes
from harken.verbs.verb import AnyCall, Arguments, CallContext, ToolArgument, Verb, about, plain, tool_of


class ListQuestions(Arguments):
    """Show unanswered questions, oldest first."""

    mailbox: Annotated[str, about("Only this mailbox.")] = ""
    limit: Annotated[int, about(f"Maximum number, up to {MAX_LISTED}.")] = 50


class SettleQuestions(Arguments):
    """Mark questions as needing no answer, or as answered elsewhere. Reminders stop."""

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


class Reply(Arguments):
    """Answer a message in the conversation it came from."""

    ref: Annotated[str, about("The message.")]
    body: Annotated[str, about("The answer.")]
    key: Annotated[str, about("Sent again with the same key it is done once.")] = ""


class ListOutbox(Arguments):
    """Show replies that have not been sent, or those in one state, newest first."""

    state: Annotated[str, about("Only these: `queued`, `parked` or `sent`; else what has not left.")] = ""


class RetryReplies(Arguments):
    """Try again to send replies that could not be sent."""

    replies: Annotated[list[str], about("The ids of the replies.")]
    is_unsent: Annotated[
        bool, about("You have checked that it was not sent: do not ask the service.", flag="--not-sent")
    ] = False


async def _reply(context: AnyCall, a: Reply) -> object:
    edge, request = context.once(a.key)
    row = await context.inbox.reply(
        context.caller, a.ref, a.body, among=context.answerable(), edge=edge, request=request
    )
    return {"reply_id": row.id, "message_id": row.message.id, "state": row.state}


async def _outbox(context: CallContext, a: ListOutbox) -> object:
    rows = await context.replies.list(a.state)
    return {"replies": [shapes.reply(row) for row in rows if context.may_read(row.message)]}


async def _outbox_retry(context: CallContext, a: RetryReplies) -> object:
    rows = await context.replies.retry(context.caller, a.replies, is_unsent=a.is_unsent)
    return {"replies": [shapes.reply(row) for row in rows]}


_REPLY_TOOL: Final = tool_of(
    Reply,
    ToolArgument(name="message_id", description="The message to answer.", of="ref", bounds={"min_length": 1}),
    ToolArgument(name="body", description="The answer, as the other side will read it.", bounds={"min_length": 1}),
    name="reply",
    title="Answer a message",
    description=(
        "Sends an answer to the conversation a message came from. The sender reads it there, not in this session."
    ),
    run=plain(_reply),
)

REPLY_VERBS: Final = (Verb("reply", Reply, _reply, _REPLY_TOOL),)

OUTBOX_VERBS: Final = (
    Verb("outbox", ListOutbox, _outbox),
    Verb("outbox_retry", RetryReplies, _outbox_retry),
)
