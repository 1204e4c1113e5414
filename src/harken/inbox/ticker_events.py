"""What an event of the journal is called on the ticker, and what it says there.

Pure: values in, values out. The journal has one event for many deliveries; the ticker has one per message, so that a
reader can show it without looking further. Texts are left out: whoever shows a message reads it. Above is `ticker.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from harken.memory import json_bytes
from harken.model import TASK, Mailbox, Message, MessageId, timestamp
from harken.store.contract.events import Event

QUEUED, OFFERED, SEEN, ANSWERED = "message.queued", "message.offered", "message.seen", "message.answered"
CHANGED, TASK_CHANGED, SESSION_CHANGED, RESET = "message.changed", "task.changed", "session.changed", "reset"
JUDGED, ACTION_CHANGED, RUN_CHANGED, RULES_CHANGED = "message.judged", "action.changed", "run.changed", "rules.changed"
QUESTION_CHANGED = "question.changed"

MOST_NAMED = 200
"""Of one event of the journal so many messages are named; the rest are told as a number."""

TimelineScope = tuple[Mailbox, int]
"""The mailbox of a message, and its sequence number."""

NAMES = (
    QUEUED, OFFERED, SEEN, ANSWERED, CHANGED, QUESTION_CHANGED, JUDGED, ACTION_CHANGED, RUN_CHANGED, RULES_CHANGED,
    TASK_CHANGED, SESSION_CHANGED, RESET,
)  # fmt: skip

_OF_REACTION: Final[Mapping[str, tuple[str, Sequence[str]]]] = MappingProxyType(
    {
        "judged": (JUDGED, ("message_id", "rule", "mode", "outcome", "action")),
        "action": (ACTION_CHANGED, ("message_id", "action", "rule", "mode", "state")),
        "run": (RUN_CHANGED, ("message_id", "run", "action", "rule", "agent", "state")),
    }
)
"""What these events of the journal are called, and what they say. Reasons are left out: a run may have made them up."""

_Fields = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TickerEvent:
    """One event as readers get it. `data` is a line of JSON; without a mailbox it concerns all."""

    name: str
    data: bytes
    mailbox: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickerStep:
    """What one event of the journal, number `n`, became: none, one or several. 0: it is not in the journal."""

    n: int
    events: Sequence[TickerEvent]


def mentioned(events: Collection[Event]) -> set[MessageId]:
    """Return the messages whose mailbox must be known to say what happened."""
    return {
        MessageId(str(each["message_id"])) for event in events for _, each in _parts(event) if "mailbox" not in each
    }


def step(event: Event, places: Mapping[MessageId, TimelineScope]) -> TickerStep:
    """Return what an event of the journal is here. `places` are those of what it mentions, as far as stored."""
    head: _Fields = {"n": event.n, "at": timestamp(event.at)}
    return TickerStep(
        n=event.n, events=[_event(name, head | _placed(fields, places)) for name, fields in _parts(event)]
    )


def reset(n: int, after: int) -> TickerStep:
    """Return the step that says: what happened after `after` cannot all be told, and the ticker goes on after `n`."""
    return TickerStep(n=n, events=[_event(RESET, {"n": n, "after": after})])


def unnumbered(name: str) -> TickerStep:
    """Return the step of something that is not in the journal."""
    return TickerStep(n=0, events=[_event(name, {})])


def _event(name: str, fields: _Fields) -> TickerEvent:
    return TickerEvent(name=name, data=json_bytes(fields), mailbox=str(fields.get("mailbox") or ""))


def _placed(fields: _Fields, places: Mapping[MessageId, TimelineScope]) -> _Fields:
    if "mailbox" in fields:
        return fields
    # One that retention took meanwhile has no place any more.
    mailbox, seq = places.get(MessageId(str(fields["message_id"])), (None, None))
    return fields | {"mailbox": mailbox, "seq": seq}


def _parts(event: Event) -> Iterator[tuple[str, _Fields]]:
    """Yield the name and the fields of each event on the ticker; `mailbox` is left out where the journal has none."""
    data: Mapping[str, Any] = event.data
    match event.kind:
        case "received":
            if event.message is not None:
                yield QUEUED, _header(event.message)
        case "offered":
            told = {"consumer": data["consumer"], "session": data["session"], "surface": data["surface"]}
            yield from _each(OFFERED, _deliveries(data), {"state": "offered", **told})
        case "seen":
            told = {"consumer": data["consumer"], "evidence": data["evidence"]}
            yield from _each(SEEN, _deliveries(data), {"state": "seen", **told})
        case "answered":
            told = {"consumer": data["consumer"], "author": data["author"], "reply_id": data["reply"]}
            named = {"message_id": data["message_id"], "delivery_id": data["delivery"]}
            yield from _each(ANSWERED, [named], {"state": "answered", **told})
        case "withdrawn":
            yield from _each(CHANGED, [{"message_id": each} for each in data["messages"]], {"state": "queued"})
        case "expired" | "refused":
            told = {"state": event.kind, "consumer": data["consumer"], "mailbox": data["mailbox"]}
            yield from _each(CHANGED, [{"message_id": each} for each in data["ids"]], told)
        case "settled" | "reminded" | "escalated":
            yield QUESTION_CHANGED, {"message_id": data["message_id"], "state": event.kind}
        case "task":
            yield TASK_CHANGED, {**event.told, "mailbox": f"{TASK}{data['task']}"}
        case _:
            yield from _reaction(event)


def _reaction(event: Event) -> Iterator[tuple[str, _Fields]]:
    if event.kind in _OF_REACTION:
        name, fields = _OF_REACTION[event.kind]
        yield name, {field: event.data[field] for field in fields}
    elif event.kind in ("paused", "resumed", "rules"):
        yield RULES_CHANGED, {"change": event.kind, "mailbox": None}


def _deliveries(data: Mapping[str, Any]) -> Sequence[_Fields]:
    return [{"message_id": message, "delivery_id": delivery} for delivery, message in data["deliveries"].items()]


def _each(name: str, named: Sequence[_Fields], told: _Fields) -> Iterator[tuple[str, _Fields]]:
    for each in named[:MOST_NAMED]:
        yield name, each | told
    if len(named) > MOST_NAMED:
        yield name, {"message_id": None, "count": len(named) - MOST_NAMED, "mailbox": None} | told


def _header(message: Message) -> _Fields:
    return {
        "message_id": message.id,
        "mailbox": message.mailbox,
        "seq": message.seq,
        "state": "queued",
        "source": message.source,
        "channel": message.channel,
        "from": message.sender.label,
        "sender_id": message.sender.id,
        "trust": message.trust.value,
        "attention": message.attention.value,
        "priority": message.priority.value,
        "kind": message.kind.value,
        "thread": message.thread,
        "refers_to": message.refers_to,
    }
