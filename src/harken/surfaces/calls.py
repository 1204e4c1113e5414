"""The verbs for people: one table for the command line's socket and the HTTP API.

A verb is a name, its arguments, and the use case it calls. Both surfaces parse with the same structs and give the
same errors, so neither has an `if` that the other would also need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from harken.errors import UserError
from harken.inbox import Role
from harken.memory import out_of_memory
from harken.model import DeliveryId, Message, timestamp
from harken.surfaces import question_calls, reaction_shapes, shapes
from harken.surfaces.browser_calls import BROWSER_VERBS
from harken.surfaces.channel_calls import CHANNEL_VERBS
from harken.surfaces.desk import Arguments, Desk, Verb, about, position
from harken.surfaces.keeping_calls import KEEPING_VERBS
from harken.surfaces.outbox_calls import OUTBOX_VERBS
from harken.surfaces.rule_calls import RULE_VERBS
from harken.surfaces.task_calls import TASK_VERBS

_LONGEST_MUTE_SECONDS = 10 * 365 * 86_400.0


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


class Stats(Arguments):
    """Count what waits."""

    consumer: Annotated[str, about("For this consumer; the person, `watch`, when empty.")] = ""


class Mailboxes(Arguments):
    """Name every mailbox."""


class Evidence(Arguments):
    """Say how deliveries through each surface went lately."""


class Notify(Arguments):
    """Send any notification to a session, to see what its host does with it."""

    session: Annotated[str, about("The session's key.")]
    method: Annotated[str, about("The method of the notification.")]
    params: Annotated[dict[str, Any], about("Its parameters.")] = msgspec.field(default_factory=dict)


class Journal(Arguments):
    """Give events of the journal."""

    after: Annotated[int, position("Only events above this number; -1 for those still to come.")] = 0
    limit: Annotated[int, about("At most this many.")] = 500


class SourceList(Arguments):
    """Say how every configured source is doing."""


class GetStatus(Arguments):
    """Show daemon, sessions, consumers, what waits and what is parked."""


class Reply(Arguments):
    """Answer a message where it came from."""

    ref: Annotated[str, about("The message.")]
    body: Annotated[str, about("The answer.")]
    key: Annotated[str, about("Sent again with the same key it is done once.")] = ""


class Allow(Arguments):
    """Let a sender reach sessions."""

    sender: Annotated[str, about("The sender's id.")]
    source: Annotated[str, about("Only from this source.")] = "*"
    as_owner: Annotated[bool, about("Treat their word as yours.")] = False


class Deny(Arguments):
    """Let a sender only be counted."""

    sender: Annotated[str, about("The sender's id.")]
    source: Annotated[str, about("Only from this source.")] = "*"


class Pair(Arguments):
    """Make a code that admits the one sender who sends it."""


class Mute(Arguments):
    """Keep a channel, sender or session from being pushed to."""

    kind: Annotated[str, about("channel, sender or session.")]
    name: Annotated[str, about("Its name.")]
    seconds: Annotated[
        Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_MUTE_SECONDS)] | None,
        about("For this long; until unmuted when null."),
    ] = None


class Unmute(Arguments):
    """End a mute."""

    kind: Annotated[str, about("channel, sender or session.")]
    name: Annotated[str, about("Its name.")]


class WhoAmI(Arguments):
    """Say for whom the caller is taken: the person, or an agent. Changes nothing."""


async def _send(desk: Desk, a: Send) -> object:
    sent = await desk.inbox.send(
        desk.caller,
        await desk.inbox.write_as_file(desk.caller, a.to, a.text) if a.as_file else a.text,
        sender=a.sender,
        channel=a.channel,
        to=a.to,
        priority=a.priority,
        conversation=a.conversation,
        upstream_id=a.upstream_id,
    )
    return shapes.sent(sent)


async def _shown(desk: Desk, messages: Sequence[Message]) -> object:
    seen = await desk.inbox.seen_by(messages)
    return {"messages": [shapes.message(item, seen[item.id]) for item in messages]}


async def _list(desk: Desk, a: List) -> object:
    found = await desk.inbox.list(
        mailbox=a.mailbox,
        among=desk.among(a.mailbox),
        channel=a.channel,
        sender=a.sender,
        before=a.before,
        limit=a.limit,
    )
    return await _shown(desk, found)


async def _read(desk: Desk, a: Read) -> object:
    if a.offset is not None or a.limit is not None:
        message = await desk.message(a.ref)
        return shapes.piece(desk.piece(message, a.offset or 0, a.limit or len(message.text)))
    found = await desk.inbox.read((await desk.message(a.ref)).id)
    return {**shapes.details(found), "question": await question_calls.standing_of(desk, found.message.id)}


async def _pull(desk: Desk, a: Pull) -> object:
    reader = await desk.reader(a.consumer, must_exist=a.peek)
    pulled = await desk.inbox.pull(
        reader,
        limit=a.limit,
        since=a.since_id,
        channel=a.channel,
        consume=not a.peek,
        surface="pull",
        carrier=desk.request,
        choose=desk.budget(shapes.offer, shapes.cut_offer),
    )
    desk.note_listed(pulled)
    return shapes.pulled(pulled)


async def _wait(desk: Desk, a: Wait) -> object:
    reader = await desk.reader(a.consumer)
    pulled = await desk.inbox.wait(
        reader,
        timeout_seconds=a.timeout,
        max_items=a.limit,
        surface="wait",
        carrier=desk.request,
        choose=desk.budget(shapes.offer, shapes.cut_offer),
        listed=desk.listed,
    )
    desk.note_listed(pulled)
    return shapes.pulled(pulled)


async def _prove(desk: Desk, a: Prove) -> object:
    named = [DeliveryId(item) for item in a.deliveries]
    # An agent proves its own; a person may have pulled as any consumer.
    only = desk.caller.consumer if desk.caller.role is Role.AGENT else None
    seen = await desk.inbox.prove(named, "shown", consumer=only)
    return {"seen": [delivery.message_id for delivery in seen]}


async def _ack(desk: Desk, a: Ack) -> object:
    seen = await desk.inbox.ack(await desk.reader(a.consumer), a.refs)
    return {"acknowledged": [delivery.message_id for delivery in seen]}


async def _search(desk: Desk, a: Search) -> object:
    found = await desk.inbox.search(
        a.text,
        mailbox=a.mailbox,
        among=desk.among(a.mailbox),
        channel=a.channel,
        sender=a.sender,
        limit=a.limit,
    )
    return await _shown(desk, found)


async def _stats(desk: Desk, a: Stats) -> object:
    reader = await desk.reader(a.consumer, must_exist=True)
    stats = await desk.inbox.stats(reader)
    return {
        "consumer": reader.consumer,
        "depth": stats.depth,
        "dropped_total": stats.dropped_total,
        "oldest_ts": shapes.moment(stats.oldest),
        "unread_by_channel": dict(stats.by_channel),
        "left_out": shapes.omissions(stats.left_out),
    }


async def _mailboxes(desk: Desk, _a: Mailboxes) -> object:
    return {"mailboxes": list(await desk.inbox.mailboxes())}


async def _evidence(desk: Desk, _a: Evidence) -> object:
    return {"surfaces": [shapes.surface_record(record) for record in await desk.inbox.evidence()]}


async def _notify(desk: Desk, a: Notify) -> object:
    return {"sent": desk.inbox.notify(desk.caller, a.session, a.method, a.params)}


async def _journal(desk: Desk, a: Journal) -> object:
    if a.after < 0:
        return {"events": [], "last": await desk.inbox.last_event()}
    events = await desk.inbox.journal(a.after, a.limit)
    lines = [
        {"n": e.n, "at": timestamp(e.at), "kind": e.kind, **e.told}
        | ({"message": shapes.message(e.message)} if e.message else {})
        for e in events
        if e.message is None or desk.may_read(e.message)
    ]
    return {"events": lines, "last": events[-1].n if events else a.after}


async def _source_list(desk: Desk, _a: SourceList) -> object:
    return {"sources": [shapes.source(each) for each in desk.sources()]}


async def _status(desk: Desk, _a: GetStatus) -> object:
    return {
        "daemon": dict(desk.daemon()),
        **shapes.status(await desk.inbox.status()),
        "rules": reaction_shapes.summary(await desk.reactions.summary()),
        "waiting": question_calls.waiting(await desk.questions.waiting()),
    }


async def _reply(desk: Desk, a: Reply) -> object:
    row = await desk.inbox.reply(
        desk.caller,
        a.ref,
        a.body,
        # A run may answer what it is about, wherever that is.
        among=None if desk.caller.is_run else desk.among(),
        edge="cli" if a.key else "",
        request=a.key,
    )
    return {"reply_id": row.id, "message_id": row.message.id, "state": row.state}


async def _allow(desk: Desk, a: Allow) -> object:
    rule = await desk.access.allow(desk.caller, a.sender, source=a.source, as_owner=a.as_owner)
    return {"source": rule.source, "sender": rule.sender, "trust": rule.trust.value}


async def _deny(desk: Desk, a: Deny) -> object:
    rule = await desk.access.deny(desk.caller, a.sender, source=a.source)
    return {"source": rule.source, "sender": rule.sender, "trust": rule.trust.value}


async def _pair(desk: Desk, _a: Pair) -> object:
    code, until = desk.access.pair(desk.caller)
    return {"code": code, "until": shapes.moment(until)}


async def _mute(desk: Desk, a: Mute) -> object:
    mute = await desk.access.mute(desk.caller, a.kind, a.name, seconds=a.seconds)
    return {"kind": mute.kind, "name": mute.name, "until": shapes.moment(mute.until)}


async def _unmute(desk: Desk, a: Unmute) -> object:
    mute = await desk.access.unmute(desk.caller, a.kind, a.name)
    return {"kind": mute.kind, "name": mute.name}


async def _whoami(desk: Desk, _a: WhoAmI) -> object:
    return {"role": desk.caller.role.value, "consumer": desk.caller.consumer}


VERBS: tuple[tuple[str, Verb], ...] = (
    ("send", Verb(Send, _send)),
    ("list", Verb(List, _list)),
    ("read", Verb(Read, _read)),
    ("pull", Verb(Pull, _pull)),
    ("wait", Verb(Wait, _wait)),
    ("prove", Verb(Prove, _prove)),
    ("ack", Verb(Ack, _ack)),
    ("search", Verb(Search, _search)),
    ("stats", Verb(Stats, _stats)),
    ("mailboxes", Verb(Mailboxes, _mailboxes)),
    ("evidence", Verb(Evidence, _evidence)),
    ("notify", Verb(Notify, _notify)),
    ("journal", Verb(Journal, _journal)),
    ("status", Verb(GetStatus, _status)),
    ("source_list", Verb(SourceList, _source_list)),
    ("reply", Verb(Reply, _reply)),
    ("allow", Verb(Allow, _allow)),
    ("deny", Verb(Deny, _deny)),
    ("pair", Verb(Pair, _pair)),
    ("mute", Verb(Mute, _mute)),
    ("unmute", Verb(Unmute, _unmute)),
    ("whoami", Verb(WhoAmI, _whoami)),
    *BROWSER_VERBS,
    *TASK_VERBS,
    *CHANNEL_VERBS,
    *question_calls.QUESTION_VERBS,
    *OUTBOX_VERBS,
    *KEEPING_VERBS,
    *RULE_VERBS,
)


LONG_VERBS = frozenset({"wait", "run_output"})
"""Those that may take long, and whose client may give up meanwhile."""


async def call(desk: Desk, name: str, arguments: object) -> object:
    """Do what a verb says."""
    for known, verb in VERBS:
        if known == name:
            try:
                return await verb.run(desk, verb.parse(name, arguments))
            except MemoryError as exc:
                raise out_of_memory() from exc
    names = ", ".join(known for known, _ in VERBS)
    raise UserError(f"There is no verb {name[:80]!r}.", f"The verbs are: {names}.")
