"""The nouns of Harken: what a draft, a message, a delivery and a session are.

Values only: frozen, without behaviour beyond what follows from their own fields, without I/O. Everything above
speaks in these types; `store/` persists them, `render.py` shows them. The words are those of the
glossary.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, StrEnum, auto
from hashlib import sha256
from typing import NewType, TypeAlias

MessageId = NewType("MessageId", str)
DeliveryId = NewType("DeliveryId", str)
Mailbox = NewType("Mailbox", str)
Consumer = NewType("Consumer", str)
SessionKey = NewType("SessionKey", str)
SessionAddress: TypeAlias = tuple[str, SessionKey]  # the other daemon that has it, or none, and its key there
OutboxId = NewType("OutboxId", str)
TaskId = NewType("TaskId", str)
ApprovalId = NewType("ApprovalId", str)

LOCAL = "local"  # the source of what is said on this machine: the command line, the page, agents

INBOX = Mailbox("inbox")
REPLIES = Mailbox("replies")  # what agents answered to the person: read by people only
OUTBOX = Mailbox("outbox")  # never holds messages: named when the change feed rings for a new reply
APPROVALS = Mailbox("approvals")  # never holds messages: named when the change feed rings for an approval
SCHEDULE = Mailbox("schedule")  # never holds messages: named when the change feed rings for a scheduled one
WATCH = Consumer("watch")
RULES = Consumer("rules")  # answers for runs; it reads no mailbox of its own, and has no cursor
NOT_AGENTS = (WATCH, RULES)  # every other consumer is an agent
OWNER_ID = "owner"  # the sender id of the person whose inbox this is
AGENT = "agent:"  # how the sender id of an agent begins that is in no task
TASK = "task:"  # how the mailbox of a task begins; its consumer and its sender have the same name
CUT_FROM = "cut_from"  # the fact about a message that says how long its text was before it was cut
PROGRAM = "program:"  # how the sender id of a program begins that may only send, by its token
RUN = "run:"  # how the sender id of a run's agent begins, and the key of its session

MAX_TEXT_BYTES = 1_000_000
"""How many bytes of UTF-8 the text of a stored message has at most. Ingest sees to it."""

MAX_RAW_CHARS = 3 * MAX_TEXT_BYTES
"""How much of an upstream text a source hands on: markup and invisible characters take room, and go."""

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
    promised_id: MessageId | None = None  # that its sender was told when it was scheduled; None: a new one


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


class Occasion(StrEnum):
    """What a scheduled message waits for, beside its time."""

    TIME = "time"  # nothing else
    IDLE = "idle"  # a session reads its mailbox, and none of them is in a turn
    TURN = "turn"  # the turns that were going on when it was accepted have ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a message enters its mailbox: not before a time, and at an occasion."""

    due_at: datetime | None = None
    occasion: Occasion = Occasion.TIME
    turns: Mapping[SessionKey, str] = field(default_factory=dict[SessionKey, str])  # that have to end, by session


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledMessage:
    """A message that was accepted and is not in its mailbox yet: its `seq` is 0. Its sender may withdraw it."""

    message: Message
    schedule: Schedule
    withdrawn_by: str = ""
    withdrawn_at: datetime | None = None


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
    daemon: str = ""  # another one of the same store that had the session; empty: this one

    @property
    def address(self) -> SessionAddress:
        """The address of the session, which may be gone."""
        return self.daemon, self.session


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


class ApprovalChoice(StrEnum):
    """What a host's question can be answered with."""

    ONCE = "once"
    ALWAYS = "always"  # only where the host has it, as the rule that the host writes
    NO = "no"
    ANSWER = "answer"  # to questions of the agent, in words


class ApprovalState(StrEnum):
    """Where an approval is. Only an open one can be answered; an answered one waits for proof that its host obeyed."""

    OPEN = "open"
    ANSWERED = "answered"
    OBEYED = "obeyed"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"

    @property
    def is_over(self) -> bool:
        """Whether nothing becomes of it any more."""
        return self not in (ApprovalState.OPEN, ApprovalState.ANSWERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What a host asks before it lets its agent use a tool. Every text of it is data, and hostile."""

    host: str
    session: SessionKey
    tool: str
    arguments: Mapping[str, object]  # as the host has them
    digest: str  # of all that is asked: an answer names it
    folder: str = ""
    why: str = ""  # in the host's or the model's words
    choices: tuple[ApprovalChoice, ...] = (ApprovalChoice.ONCE, ApprovalChoice.NO)
    always: str = ""  # the rule that `always` writes, as the host has it
    turn: str = ""  # the host's own id of the turn
    native: str = ""  # the host's own id of the request; empty where it has none
    carries_reason: bool = True  # the host passes the reason of a refusal on to its model


def approval_digest(host: str, session: str, tool: str, arguments: Mapping[str, object]) -> str:
    """Return the hash that binds an answer to one question: host, session, tool and every argument."""
    asked = json.dumps([host, session, tool, arguments], sort_keys=True, separators=(",", ":"))
    return sha256(asked.encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """An answer: the question, the choice, its author, and the surface it came through."""

    approval: ApprovalId
    session: SessionKey
    digest: str
    choice: ApprovalChoice
    by: str
    through: str
    reason: str = ""  # of a refusal; of an answer in words, these: a line for each question


MAX_QUESTIONS = 10
_OF_QUESTION = frozenset({"question", "header", "options", "multiSelect", "multiple"})
_OF_OPTION = frozenset({"label", "description"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question of an agent to its person, and the answers that it offers. Other words are an answer, too."""

    text: str
    header: str = ""
    options: tuple[tuple[str, str], ...] = ()  # label and description
    takes_several: bool = False


def asked_questions(arguments: Mapping[str, object]) -> Sequence[AskedQuestion]:
    """Return the questions among the arguments of a tool; none of them where one is not understood whole."""
    given = arguments.get("questions")
    found = [_asked_question(each) for each in given] if isinstance(given, list | tuple) else []
    questions = [each for each in found if each is not None]
    is_whole = len(questions) == len(found) == len({each.text for each in questions}) <= MAX_QUESTIONS
    return questions if is_whole else []


def _asked_question(given: object) -> AskedQuestion | None:
    if not isinstance(given, Mapping) or not _OF_QUESTION.issuperset(given):
        return None
    text, header, options = given.get("question"), given.get("header", ""), given.get("options", [])
    is_text = isinstance(text, str) and bool(text.strip()) and isinstance(header, str)
    if not is_text or not isinstance(options, list) or not all(map(_is_option, options)):
        return None
    named = tuple((str(each["label"]), str(each.get("description", ""))) for each in options)
    if len({_folded(label) for label, _ in named}) != len(named):
        return None
    several = given.get("multiSelect", given.get("multiple", False)) is True
    return AskedQuestion(text=str(text), header=header, options=named, takes_several=several)


def _is_option(given: object) -> bool:
    if not isinstance(given, Mapping) or not _OF_OPTION.issuperset(given):
        return False
    label = given.get("label")
    # One that cannot be seen whole cannot be chosen from elsewhere.
    return isinstance(label, str) and bool(label.strip()) and label.isprintable()


def answers_in(arguments: Mapping[str, object], text: str) -> Sequence[Sequence[str]]:
    """Return the answers to the questions among the arguments, one on each line; none unless each has one.

    A line is the label of an option, several with commas where the question takes several, or other words.
    """
    questions, lines = asked_questions(arguments), [_folded(line) for line in text.strip().split("\n")]
    if len(questions) != len(lines) or not all(lines):
        return []
    return [_chosen(question, line) for question, line in zip(questions, lines, strict=True)]


def _chosen(question: AskedQuestion, line: str) -> Sequence[str]:
    labels = {_folded(label): label for label, _ in question.options}
    chosen, left = list[str](), "" if line in labels else line
    while left and question.takes_several:
        fits = (label for label in labels if left == label or left.startswith(f"{label},"))
        if not (label := max(fits, key=len, default="")):
            break
        chosen.append(labels[label])
        left = left[len(label) :].lstrip(", ")
    return chosen if chosen and not left else [labels.get(line, line)]


def _folded(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One question of one session whether a tool may be used, and what became of it.

    Its methods are the only steps there are. Each returns the approval after the step, or None when the step is not to
    be had from where it is: no order of them leads from a time-out, a restart or a wrong answer to an answer.
    """

    id: ApprovalId
    request: ApprovalRequest
    asked_at: datetime
    expires_at: datetime
    state: ApprovalState = ApprovalState.OPEN
    shown: tuple[str, ...] = ()  # the surfaces that have shown it
    choice: ApprovalChoice | None = None
    reason: str = ""  # of the answer: the host's model reads it
    answered_by: str = ""
    through: str = ""
    answered_at: datetime | None = None
    ended_at: datetime | None = None
    because: str = ""  # why it ended; of one that was obeyed, the evidence

    def is_late(self, now: datetime) -> bool:
        """Whether it can no longer be answered; also when the clock was set back to before it was asked."""
        return now >= self.expires_at or now < self.asked_at - (self.expires_at - self.asked_at)

    def show(self, surface: str) -> Approval | None:
        """Return it as shown on one more surface."""
        if self.state is not ApprovalState.OPEN or surface in self.shown:
            return None
        return replace(self, shown=(*self.shown, surface))

    def answer(self, answer: ApprovalAnswer, now: datetime) -> Approval | None:
        """Return it as answered: by the first answer that names it, its session and all that it asks, in time."""
        request = self.request
        is_bound = (answer.approval, answer.session, answer.digest) == (self.id, request.session, request.digest)
        is_open = self.state is ApprovalState.OPEN and not self.is_late(now)
        if not is_bound or not is_open or answer.choice not in request.choices or not answer.by:
            return None
        if answer.choice is ApprovalChoice.ANSWER and not answers_in(request.arguments, answer.reason):
            return None
        return replace(
            self,
            state=ApprovalState.ANSWERED,
            choice=answer.choice,
            reason=answer.reason,
            answered_by=answer.by,
            through=answer.through,
            answered_at=now,
        )

    def withdraw(self, because: str, now: datetime) -> Approval | None:
        """Return it as withdrawn: the host no longer asks, or the answer did not reach it."""
        if self.state.is_over:
            return None
        return replace(self, state=ApprovalState.WITHDRAWN, ended_at=now, because=because)

    def expire(self, now: datetime) -> Approval | None:
        """Return it as expired: its time is over, and the host decides by itself."""
        if self.state is not ApprovalState.OPEN or not self.is_late(now):
            return None
        return replace(self, state=ApprovalState.EXPIRED, ended_at=now, because="nobody answered in time")

    def obey(self, evidence: str, now: datetime) -> Approval | None:
        """Return it as obeyed: there is evidence that the host did what was answered."""
        if self.state is not ApprovalState.ANSWERED or not evidence:
            return None
        return replace(self, state=ApprovalState.OBEYED, ended_at=now, because=evidence)


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
