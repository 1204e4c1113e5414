"""The verbs for what the person sorts: conversations that are done, put off, or to be read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec

from harken.errors import UserError
from harken.inbox.conversations import LONGEST_SNOOZE, MAX_LISTED, ConversationSummary, TriageResult
from harken.verbs import shapes
from harken.verbs.verb import Arguments, CallContext, Verb, about, position

_NAMED: Final = about("The newest message of each that you know of; one with something newer stays in your list.")


class ListConversations(Arguments):
    """Show conversations, newest first: chats, threads, pull requests, alerts with their repeats."""

    view: Annotated[str, about("Which: `open`, `unread`, `for-you`, `snoozed`, `done` or `sent`.")] = "open"
    limit: Annotated[int, about(f"Maximum number, up to {MAX_LISTED}.")] = 20
    before: Annotated[int, position("Only conversations older than this position (from --json).")] = 0


class FinishConversations(Arguments):
    """Mark conversations as done: they leave your list until somebody writes in them. Agents are not affected."""

    refs: Annotated[list[str], _NAMED]


class SnoozeConversations(Arguments):
    """Snooze conversations, for three hours by default. A new message brings one back earlier."""

    refs: Annotated[list[str], _NAMED]
    seconds: Annotated[
        Annotated[float, msgspec.Meta(gt=0, le=LONGEST_SNOOZE.total_seconds())] | None, about("For this long.")
    ] = None
    until: Annotated[str, about("Until this time, as `2026-01-05T09:00:00Z`.")] = ""


class ReopenConversations(Arguments):
    """Put conversations back into your list (undoes `done` and `snooze`)."""

    refs: Annotated[list[str], about("A message of each.")]


class MarkConversations(Arguments):
    """Mark conversations as unread."""

    refs: Annotated[list[str], about("A message of each.")]
    is_read: Annotated[bool, about("Mark them as read instead.", flag="--read")] = False


async def _conversations(context: CallContext, a: ListConversations) -> object:
    context.caller.require_owner("look at how you sort your conversations")
    found = await context.conversations.list(a.view, before=a.before, limit=a.limit)
    counts = await context.conversations.counts()
    return {
        "conversations": [conversation(each) for each in found],
        "counts": {state.value: count for state, count in counts.by_state.items()},
    }


async def _done(context: CallContext, a: FinishConversations) -> object:
    return _triaged(await context.conversations.done(context.caller, a.refs))


async def _snooze(context: CallContext, a: SnoozeConversations) -> object:
    until = _moment(a.until) if a.until else None
    return _triaged(await context.conversations.snooze(context.caller, a.refs, seconds=a.seconds, until=until))


async def _reopen(context: CallContext, a: ReopenConversations) -> object:
    return _triaged(await context.conversations.reopen(context.caller, a.refs))


async def _unread(context: CallContext, a: MarkConversations) -> object:
    found = await context.conversations.mark(context.caller, a.refs, is_unread=not a.is_read)
    return {"conversations": [conversation(each) for each in found]}


def conversation(value: ConversationSummary) -> dict[str, object]:
    """Return a conversation as people and programs are told of it."""
    return {
        "source": value.key.source,
        "thread": value.key.thread,
        "count": value.count,
        "unread": value.unread,
        "is_unread": bool(value.unread or value.is_marked),
        "is_asked": value.is_asked,
        "state": value.state.value,
        "until": shapes.moment(value.until),
        "position": value.position,
        "newest": shapes.message(value.newest),
    }


def _triaged(found: Sequence[TriageResult]) -> Mapping[str, object]:
    return {
        "conversations": [
            {
                "message_id": each.message,
                "newest_id": each.now.newest.id,
                "state": each.now.state.value,
                "until": shapes.moment(each.now.until),
                "was": each.was.state.value,
                "was_until": shapes.moment(each.was.until),
            }
            for each in found
        ]
    }


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as exc:
        raise UserError(f"{text[:40]!r} is not a time.", "Write it with its time zone: 2026-01-05T09:00:00Z.") from exc
    if found.tzinfo is None:
        raise UserError(f"{text[:40]!r} has no time zone.", "Write it with its time zone: 2026-01-05T09:00:00Z.")
    return found


CONVERSATION_VERBS: Final = (
    Verb("conversations", ListConversations, _conversations),
    Verb("done", FinishConversations, _done),
    Verb("snooze", SnoozeConversations, _snooze),
    Verb("reopen", ReopenConversations, _reopen),
    Verb("unread", MarkConversations, _unread),
)
