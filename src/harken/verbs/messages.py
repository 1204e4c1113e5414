"""The verbs for messages: sending, finding, taking and answering them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from harken.inbox import Role
from harken.model import DeliveryId, Message
from harken.verbs import questions, shapes
from harken.verbs.verb import Arguments, CallContext, Verb, about, position


class Send(Arguments):
    """Accept a message and say what will happen to it."""

    text: Annotated[str, about("What to say.")]
    sender: Annotated[str, about("Who it is from; you when empty.")] = ""
    channel: Annotated[str, about("The channel it belongs to.")] = ""
    to: Annotated[str, about("The mailbox; routes decide when empty.")] = ""
    priority: Annotated[str, about("high, normal or low.")] = "normal"
    conversation: Annotated[str, about("The conversation it belongs to.")] = ""
    upstream_id: Annotated[str, about("Sent again with the same id it is stored once.")] = ""
    as_file: Annotated[bool, about("To a task: put the text into a file in its folder, and name that.")] = False


class List(Arguments):
    """Show the newest messages."""

    mailbox: Annotated[str, about("Only this mailbox.")] = ""
    channel: Annotated[str, about("Only this channel.")] = ""
    sender: Annotated[str, about("Only from this sender.")] = ""
    before: Annotated[int, position("Only sequence numbers below this.")] = 0
    limit: Annotated[int, about("At most this many.")] = 20


class Read(Arguments):
    """Show a message, its ledger and the replies to it; or a part of a long text."""

    ref: Annotated[str, about("A message id, its beginning, or #seq.")]
    offset: Annotated[Annotated[int, msgspec.Meta(ge=0)] | None, about("Only the text, from this character on.")] = None
    limit: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None,
        about("Only this many characters of the text; to its end when null."),
    ] = None


class Pull(Arguments):
    """Take what is unread."""

    consumer: Annotated[str, about("Read as this consumer; the person, `watch`, when empty.")] = ""
    channel: Annotated[str, about("Only this channel.")] = ""
    since_id: Annotated[str, about("Only what came after this message.")] = ""
    limit: Annotated[int, about("At most this many.")] = 20
    peek: Annotated[bool, about("Look without taking.")] = False


class Wait(Arguments):
    """Take what is unread, waiting for it."""

    consumer: Annotated[str, about("Read as this consumer; the person, `watch`, when empty.")] = ""
    timeout: Annotated[float, about("Seconds to wait; at most 55 are waited.")] = 50
    limit: Annotated[int, about("At most this many.")] = 10


class Prove(Arguments):
    """Say that deliveries were shown."""

    deliveries: Annotated[list[str], about("Delivery ids.")]


class Ack(Arguments):
    """Mark messages as seen."""

    refs: Annotated[list[str], about("Message ids, #seq or delivery ids.")]
    consumer: Annotated[str, about("For this consumer; the person, `watch`, when empty.")] = ""


class Search(Arguments):
    """Find messages that contain all the words, newest first."""

    text: Annotated[str, about("The words.")]
    mailbox: Annotated[str, about("Only this mailbox.")] = ""
    channel: Annotated[str, about("Only this channel.")] = ""
    sender: Annotated[str, about("Only from this sender.")] = ""
    limit: Annotated[int, about("At most this many.")] = 20


async def _send(context: CallContext, a: Send) -> object:
    sent = await context.inbox.send(
        context.caller,
        await context.inbox.write_as_file(context.caller, a.to, a.text) if a.as_file else a.text,
        sender=a.sender,
        channel=a.channel,
        to=a.to,
        priority=a.priority,
        conversation=a.conversation,
        upstream_id=a.upstream_id,
    )
    return shapes.sent(sent)


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
    return await _shown(context, found)


async def _read(context: CallContext, a: Read) -> object:
    if a.offset is not None or a.limit is not None:
        message = await context.message(a.ref)
        return shapes.piece(context.piece(message, a.offset or 0, a.limit or len(message.text)))
    found = await context.inbox.read((await context.message(a.ref)).id)
    return {**shapes.details(found), "question": await questions.standing_of(context, found.message.id)}


async def _pull(context: CallContext, a: Pull) -> object:
    reader = await context.reader(a.consumer, must_exist=a.peek)
    pulled = await context.inbox.pull(
        reader,
        limit=a.limit,
        since=a.since_id,
        channel=a.channel,
        consume=not a.peek,
        surface="pull",
        carrier=context.request,
        choose=context.budget(shapes.offer, shapes.cut_offer),
    )
    context.note_listed(pulled)
    return shapes.pulled(pulled)


async def _wait(context: CallContext, a: Wait) -> object:
    reader = await context.reader(a.consumer)
    pulled = await context.inbox.wait(
        reader,
        timeout_seconds=a.timeout,
        max_items=a.limit,
        surface="wait",
        carrier=context.request,
        choose=context.budget(shapes.offer, shapes.cut_offer),
        listed=context.listed,
    )
    context.note_listed(pulled)
    return shapes.pulled(pulled)


async def _prove(context: CallContext, a: Prove) -> object:
    named = [DeliveryId(item) for item in a.deliveries]
    # An agent proves its own; a person may have pulled as any consumer.
    only = context.caller.consumer if context.caller.role is Role.AGENT else None
    seen = await context.inbox.prove(named, "shown", consumer=only)
    return {"seen": [delivery.message_id for delivery in seen]}


async def _ack(context: CallContext, a: Ack) -> object:
    seen = await context.inbox.ack(await context.reader(a.consumer), a.refs)
    return {"acknowledged": [delivery.message_id for delivery in seen]}


async def _search(context: CallContext, a: Search) -> object:
    found = await context.inbox.search(
        a.text,
        mailbox=a.mailbox,
        among=context.among(a.mailbox),
        channel=a.channel,
        sender=a.sender,
        limit=a.limit,
    )
    return await _shown(context, found)


MESSAGE_VERBS: Final = (
    Verb("send", Send, _send),
    Verb("list", List, _list),
    Verb("read", Read, _read),
    Verb("pull", Pull, _pull),
    Verb("wait", Wait, _wait),
    Verb("prove", Prove, _prove),
    Verb("ack", Ack, _ack),
    Verb("search", Search, _search),
)
