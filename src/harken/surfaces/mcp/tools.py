"""The tools: what each is for, in the words an agent reads, its arguments, and the use case it calls.

Descriptions describe; they do not command, except where nothing else makes an agent listen. The first content block
of every result is exactly its JSON.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec

from harken import render
from harken.budget import ResultBudget, longest_piece
from harken.errors import UserError
from harken.model import Attention, Consumer, DeliveryId, Offer, fresh_id, timestamp
from harken.surfaces.mcp.task_tools import TASK_TOOLS
from harken.surfaces.mcp.tool import FROM_OUTSIDE, Answer, Call, Tool, cut_note
from harken.verbs import shapes

_LONGEST_NAME = 120  # of a consumer: a task's has most


class InboxPull(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `inbox_pull`."""

    since_id: Annotated[str, msgspec.Meta(description="Only what came after this message id.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, description="At most this many messages whole.")] = 20
    mark_consumed: Annotated[bool, msgspec.Meta(description="False: look without taking.")] = True
    channel: Annotated[str, msgspec.Meta(description="Only this channel, such as teams or ci.")] = ""


class InboxRead(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `inbox_read`."""

    message_id: Annotated[str, msgspec.Meta(description="The message to read.", min_length=1)]
    offset: Annotated[int, msgspec.Meta(ge=0, description="The character to begin with: 0, then `next_offset`.")] = 0


class WaitForInboundMessage(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `wait_for_inbound_message`."""

    timeout_s: Annotated[float, msgspec.Meta(ge=0, description="Seconds to wait; at most 55 are waited.")] = 50
    max_items: Annotated[int, msgspec.Meta(ge=1, description="At most this many messages whole.")] = 10


class InboundQueueStats(msgspec.Struct, forbid_unknown_fields=True):
    """`inbound_queue_stats` has no arguments."""


class Ack(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `ack`."""

    ids: Annotated[list[str], msgspec.Meta(description="Message ids or delivery ids.", min_length=1, max_length=200)]


class Reply(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `reply`."""

    message_id: Annotated[str, msgspec.Meta(description="The message to answer.", min_length=1)]
    body: Annotated[str, msgspec.Meta(description="The answer, as the other side will read it.", min_length=1)]


class InboxSearch(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `inbox_search`."""

    query: Annotated[str, msgspec.Meta(description="Words that the message contains.", min_length=1)]
    limit: Annotated[int, msgspec.Meta(ge=1, description="At most this many messages.")] = 20
    channel: Annotated[str, msgspec.Meta(description="Only this channel.")] = ""


async def _pull(call: Call, arguments: InboxPull) -> Answer:
    budget = ResultBudget(call.result_bytes, render.for_pull, render.cut_for_pull)
    pulled = await call.inbox.pull(
        call.reader,
        limit=arguments.limit,
        since=arguments.since_id,
        channel=arguments.channel,
        consume=arguments.mark_consumed,
        surface="inbox_pull",
        carrier=call.carrier,
        choose=budget,
    )
    call.note(pulled.offers)
    call.note_listed(pulled)
    messages = [*map(render.for_pull, pulled.offers), *map(render.cut_for_pull, pulled.cut)]
    found = {"unread_remaining": pulled.remaining, "messages": messages}
    return Answer(found, pulled.remaining, cut_note(pulled, "inbox_pull"), len(pulled.too_long))


async def _read(call: Call, arguments: InboxRead) -> Answer:
    message, reader = await call.find(arguments.message_id)
    # As it would be if it completed what was given: it must fit then, too.
    longest = Offer(
        message=message,
        delivery_id=DeliveryId(fresh_id("d-")),
        is_repeat=True,
        answered_by=Consumer("x" * _LONGEST_NAME),
    )
    around = partial(render.for_read, unread_from=len(message.text), offer=longest)
    piece = longest_piece(message, arguments.offset, call.result_bytes, around)
    span, coverage = (piece.start, piece.end), call.coverage()
    unread_from = coverage.gap(message.id, len(message.text), span)
    offer = None
    if unread_from is None:
        offer = await call.inbox.hand_over_read(reader, message, surface="inbox_read", carrier=call.carrier)
    call.note([offer] if offer else [])
    # A piece that did not arrive would leave a hole in a text that is called seen.
    call.when_proven(lambda: coverage.add(message.id, span))
    # Of what waits, the message that is being read needs no word.
    itself = () if offer else await call.inbox.waiting(call.reader, frozenset(Attention), 1, only=[message.id])
    note = render.read_line(piece, unread_from)
    return Answer(render.for_read(piece, unread_from, offer), note=note, too_long=len(itself))


async def _wait(call: Call, arguments: WaitForInboundMessage) -> Answer:
    pulled = await call.inbox.wait(
        call.reader,
        timeout_seconds=arguments.timeout_s,
        max_items=arguments.max_items,
        surface="wait_for_inbound_message",
        carrier=call.carrier,
        choose=ResultBudget(call.result_bytes, render.for_wait, render.cut_for_wait),
        listed=call.listed,
    )
    call.note(pulled.offers)
    call.note_listed(pulled)
    messages = [*map(render.for_wait, pulled.offers), *map(render.cut_for_wait, pulled.cut)]
    return Answer(messages, pulled.remaining, cut_note(pulled, "inbox_pull"), len(pulled.too_long))


async def _stats(call: Call, _arguments: InboundQueueStats) -> Answer:
    stats = await call.inbox.stats(call.reader)
    found: dict[str, object] = {
        "depth": stats.depth,
        "dropped_total": stats.dropped_total,
        "oldest_ts": timestamp(stats.oldest) if stats.oldest else None,
        "unread_by_channel": dict(stats.by_channel),
        "left_out": shapes.omissions(stats.left_out),
    }
    if sources := call.sources():
        found["sources"] = [shapes.source_standing(each) for each in sources]
    return Answer(found)


async def _ack(call: Call, arguments: Ack) -> Answer:
    seen = await call.inbox.ack(call.reader, arguments.ids)
    return Answer({"acknowledged": [delivery.message_id for delivery in seen]})


async def _reply(call: Call, arguments: Reply) -> Answer:
    row = await call.inbox.reply(
        call.caller,
        arguments.message_id,
        arguments.body,
        among=call.reader.mailboxes,
        edge=call.edge,
        request=call.request,
    )
    return Answer({"reply_id": row.id, "message_id": row.message.id, "state": row.state})


async def _search(call: Call, arguments: InboxSearch) -> Answer:
    found = await call.inbox.search(
        arguments.query, among=call.reader.mailboxes, limit=arguments.limit, channel=arguments.channel
    )
    budget = ResultBudget(call.result_bytes, render.for_search, render.cut_for_search)
    shown = budget(await call.inbox.shown(found), len(found))
    messages = [*map(render.for_search, shown.whole), *map(render.cut_for_search, shown.cut)]
    return Answer({"messages": messages}, note=render.found_line(len(shown.cut), len(found) - len(messages)))


TOOLS = (
    Tool(
        name="inbox_pull",
        title="Read the inbox",
        description=(
            "Returns messages that people, machines and other agents sent to this agent and that it has not seen yet, "
            "whole as far as they fit; the others have `truncated`, and inbox_read reads those that are too long. "
            f"{FROM_OUTSIDE} Local and quick."
        ),
        arguments=InboxPull,
        run=_pull,
    ),
    Tool(
        name="inbox_read",
        title="Read a long message",
        description=(
            "Returns one message in pieces, for those that are too long for a result: its text from `offset` on, and "
            "the `next_offset`, null at the end. It counts as seen when all pieces were read in one conversation. "
            f"{FROM_OUTSIDE} Local and quick."
        ),
        arguments=InboxRead,
        run=_read,
    ),
    Tool(
        name="wait_for_inbound_message",
        title="Wait for a message",
        description=(
            "Waits until a message for this agent arrives and returns it, or an empty list when the time is over. "
            "Returns at once what arrived meanwhile. What does not fit has `truncated`, and ends one wait only. "
            f"{FROM_OUTSIDE}"
        ),
        arguments=WaitForInboundMessage,
        run=_wait,
        without_hooks="Call it at the end of a substantive turn; if it returns nothing, end the turn.",
    ),
    Tool(
        name="inbound_queue_stats",
        title="Count what waits",
        description=(
            "Returns how many messages wait for this agent, since when, and on which channels; how many it was not "
            "given when it began, because they were older or too many (inbox_search finds them); and how the sources "
            "are doing that messages come from, if there are any."
        ),
        arguments=InboundQueueStats,
        run=_stats,
        is_read_only=True,
    ),
    Tool(
        name="ack",
        title="Mark messages as seen",
        description="Marks messages as seen by this agent, so that they are not offered again.",
        arguments=Ack,
        run=_ack,
    ),
    Tool(
        name="reply",
        title="Answer a message",
        description=(
            "Sends an answer to the conversation a message came from. The sender reads it there, not in this session."
        ),
        arguments=Reply,
        run=_reply,
    ),
    Tool(
        name="inbox_search",
        title="Search messages",
        description=f"Finds stored messages that contain all the given words, newest first. {FROM_OUTSIDE}",
        arguments=InboxSearch,
        run=_search,
        is_read_only=True,
    ),
    *TASK_TOOLS,
)


def find(name: str) -> Tool:
    """Return a tool by name."""
    for tool in TOOLS:
        if tool.name == name:
            return tool
    raise UserError(f"There is no tool {name[:80]!r}.", f"The tools are: {', '.join(tool.name for tool in TOOLS)}.")
