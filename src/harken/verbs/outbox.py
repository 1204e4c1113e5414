"""The verbs for replies on their way out."""

from __future__ import annotations

from typing import Annotated, Final

from harken.verbs import shapes
from harken.verbs.verb import Arguments, CallContext, Verb, about


class Reply(Arguments):
    """Answer a message where it came from."""

    ref: Annotated[str, about("The message.")]
    body: Annotated[str, about("The answer.")]
    key: Annotated[str, about("Sent again with the same key it is done once.")] = ""


class ListOutbox(Arguments):
    """Show replies that have not left, or those of one state, the newest first."""

    state: Annotated[str, about("`queued`, `parked` or `sent`; what has not left when empty.")] = ""


class RetryReplies(Arguments):
    """Try replies that could not be sent once more."""

    replies: Annotated[list[str], about("The ids of the replies.")]
    is_unsent: Annotated[bool, about("You have looked, and none of them was sent.")] = False


async def _reply(context: CallContext, a: Reply) -> object:
    row = await context.inbox.reply(
        context.caller,
        a.ref,
        a.body,
        # A run may answer what it is about, wherever that is.
        among=None if context.caller.is_run else context.among(),
        edge="cli" if a.key else "",
        request=a.key,
    )
    return {"reply_id": row.id, "message_id": row.message.id, "state": row.state}


async def _outbox(context: CallContext, a: ListOutbox) -> object:
    rows = await context.replies.list(a.state)
    return {"replies": [shapes.reply(row) for row in rows if context.may_read(row.message)]}


async def _outbox_retry(context: CallContext, a: RetryReplies) -> object:
    rows = await context.replies.retry(context.caller, a.replies, is_unsent=a.is_unsent)
    return {"replies": [shapes.reply(row) for row in rows]}


REPLY_VERBS: Final = (Verb("reply", Reply, _reply),)

OUTBOX_VERBS: Final = (
    Verb("outbox", ListOutbox, _outbox),
    Verb("outbox_retry", RetryReplies, _outbox_retry),
)
