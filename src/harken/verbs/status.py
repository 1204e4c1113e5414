"""The verbs that say how things are: what waits, what happened, how the sources are doing."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from harken.inbox.caller import Grant, Role
from harken.model import timestamp
from harken.verbs import shapes
from harken.verbs.verb import AnyCall, Arguments, CallContext, ToolAnswer, ToolCall, Verb, about, position, tool_of


class Stats(Arguments):
    """Count a consumer's unread messages."""

    consumer: Annotated[str, about("For this consumer (default: you).")] = ""


class Mailboxes(Arguments):
    """Name every mailbox."""


class Evidence(Arguments):
    """Say how deliveries through each surface went lately."""


class Notify(Arguments):
    """Send any notification to a session, to see what its host does with it."""

    session: Annotated[str, about("The session's key.")]
    method: Annotated[str, about("The method of the notification.")]
    params: Annotated[dict[str, Any], about("Its parameters.")] = msgspec.field(default_factory=dict)


class ReadJournal(Arguments):
    """Give events of the journal."""

    after: Annotated[int, position("Only events above this number; -1 for those still to come.")] = 0
    limit: Annotated[int, about("Maximum number.")] = 500


class SourceList(Arguments):
    """Show each source: its state, the last message, counts per channel."""


class Reload(Arguments):
    """Take over config.toml as it is written now, all of it or nothing, and say what changed."""


async def _stats(context: AnyCall, a: Stats) -> dict[str, object]:
    reader = await context.read_as(a.consumer, must_exist=True)
    stats = await context.inbox.stats(reader)
    return {
        "consumer": reader.consumer,
        "depth": stats.depth,
        "dropped_total": stats.dropped_total,
        "oldest_ts": shapes.moment(stats.oldest),
        "unread_by_channel": dict(stats.by_channel),
        "left_out": shapes.omissions(stats.left_out),
    }


async def _inbound_queue_stats(call: ToolCall, a: Stats) -> ToolAnswer:
    found = await _stats(call, a)
    del found["consumer"]  # it is its own
    if sources := call.sources():
        found["sources"] = [shapes.source_standing(each) for each in sources]
    return ToolAnswer(found)


async def _mailboxes(context: CallContext, _a: Mailboxes) -> object:
    own = context.caller.mailboxes
    return {"mailboxes": [each for each in await context.inbox.mailboxes() if own is None or each in own]}


async def _evidence(context: CallContext, _a: Evidence) -> object:
    return {"surfaces": [shapes.surface_record(record) for record in await context.inbox.evidence()]}


async def _notify(context: CallContext, a: Notify) -> object:
    return {"sent": context.inbox.notify(context.caller, a.session, a.method, a.params)}


async def _journal(context: CallContext, a: ReadJournal) -> object:
    if a.after < 0:
        return {"events": [], "last": await context.inbox.last_event()}
    events, is_person = await context.inbox.journal(a.after, a.limit), context.caller.role is Role.OWNER
    lines = [
        {"n": e.n, "at": timestamp(e.at), "kind": e.kind, **e.told}
        | ({"message": shapes.message(e.message)} if e.message else {})
        for e in events
        if (is_person or e.kind != "approval") and (e.message is None or context.may_read(e.message))
    ]
    return {"events": lines, "last": events[-1].n if events else a.after}


async def _source_list(context: CallContext, _a: SourceList) -> object:
    return {"sources": [shapes.source(each) for each in context.sources()]}


async def _reload(context: CallContext, _a: Reload) -> object:
    context.caller.require_owner("change the settings")
    return await context.reload()


_STATS_TOOL: Final = tool_of(
    Stats,
    name="inbound_queue_stats",
    title="Count what waits",
    description=(
        "Returns how many messages wait for this agent, since when, and on which channels; how many it was not "
        "given when it began, because they were older or too many (inbox_search finds them); and how the sources "
        "are doing that messages come from, if there are any."
    ),
    run=_inbound_queue_stats,
    is_read_only=True,
)

STATUS_VERBS: Final = (
    Verb("stats", Stats, _stats, _STATS_TOOL, needs=Grant.READ),
    Verb("mailboxes", Mailboxes, _mailboxes, needs=Grant.READ),
    Verb("evidence", Evidence, _evidence),
    Verb("notify", Notify, _notify),
    Verb("journal", ReadJournal, _journal),
    Verb("source_list", SourceList, _source_list),
    Verb("reload", Reload, _reload),
)
