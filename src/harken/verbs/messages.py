"""The verbs for messages: sending, finding, taking and answering them; and for channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Final, Literal

import msgspec

from harken import render
from harken.budget import ResultBudget, longest_piece
from harken.errors import NotFound
from harken.inbox.caller import DeliveryTime, Grant, Role
from harken.inbox.channels import MAX_FOR_AGENTS, MAX_LISTED, MAX_SHOWN
from harken.inbox.inbox import MAX_OFFER, MAX_PAGE
from harken.inbox.results import PullResult
from harken.model import Attention, Consumer, DeliveryId, Message, MessageId, Offer, ScheduledMessage, fresh_id
from harken.sessions.session import Coverage
from harken.verbs import shapes
from harken.verbs.verb import (
    AT,
    FROM_OUTSIDE,
    WHEN,
    AgentTool,
    AnyCall,
    Arguments,
    CallContext,
    MessageForms,
    ToolAnswer,
    ToolArgument,
    ToolCall,
    Verb,
    about,
    cut_note,
    plain,
    position,
    tool_of,
)

_AT_MOST_SHOWN: Final = about(f"Maximum number, up to {MAX_PAGE}.")
_AT_MOST_TAKEN: Final = about(f"Maximum number, up to {MAX_OFFER}.")
_READS_AS: Final = about("Read as this consumer (default: you).")
_LONGEST_NAME: Final = 120  # of a consumer: a task's has most


class Send(Arguments):
    """Send a message, and see what will happen to it."""

    text: Annotated[str, about("What to say.")]
    sender: Annotated[str | None, about("The sender (default: you).", flag="--from")] = None
    channel: Annotated[str, about("The channel.")] = ""
    to: Annotated[str, about("The mailbox (default: decided by routes).")] = ""
    priority: Annotated[str, about("high, normal or low.")] = "normal"
    conversation: Annotated[str, about("The conversation it belongs to.")] = ""
    upstream_id: Annotated[str, about("Your own id; a message with the same id is stored once.", flag="--id")] = ""
    as_file: Annotated[bool, about("For a task: save the text as a file in its folder, and send its name.")] = False
    at: Annotated[str, AT] = ""
    when: Annotated[str, WHEN] = ""


class Unsend(Arguments):
    """Withdraw a message that waits for its time: no agent ever hears of it."""

    ref: Annotated[str, about("Its id, as `send` and `list` show it, or the beginning of it.")]


class List(Arguments):
    """Show the newest messages, newest last."""

    mailbox: Annotated[str, about("Only this mailbox.")] = ""
    channel: Annotated[str, about("Only this channel.")] = ""
    sender: Annotated[str, about("Only from this sender.")] = ""
    before: Annotated[int, position("Only sequence numbers below this.")] = 0
    limit: Annotated[int, _AT_MOST_SHOWN] = 20


class Read(Arguments):
    """Show a message, who has read it, and the replies; or part of a long text."""

    ref: Annotated[str, about("A message id, its beginning, or #seq.")]
    offset: Annotated[Annotated[int, msgspec.Meta(ge=0)] | None, about("Only the text, from this character on.")] = None
    limit: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None, about("Only this many characters of the text; else to its end.")
    ] = None


class Pull(Arguments):
    """Take unread messages."""

    consumer: Annotated[str, _READS_AS] = ""
    channel: Annotated[str, about("Only this channel.")] = ""
    since_id: Annotated[str, about("Only what came after this message.")] = ""
    limit: Annotated[int, _AT_MOST_TAKEN] = 20
    peek: Annotated[bool, about("Look without taking.")] = False


class Wait(Arguments):
    """Wait for unread messages, and take them."""

    consumer: Annotated[str, _READS_AS] = ""
    timeout: Annotated[float, about("Seconds to wait; at most 55 are waited.")] = 50
    limit: Annotated[int, _AT_MOST_TAKEN] = 10


class Prove(Arguments):
    """Say that deliveries were shown."""

    deliveries: Annotated[list[str], about("Delivery ids.")]


class Ack(Arguments):
    """Mark messages as seen without taking them."""

    refs: Annotated[list[str], about("Message ids, #seq or delivery ids.")]
    consumer: Annotated[str, about("For this consumer (default: you).")] = ""


class Search(Arguments):
    """Find messages that contain all the words, newest first."""

    text: Annotated[str, about("The words.")]
    mailbox: Annotated[str, about("Only this mailbox.")] = ""
    channel: Annotated[str, about("Only this channel.")] = ""
    sender: Annotated[str, about("Only from this sender.")] = ""
    limit: Annotated[int, _AT_MOST_SHOWN] = 20


async def _send(context: CallContext, a: Send) -> object:
    sent = await context.inbox.send_at(
        DeliveryTime(a.at, a.when),
        context.caller,
        await context.inbox.write_as_file(context.caller, a.to, a.text) if a.as_file else a.text,
        sender=a.sender,
        channel=a.channel,
        to=a.to,
        priority=a.priority,
        conversation=a.conversation,
        upstream_id=a.upstream_id,
    )
    return sent.as_json()


def _scheduled(context: CallContext, value: ScheduledMessage) -> dict[str, object]:
    return shapes.scheduled(value, context.inbox.outlook_of(value))


async def _unsend(context: CallContext, a: Unsend) -> object:
    return _scheduled(context, await context.inbox.unsend(context.caller, a.ref))


async def _shown(context: CallContext, messages: Sequence[Message]) -> object:
    seen = await context.inbox.seen_by(messages)
    return {"messages": [shapes.message(item, seen[item.id]) for item in messages]}


async def _list(context: CallContext, a: List) -> object:
    found = await context.inbox.list(
        mailbox=a.mailbox,
        among=context.among(a.mailbox),
        channel=a.channel,
        sender=a.sender,
        before=a.before,
        limit=a.limit,
    )
    seen = await context.inbox.seen_by(found)
    shown = [shapes.message(item, seen[item.id]) for item in found]
    return {"messages": shown, "scheduled": await _listed_scheduled(context, a)}


async def _listed_scheduled(context: CallContext, a: List) -> Sequence[object]:
    """Return what waits for its time and fits; an agent hears of nothing before."""
    if context.caller.role is Role.AGENT or a.before:
        return ()
    return [
        _scheduled(context, each)
        for each in await context.inbox.scheduled(a.mailbox)
        if a.channel in ("", each.message.channel)
        and a.sender in ("", each.message.sender.id, each.message.sender.name)
    ]


async def _question_state(context: CallContext, message: MessageId) -> dict[str, object] | None:
    """Return how far a message got as a question; None for one that waits for no answer."""
    found = await context.questions.of([message])
    return shapes.question_state(found[0], context.questions.how_long(found[0])) if found else None


async def _find(context: CallContext, ref: str) -> Message | ScheduledMessage:
    """Return a message that the caller may read, also one that waits for its time."""
    try:
        return await context.message(ref)
    except NotFound as unknown:
        try:
            return await context.inbox.find_scheduled(context.caller, ref)
        except NotFound:
            raise unknown from None


async def _read(context: CallContext, a: Read) -> object:
    found = await _find(context, a.ref)
    scheduled = found if isinstance(found, ScheduledMessage) else None
    message = found.message if isinstance(found, ScheduledMessage) else found
    if a.offset is not None or a.limit is not None:
        return shapes.piece(context.piece(message, a.offset or 0, a.limit or len(message.text), shapes.piece))
    if scheduled:
        queued = shapes.details(await context.inbox.read_scheduled(scheduled))
        return {**queued, "question": None, "rules": [], "scheduled": _scheduled(context, scheduled)["scheduled"]}
    details = await context.inbox.read(message.id)
    rules = [shapes.verdict(*each) for each in await context.automation.decided(message.id)]
    question = await _question_state(context, message.id)
    return {**shapes.details(details), "question": question, "rules": rules, "scheduled": None}


PULL_FORMS: Final = MessageForms(json=(shapes.offer, shapes.cut_offer), tool=(render.for_pull, render.cut_for_pull))
WAIT_FORMS: Final = MessageForms(json=(shapes.offer, shapes.cut_offer), tool=(render.for_wait, render.cut_for_wait))


async def pull(context: AnyCall, a: Pull) -> PullResult:
    """Take unread messages."""
    pulled = await context.inbox.pull(
        await context.read_as(a.consumer, must_exist=a.peek),
        limit=a.limit,
        since=a.since_id,
        channel=a.channel,
        consume=not a.peek,
        surface=context.surface_of("pull"),
        carrier=context.carrier,
        choose=context.budget(PULL_FORMS),
    )
    context.took(pulled)
    return pulled


async def _pull(context: CallContext, a: Pull) -> object:
    return shapes.pulled(await pull(context, a))


async def _inbox_pull(call: ToolCall, a: Pull) -> ToolAnswer:
    pulled = await pull(call, a)
    messages = [*map(render.for_pull, pulled.offers), *map(render.cut_for_pull, pulled.cut)]
    found = {"unread_remaining": pulled.remaining, "messages": messages}
    return ToolAnswer(found, pulled.remaining, cut_note(pulled, call.tool), len(pulled.too_long))


async def wait(context: AnyCall, a: Wait) -> PullResult:
    """Wait for unread messages, and take them."""
    pulled = await context.inbox.wait(
        await context.read_as(a.consumer),
        timeout_seconds=a.timeout,
        max_items=a.limit,
        surface=context.surface_of("wait"),
        carrier=context.carrier,
        choose=context.budget(WAIT_FORMS),
        listed=context.listed,
    )
    context.took(pulled)
    return pulled


async def _wait(context: CallContext, a: Wait) -> object:
    return shapes.pulled(await wait(context, a))


async def _wait_for_inbound_message(call: ToolCall, a: Wait) -> ToolAnswer:
    pulled = await wait(call, a)
    messages = [*map(render.for_wait, pulled.offers), *map(render.cut_for_wait, pulled.cut)]
    return ToolAnswer(messages, pulled.remaining, cut_note(pulled, "inbox_pull"), len(pulled.too_long))


async def _inbox_read(call: ToolCall, a: Read) -> ToolAnswer:
    message, reader = await call.find(a.ref)
    # As it would be if it completed what was given: it must fit then, too.
    longest = Offer(
        message=message,
        delivery_id=DeliveryId(fresh_id("d-")),
        is_repeat=True,
        answered_by=Consumer("x" * _LONGEST_NAME),
    )
    around = partial(render.for_read, unread_from=len(message.text), offer=longest)
    piece = longest_piece(message, a.offset or 0, call.result_bytes, around)
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
    return ToolAnswer(render.for_read(piece, unread_from, offer), note=note, too_long=len(itself))


async def _prove(context: CallContext, a: Prove) -> object:
    named = [DeliveryId(item) for item in a.deliveries]
    # An agent proves its own; a person may have pulled as any consumer.
    only = context.caller.consumer if context.caller.role is Role.AGENT else None
    seen = await context.inbox.proofs.prove(named, "shown", consumer=only)
    return {"seen": [delivery.message_id for delivery in seen]}


async def _ack(context: AnyCall, a: Ack) -> object:
    seen = await context.inbox.ack(await context.read_as(a.consumer), a.refs)
    return {"acknowledged": [delivery.message_id for delivery in seen]}


async def search(context: AnyCall, a: Search) -> Sequence[Message]:
    """Find messages that contain all the words."""
    return await context.inbox.search(
        a.text,
        mailbox=a.mailbox,
        among=context.among(a.mailbox),
        channel=a.channel,
        sender=a.sender,
        limit=a.limit,
    )


async def _search(context: CallContext, a: Search) -> object:
    return await _shown(context, await search(context, a))


async def _inbox_search(call: ToolCall, a: Search) -> ToolAnswer:
    found = await search(call, a)
    budget = ResultBudget(call.result_bytes, render.for_search, render.cut_for_search)
    shown = budget(await call.inbox.shown(found), len(found))
    messages = [*map(render.for_search, shown.whole), *map(render.cut_for_search, shown.cut)]
    return ToolAnswer({"messages": messages}, note=render.found_line(len(shown.cut), len(found) - len(messages)))


_PULL_TOOL: Final = tool_of(
    Pull,
    ToolArgument(name="since_id", description="Only what came after this message id."),
    ToolArgument(name="limit", description="At most this many messages whole.", bounds={"ge": 1}),
    ToolArgument(name="mark_consumed", description="False: look without taking.", of="peek", is_opposite=True),
    ToolArgument(name="channel", description="Only this channel, such as teams or ci."),
    name="inbox_pull",
    title="Read the inbox",
    description=(
        "Returns messages that people, machines and other agents sent to this agent and that it has not seen yet, "
        "whole as far as they fit; the others have `truncated`, and inbox_read reads those that are too long. "
        f"{FROM_OUTSIDE} Local and quick."
    ),
    run=_inbox_pull,
)
_READ_TOOL: Final = tool_of(
    Read,
    ToolArgument(name="message_id", description="The message to read.", of="ref", bounds={"min_length": 1}),
    ToolArgument(
        name="offset",
        description="The character to begin with: 0, then `next_offset`.",
        kind=int,
        default=0,
        bounds={"ge": 0},
    ),
    name="inbox_read",
    title="Read a long message",
    description=(
        "Returns one message in pieces, for those that are too long for a result: its text from `offset` on, and "
        "the `next_offset`, null at the end. It counts as seen when all pieces were read in one conversation. "
        f"{FROM_OUTSIDE} Local and quick."
    ),
    run=_inbox_read,
)
_WAIT_TOOL: Final = tool_of(
    Wait,
    ToolArgument(
        name="timeout_s", description="Seconds to wait; at most 55 are waited.", of="timeout", bounds={"ge": 0}
    ),
    ToolArgument(name="max_items", description="At most this many messages whole.", of="limit", bounds={"ge": 1}),
    name="wait_for_inbound_message",
    title="Wait for a message",
    description=(
        "Waits until a message for this agent arrives and returns it, or an empty list when the time is over. "
        "Returns at once what arrived meanwhile. What does not fit has `truncated`, and ends one wait only. "
        f"{FROM_OUTSIDE}"
    ),
    run=_wait_for_inbound_message,
    without_hooks="Call it at the end of a substantive turn; if it returns nothing, end the turn.",
)
_ACK_TOOL: Final = tool_of(
    Ack,
    ToolArgument(
        name="ids",
        description="Message ids or delivery ids.",
        of="refs",
        bounds={"min_length": 1, "max_length": 200},
    ),
    name="ack",
    title="Mark messages as seen",
    description="Marks messages as seen by this agent, so that they are not offered again.",
    run=plain(_ack),
)
_SEARCH_TOOL: Final = tool_of(
    Search,
    ToolArgument(name="query", description="Words that the message contains.", of="text", bounds={"min_length": 1}),
    ToolArgument(name="limit", description="At most this many messages.", bounds={"ge": 1}),
    ToolArgument(name="channel", description="Only this channel."),
    name="inbox_search",
    title="Search messages",
    description=f"Finds stored messages that contain all the given words, newest first. {FROM_OUTSIDE}",
    run=_inbox_search,
    is_read_only=True,
)

MESSAGE_VERBS: Final = (
    Verb("send", Send, _send, needs=Grant.SEND),
    Verb("unsend", Unsend, _unsend, needs=Grant.SEND),
    Verb("list", List, _list, needs=Grant.READ),
    Verb("read", Read, _read, _READ_TOOL, needs=Grant.READ),
    Verb("pull", Pull, _pull, _PULL_TOOL, needs=Grant.READ),
    Verb("wait", Wait, _wait, _WAIT_TOOL, needs=Grant.READ),
    Verb("prove", Prove, _prove, needs=Grant.READ),
    Verb("ack", Ack, _ack, _ACK_TOOL, needs=Grant.READ),
    Verb("search", Search, _search, _SEARCH_TOOL, needs=Grant.READ),
)


_OF_SOURCE: Final = about("The source, if several have the channel.")


class ListChannels(Arguments):
    """Show the channels that have messages, the last active first."""

    limit: Annotated[int, about(f"Maximum number, up to {MAX_LISTED}.")] = 20


class ShowChannel(Arguments):
    """Show the newest messages of one channel, or of all, newest last."""

    channel: Annotated[str, about("The channel; all of them when empty.")] = ""
    source: Annotated[str, _OF_SOURCE] = ""
    limit: Annotated[int, about(f"Maximum number, up to {MAX_SHOWN}.")] = 20


class AckChannel(Arguments):
    """Mark the messages of one channel, or of all, as seen by you."""

    channel: Annotated[str, about("The channel; all of them when empty.")] = ""
    source: Annotated[str, _OF_SOURCE] = ""


class InjectChannel(Arguments):
    """Pass the 10 newest channel messages to an agent, between two tool calls or with its next prompt."""

    channel: Annotated[str, about("Of this channel; of all that go with prompts when empty.")] = ""
    source: Annotated[str, _OF_SOURCE] = ""
    to: Annotated[str, about("The mailbox (default: `inbox`).")] = ""
    key: Annotated[str, about("Asked again with the same key it is done once.")] = ""


class ClearChannel(Arguments):
    """Hide a channel's current messages from channels and prompts. You can still list and search them."""

    channel: Annotated[str, about("The channel.")] = ""
    source: Annotated[str, _OF_SOURCE] = ""
    all: Annotated[bool, about("All channels.")] = False


async def _channels(context: CallContext, a: ListChannels) -> object:
    cards = await context.channels.list(a.limit)
    # That there is a channel is no secret on this machine; what was said there last may not be for this agent.
    shown = [card if card.newest and context.may_read(card.newest) else replace(card, newest=None) for card in cards]
    is_elsewhere = context.caller.mailboxes is not None
    return {"channels": [shapes.channel(card) for card in shown if card.newest or not is_elsewhere]}


async def _channel(context: CallContext, a: ShowChannel) -> object:
    found = await context.channels.show(a.channel, a.source, a.limit, among=context.among())
    seen = await context.inbox.seen_by(found)
    return {
        "messages": [shapes.message(item, seen[item.id]) for item in found],
        "cleared": 0 if context.caller.mailboxes else await context.channels.cleared_count(a.channel, a.source),
    }


async def _channel_ack(context: CallContext, a: AckChannel) -> object:
    seen = await context.channels.have_seen(context.caller, a.channel, a.source)
    return {
        "acknowledged": seen.count,
        "channels": [{"source": line.source, "channel": line.channel} for line in seen.channels],
    }


async def _channel_clear(context: CallContext, a: ClearChannel) -> object:
    cleared = await context.channels.clear(context.caller, a.channel, a.source, is_all=a.all)
    return {
        "cleared": sum(each.count for each in cleared),
        "channels": [{"source": each.source, "channel": each.channel, "count": each.count} for each in cleared],
    }


async def _channel_inject(context: CallContext, a: InjectChannel) -> object:
    context.caller.require_owner("inject channel messages")
    messages = await context.channels.to_inject(a.channel, a.source)
    sent = await context.channels.inject(context.caller, render.injected(messages), to=a.to, key=a.key)
    return {**sent.as_json(), "injected": [message.id for message in messages]}


class AgentChannels(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of the tool `channels`."""

    action: Annotated[
        Literal["list", "unread", "ack"],
        msgspec.Meta(
            description="list: the newest. unread: what waits, oldest first. ack: marks what was given.",
            extra_json_schema={"type": "string"},
        ),
    ] = "list"
    channel: Annotated[str, msgspec.Meta(description="Only this channel, such as ci.")] = ""
    limit: Annotated[int, msgspec.Meta(description="At most this many messages whole.", ge=1, le=MAX_FOR_AGENTS)] = 10


def _cover(coverage: Coverage, messages: Sequence[Message]) -> None:
    for message in messages:
        coverage.add(message.id, (0, len(message.text)))


async def _agent_channels(call: ToolCall, a: AgentChannels) -> ToolAnswer:
    mail, coverage = await call.channels.mail_of(call.reader, a.channel), call.coverage()
    if a.action == "ack":
        waiting = [message for message in mail.messages if message.id in mail.unread]
        # What the conversation was not given it cannot have seen, such as what came after it looked.
        given = [m.id for m in waiting if coverage.gap(m.id, len(m.text), (0, 0)) is None]
        await call.channels.acknowledge(call.reader, given)
        left = len(waiting) - len(given)
        return ToolAnswer({"acknowledged": given, "unread": left}, note=render.channels_left_line(left))
    is_news = a.action == "unread"
    found = [message for message in mail.messages if message.id in mail.unread] if is_news else mail.messages[::-1]
    whole = partial(render.for_channels, unread=mail.unread)
    cut = partial(render.cut_for_channels, unread=mail.unread)
    shown = ResultBudget(call.result_bytes, whole, cut)(await call.inbox.shown(found), a.limit)
    call.when_proven(partial(_cover, coverage, [offer.message for offer in shown.whole]))
    value = {"unread": len(mail.unread), "messages": [*map(whole, shown.whole), *map(cut, shown.cut)]}
    left = len(found) - len(shown.whole) - len(shown.cut) if is_news else 0
    return ToolAnswer(value, note=render.channels_line(len(shown.cut), left))


_CHANNELS_TOOL: Final = AgentTool(
    name="channels",
    title="Look at channels",
    description=(
        "Shows what machines and chats announced on channels that this agent reads: the newest, or what it has not "
        "seen, among the newest 50. Looking changes nothing; `ack` marks as seen by this agent what `list` and "
        f"`unread` gave whole in this conversation. {FROM_OUTSIDE} Local and quick."
    ),
    arguments=AgentChannels,
    run=_agent_channels,
)

CHANNEL_VERBS: Final = (
    Verb("channels", ListChannels, _channels, _CHANNELS_TOOL, needs=Grant.READ),
    Verb("channel", ShowChannel, _channel, needs=Grant.READ),
    Verb("channel_ack", AckChannel, _channel_ack),
    Verb("channel_clear", ClearChannel, _channel_clear),
    Verb("channel_inject", InjectChannel, _channel_inject),
)
