"""The nouns of Harken: what a draft, a message, a delivery and a session are.

Values only: frozen, without behaviour beyond what follows from their own fields, without I/O. Everything above
speaks in these types; `store/` persists them, `render.py` shows them. The words are those of the
glossary.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, StrEnum, auto
from typing import NewType

MessageId = NewType("MessageId", str)
DeliveryId = NewType("DeliveryId", str)
Mailbox = NewType("Mailbox", str)
Consumer = NewType("Consumer", str)
SessionKey = NewType("SessionKey", str)
OutboxId = NewType("OutboxId", str)
TaskId = NewType("TaskId", str)

LOCAL = "local"  # the source of what is said on this machine: the command line, the page, agents

INBOX = Mailbox("inbox")
REPLIES = Mailbox("replies")  # what agents answered to the person: read by people only
OUTBOX = Mailbox("outbox")  # never holds messages: named when the change feed rings for a new reply
WATCH = Consumer("watch")
RULES = Consumer("rules")  # answers for runs; it reads no mailbox of its own, and has no cursor
NOT_AGENTS = (WATCH, RULES)  # every other consumer is an agent
OWNER_ID = "owner"  # the sender id of the person whose inbox this is
AGENT = "agent:"  # how the sender id of an agent begins that is in no task
TASK = "task:"  # how the mailbox of a task begins; its consumer and its sender have the same name
CUT_FROM = "cut_from"  # the fact about a message that says how long its text was before it was cut
RUN = "run:"  # how the sender id of a run's agent begins, and the key of its session

MAX_TEXT_BYTES = 1_000_000
"""How many bytes of UTF-8 the text of a stored message has at most, whoever wrote it. Ingest sees to it."""

MAX_RAW_CHARS = 3 * MAX_TEXT_BYTES
"""How much of what somebody wrote a source hands on: markup and what nobody sees take room, and go."""

# Crockford's alphabet, lower case: no i, l, o, u, so an id can be read aloud and typed.
_ALPHABET = b"0123456789abcdefghjkmnpqrstvwxyz"
# 32 letters, so five bits of each random byte pick one without bias.
_LETTERS = bytes(_ALPHABET[byte & 31] for byte in range(256))


def fresh_id(prefix: str, length: int = 10) -> str:
    """Return a new random id. Unguessable on purpose: a text that names a delivery id counts as evidence for it."""
    return prefix + secrets.token_bytes(length).translate(_LETTERS).decode("ascii")


class Trust(StrEnum):
    """How far a sender is trusted; authority follows it."""

    OWNER = "owner"
    KNOWN = "known"
    UNKNOWN = "unknown"


class Attention(StrEnum):
    """How far a message may push, from the strongest to the weakest."""

    WAKE = "wake"
    BOUNDARY = "boundary"
    PROMPT = "prompt"
    COUNT = "count"


class Priority(StrEnum):
    """High goes first; low waits for the next prompt."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class MessageKind(StrEnum):
    """What a message states: something new, or something about an earlier message."""

    MESSAGE = "message"
    EDIT = "edit"
    DELETION = "deletion"


class TextFormat(StrEnum):
    """How a draft's text is written."""

    PLAIN = "plain"
    HTML = "html"


class WakeResult(Enum):
    """What became of an attempt to wake a session."""

    TAKEN = auto()  # the host has it, or may have it: proof is waited for
    REFUSED = auto()  # the host did not take it: what waits is still queued
    POSTPONED = auto()  # nothing was tried, because it cannot be woken now; that may pass


class DeliveryState(StrEnum):
    """Where a delivery is; `queued` has no row, it is what is left."""

    QUEUED = "queued"
    OFFERED = "offered"
    SEEN = "seen"
    ANSWERED = "answered"
    EXPIRED = "expired"
    REFUSED = "refused"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether the cursor may pass a delivery in this state."""
        return self not in (DeliveryState.QUEUED, DeliveryState.OFFERED)


class TaskState(StrEnum):
    """Where a task is. Only `done` refuses mail."""

    QUEUED = "queued"  # made, and no session has run in it yet
    RUNNING = "running"  # a session is in its folder now
    ENDED = "ended"  # sessions were there, none is now; its mail waits for the next
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Sender:
    """Who said it: the source's own id for them, and the name people read."""

    id: str
    name: str = ""

    @property
    def label(self) -> str:
        """The name if there is one, else the id."""
        return self.name or self.id


@dataclass(frozen=True, slots=True)
class SenderRule:
    """A decision of the person about a sender, or about everyone of a source (`sender` is `*`)."""

    source: str
    sender: str
    trust: Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a source yields: untrusted, unsaved, as it came."""

    source: str
    sender: Sender
    text: str
    upstream_id: str = ""
    channel: str = ""
    conversation: str = ""
    thread: str = ""
    kind: MessageKind = MessageKind.MESSAGE
    refers_to: str = ""  # upstream id of the message that this one edits, deletes or answers
    format: TextFormat = TextFormat.PLAIN
    sent_at: datetime | None = None
    priority: Priority = Priority.NORMAL
    mailbox: Mailbox | None = None  # addressed by the sender; routes apply only where it is None
    author: Consumer | None = None  # the reader who says it, and need not be told
    is_question: bool = False  # whoever wrote it waits for an answer, as far as the source can tell
    is_answer: bool = False  # the person wrote it upstream: what was asked before in its conversation is answered
    meta: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: int = 0  # characters of what was written that the source itself could not hand on


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A draft that has passed ingest: safe to store, not yet stored."""

    mailbox: Mailbox
    source: str
    sender: Sender
    text: str
    trust: Trust
    attention: Attention
    channel: str = ""
    conversation: str = ""
    thread: str = ""
    kind: MessageKind = MessageKind.MESSAGE
    priority: Priority = Priority.NORMAL
    upstream_id: str = ""
    sent_at: datetime | None = None
    meta: Mapping[str, str] = field(default_factory=dict[str, str])
    author: Consumer | None = None
    is_question: bool = False
    is_answer: bool = False
    dedup_key: bytes | None = None  # None: always new
    refers_key: bytes | None = None  # dedup key of the message it refers to


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A stored, immutable statement by someone."""

    id: MessageId
    mailbox: Mailbox
    seq: int
    received_at: datetime
    source: str
    sender: Sender
    text: str
    trust: Trust
    attention: Attention
    channel: str = ""
    conversation: str = ""
    thread: str = ""
    kind: MessageKind = MessageKind.MESSAGE
    priority: Priority = Priority.NORMAL
    upstream_id: str = ""
    sent_at: datetime | None = None
    refers_to: MessageId | None = None
    meta: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def cut_from(self) -> int | None:
        """How many characters its text had when it came, if not all of them were kept."""
        said = self.meta.get(CUT_FROM, "")
        return int(said) if said.isascii() and said.isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message for one consumer, and how far it got."""

    id: DeliveryId
    message_id: MessageId
    consumer: Consumer
    state: DeliveryState
    surface: str
    session: SessionKey
    offered_at: datetime
    offers: int = 1
    seen_at: datetime | None = None
    evidence: str = ""
    answered_at: datetime | None = None
    reason: str = ""
    machine: str = ""  # where the session was; empty where there is only one machine, or it is not known any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A message as it is handed to a surface: with the delivery id that can prove it was seen."""

    message: Message
    delivery_id: DeliveryId
    offered_at: datetime | None = None
    is_repeat: bool = False
    answered_by: Consumer | None = None
    seen_by: tuple[Consumer, ...] = ()  # who had seen it by then


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which of the messages that wait go into one answer: whole, or cut to their first words.

    Only what goes whole is offered. `too_long` are those that no answer carries whole; `is_full` says that a later
    answer carries more of the others.
    """

    whole: Sequence[Offer] = ()
    cut: Sequence[Offer] = ()  # without delivery ids: nothing is to be proven of them
    too_long: frozenset[MessageId] = frozenset()
    is_full: bool = False

    def leaves_some(self, limit: int) -> bool:
        """Whether more may wait than goes whole, of which there may be so many at most."""
        return self.is_full or bool(self.too_long) or len(self.whole) >= limit


Choose = Callable[[Sequence[Offer], int], Selection]
"""Says which of some offers, in their order, one answer carries, so many whole at most. Pure and quick."""


async def _noted_nowhere() -> None:
    """Take no note: for what can be sent again without harm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingReply:
    """A reply on its way out. `key` is the same each time it is tried.

    `tried_at` is when it was last handed over, if it is not known what came of that: it may have been sent then. Its
    sender awaits `hand_over` right before it may leave, each time, so that a crash after that is known.
    """

    key: str
    to: Message
    body: str
    author: str
    created_at: datetime | None = None
    tried_at: datetime | None = None
    hand_over: Callable[[], Awaitable[None]] = field(default=_noted_nowhere, compare=False, repr=False)

    @property
    def is_by_owner(self) -> bool:
        """Whether the person wrote it, and no agent."""
        return self.author == OWNER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who is asking: a consumer, through one session, over these mailboxes."""

    consumer: Consumer
    session: SessionKey
    mailboxes: tuple[Mailbox, ...] = (INBOX,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A piece of work with its own folder, mailbox and session; `peers` are the tasks it is linked to.

    `branch` and `repo` are empty for a folder that is not a git work tree; `has_worktree` says that Harken made it.
    `machine` is the other machine that has the folder; empty: this one.
    """

    id: TaskId
    title: str
    dir: str
    created_at: datetime
    agent: str = ""
    repo: str = ""
    branch: str = ""
    has_worktree: bool = False
    started_at: datetime | None = None
    done_at: datetime | None = None
    peers: tuple[TaskId, ...] = ()
    machine: str = ""

    @property
    def mailbox(self) -> Mailbox:
        """Where its mail is."""
        return Mailbox(f"{TASK}{self.id}")

    @property
    def consumer(self) -> Consumer:
        """The consumer that its sessions read as."""
        return Consumer(self.mailbox)

    def state(self, *, is_running: bool) -> TaskState:
        """Return where it is, told whether a session is in its folder now."""
        if self.done_at is not None:
            return TaskState.DONE
        if is_running:
            return TaskState.RUNNING
        return TaskState.ENDED if self.started_at is not None else TaskState.QUEUED


def timestamp(moment: datetime) -> str:
    """Return a time as ISO 8601 in UTC, to the millisecond, ending in Z."""
    in_utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return in_utc.isoformat(timespec="milliseconds")[:-6] + "Z"


def task_record(offer: Offer, task: str) -> dict[str, object]:
    """Return the documented record of a message that a task is given."""
    message = offer.message
    return {
        "id": message.id,
        "task": task,
        "sender": "user" if message.trust is Trust.OWNER else message.sender.id,
        "body": message.text,
        "priority": message.priority.value,
        "created_at": timestamp(message.received_at),
        "delivered_at": timestamp(offer.offered_at) if offer.offered_at else None,
        "refers_to": message.refers_to,
        "trust": message.trust.value,
        **cut_mark(message),
    }


def cut_mark(message: Message) -> dict[str, object]:
    """Return what a record adds about a text that was cut when it came: how long it was; nothing for a whole one."""
    return {} if message.cut_from is None else {"cut_from": message.cut_from}


def record(
    message: Message, consumed_by: Iterable[Consumer] = (), *, written: Callable[[datetime], str] = timestamp
) -> dict[str, object]:
    """Return the documented record of a message. `consumed_by` are the consumers that have seen it.

    `written` is for a caller that writes the times of many at once, and has some of them already.
    """
    received_at = written(message.received_at)
    return {
        "id": message.id,
        "mailbox": message.mailbox,
        "seq": message.seq,
        "received_at": received_at,
        "source": message.source,
        "channel": message.channel,
        "chat_id": message.conversation,
        "from": message.sender.label,
        "sender_id": message.sender.id,
        "trust": message.trust.value,
        "attention": message.attention.value,
        "priority": message.priority.value,
        "kind": message.kind.value,
        "thread": message.thread,
        "refers_to": message.refers_to,
        "ts": written(message.sent_at) if message.sent_at else received_at,
        "content_text_sanitized": message.text,
        **cut_mark(message),
        "meta": dict(message.meta),
        "consumed_by": list(consumed_by),
    }


TRIAL = "trial:"
