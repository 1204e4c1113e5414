"""The verbs for what waits for an answer, of people and of hosts, and for replies on their way out."""

from __future__ import annotations

from typing import Annotated, Final

from harken.inbox.caller import Grant, Role
from harken.inbox.questions import MAX_LISTED, MAX_REASON_CHARS
from harken.model import ApprovalChoice, ApprovalId, Mailbox
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
    # An agent is not told what hosts ask the person.
    is_person = context.caller.role is Role.OWNER
    asked = await context.approvals.list(context.caller) if is_person else ()
    await context.approvals.show(asked, context.surface)
    return {
        "questions": listed,
        **shapes.waiting(await context.questions.waiting(among)),
        "approvals": [shapes.approval(each) for each in asked],
    }


async def _question_done(context: CallContext, a: SettleQuestions) -> object:
    return {"settled": list(await context.questions.settle(context.caller, a.refs))}


QUESTION_VERBS: Final = (
    Verb("questions", ListQuestions, _questions, needs=Grant.READ),
    Verb("question_done", SettleQuestions, _question_done),
)


class ListApprovals(Arguments):
    """Show what hosts ask before a tool is used, oldest first."""

    all: Annotated[bool, about("Include those that are over.")] = False
    limit: Annotated[int, about(f"Maximum number, up to {MAX_LISTED}.")] = 50


class GetApproval(Arguments):
    """Show what a host asks, whole, and what became of it."""

    approval: Annotated[str, about("Its id, or the beginning of it.")]


class Approve(Arguments):
    """Answer what a host asks before a tool is used. The first answer counts."""

    approval: Annotated[str, about("Its whole id.")]
    choice: Annotated[str, about(f"One of its choices: {', '.join(f'`{each}`' for each in ApprovalChoice)}.")]
    digest: Annotated[str, about("The hash of what you were shown. An answer to anything else does not count.")]
    reason: Annotated[
        str, about(f"With `no`: why. With `answer`: a line per question. Up to {MAX_REASON_CHARS} characters.")
    ] = ""


def _require_every_mailbox(context: CallContext) -> None:
    """Refuse a token for some mailboxes: what a host asks is about a session, and in none of them."""
    if context.caller.mailboxes is not None:
        raise context.caller.refusal("see or answer what hosts ask: that takes one for every mailbox")


async def _approvals(context: CallContext, a: ListApprovals) -> object:
    _require_every_mailbox(context)
    found = await context.approvals.list(context.caller, is_open=not a.all, limit=a.limit)
    await context.approvals.show(found, context.surface)
    return {"approvals": [shapes.approval(each) for each in found]}


async def _approval(context: CallContext, a: GetApproval) -> object:
    _require_every_mailbox(context)
    found = await context.approvals.get(context.caller, a.approval)
    await context.approvals.show([found], context.surface)
    return shapes.approval(found)


async def _approve(context: CallContext, a: Approve) -> object:
    _require_every_mailbox(context)
    asked, through = ApprovalId(a.approval), context.surface
    answered = await context.approvals.answer(
        context.caller, asked, a.choice, digest=a.digest, reason=a.reason, through=through
    )
    return shapes.approval(answered)


APPROVAL_VERBS: Final = (
    Verb("approvals", ListApprovals, _approvals, needs=Grant.APPROVE),
    Verb("approval", GetApproval, _approval, needs=Grant.APPROVE),
    Verb("approve", Approve, _approve, needs=Grant.APPROVE),
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

REPLY_VERBS: Final = (Verb("reply", Reply, _reply, _REPLY_TOOL, needs=Grant.REPLY),)

OUTBOX_VERBS: Final = (
    Verb("outbox", ListOutbox, _outbox, needs=Grant.READ),
    Verb("outbox_retry", RetryReplies, _outbox_retry),
)
