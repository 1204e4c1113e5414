"""The verbs for replies on their way out. Like those in `calls`: one table for the socket and the HTTP API."""

from __future__ import annotations

from typing import Annotated

from harken.surfaces import shapes
from harken.surfaces.desk import Arguments, Desk, Verb, about


class ListOutbox(Arguments):
    """Show replies that have not left, or those of one state, the newest first."""

    state: Annotated[str, about("`queued`, `parked` or `sent`; what has not left when empty.")] = ""


class RetryReplies(Arguments):
    """Try replies that could not be sent once more."""

    replies: Annotated[list[str], about("The ids of the replies.")]
    is_unsent: Annotated[bool, about("You have looked, and none of them was sent.")] = False


async def _outbox(desk: Desk, a: ListOutbox) -> object:
    rows = await desk.replies.list(a.state)
    return {"replies": [shapes.reply(row) for row in rows if desk.may_read(row.message)]}


async def _outbox_retry(desk: Desk, a: RetryReplies) -> object:
    rows = await desk.replies.retry(desk.caller, a.replies, is_unsent=a.is_unsent)
    return {"replies": [shapes.reply(row) for row in rows]}


OUTBOX_VERBS: tuple[tuple[str, Verb], ...] = (
    ("outbox", Verb(ListOutbox, _outbox)),
    ("outbox_retry", Verb(RetryReplies, _outbox_retry)),
)
