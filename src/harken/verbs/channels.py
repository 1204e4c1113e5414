"""The verbs for channels."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from harken import render
from harken.verbs import shapes
from harken.verbs.verb import Arguments, CallContext, Verb, about

_OF_SOURCE: Final = about("Only that of this source.", command="Of this source, when several have the channel.")


class ListChannels(Arguments):
    """Show the channels that messages came through, the last active first."""

    limit: Annotated[int, about("At most this many.")] = 20


class ShowChannel(Arguments):
    """Show the newest messages of a channel."""

    channel: Annotated[str, about("The channel.")]
    source: Annotated[str, _OF_SOURCE] = ""
    limit: Annotated[int, about("At most this many.")] = 20


class AckChannel(Arguments):
    """Mark what is in a channel, or in all of them, as seen by the person."""

    channel: Annotated[str, about("The channel; all of them when empty.")] = ""
    source: Annotated[str, _OF_SOURCE] = ""


class InjectChannel(Arguments):
    """Hand the 10 most recent channel messages to an agent: between two tool calls, or with its next prompt."""

    channel: Annotated[str, about("Of this channel; of all that go with prompts when empty.")] = ""
    source: Annotated[str, _OF_SOURCE] = ""
    to: Annotated[str, about("The mailbox; `inbox` when empty.", command="The mailbox; else inbox.")] = ""
    key: Annotated[str, about("Asked again with the same key it is done once.")] = ""


async def _channels(context: CallContext, a: ListChannels) -> object:
    cards = await context.channels.list(a.limit)
    # That there is a channel is no secret; what was said there last may not be for this agent.
    shown = [card if card.newest and context.may_read(card.newest) else replace(card, newest=None) for card in cards]
    return {"channels": [shapes.channel(card) for card in shown]}


async def _channel(context: CallContext, a: ShowChannel) -> object:
    found = [each for each in await context.channels.show(a.channel, a.source, a.limit) if context.may_read(each)]
    seen = await context.inbox.seen_by(found)
    return {"messages": [shapes.message(item, seen[item.id]) for item in found]}


async def _channel_ack(context: CallContext, a: AckChannel) -> object:
    seen = await context.channels.have_seen(context.caller, a.channel, a.source)
    return {
        "acknowledged": seen.count,
        "channels": [{"source": line.source, "channel": line.channel} for line in seen.channels],
    }


async def _channel_inject(context: CallContext, a: InjectChannel) -> object:
    context.caller.require_owner("inject channel messages")
    messages = await context.channels.to_inject(a.channel, a.source)
    sent = await context.channels.inject(context.caller, render.injected(messages), to=a.to, key=a.key)
    return {**shapes.sent(sent), "injected": [message.id for message in messages]}


CHANNEL_VERBS: Final = (
    Verb("channels", ListChannels, _channels),
    Verb("channel", ShowChannel, _channel),
    Verb("channel_ack", AckChannel, _channel_ack),
    Verb("channel_inject", InjectChannel, _channel_inject),
)
