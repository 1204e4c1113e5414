"""What the use cases return: values for surfaces to show; their JSON is in `verbs/shapes.py`. Pure.

Among them is the forecast: what will happen to a message, said truthfully when it is accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from harken.ingest.pairing import RefusedPairing
from harken.model import (
    TASK,
    Attention,
    Consumer,
    Delivery,
    DeliveryState,
    Draft,
    Mailbox,
    Message,
    MessageId,
    NewMessage,
    Occasion,
    Offer,
    ScheduledMessage,
    Selection,
    SenderRule,
    SessionKey,
    Task,
    TaskState,
    Trust,
)
from harken.sessions.session import Presence, Session, is_muted
from harken.store.contract.deliveries import ConsumerState, Omission, OpenOffer, SurfaceRecord
from harken.store.contract.outbox import OutboxRow as ReplyRow
from harken.store.contract.people import Mute
from harken.times import format_moment

__all__ = [
    "Details", "LedgerEntry", "Omission", "OpenOffer", "PullResult", "QueueStats", "ReplyRow", "SendResult", "Status",
    "SurfaceRecord", "TaskProgress",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """A message that was accepted, and truthfully what will happen to it."""

    message: Message
    is_new: bool
    forecast: Forecast
    file: str = ""  # where its text is in the folder of its task, if it was put there

    def as_json(self) -> dict[str, object]:
        """Return it as programs get it."""
        return {
            "id": self.message.id,
            "mailbox": self.message.mailbox,
            "seq": self.message.seq,
            "state": "queued" if self.is_new else "known",
            "forecast": {"outlook": self.forecast.outlook.value, "sentence": self.forecast.sentence},
            **({"file": self.file} if self.file else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """What was handed out, what is only listed because it does not fit, and how much still waits."""

    offers: Sequence[Offer]
    remaining: int | None  # None: it could not be counted
    cut: Sequence[Offer] = ()
    too_long: frozenset[MessageId] = frozenset()  # fit no answer

    @classmethod
    def of(cls, given: Selection, remaining: int | None) -> PullResult:
        """Return what an answer carries, with how much waits beside it."""
        return cls(offers=given.whole, cut=given.cut, too_long=given.too_long, remaining=remaining)

    @property
    def is_next(self) -> bool:
        """Whether the next answer carries some whole of what is only listed in this one."""
        return any(offer.message.id not in self.too_long for offer in self.cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One consumer's line in the ledger of a message; without a delivery it is still queued."""

    consumer: Consumer
    state: DeliveryState
    delivery: Delivery | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """A message, its ledger, who was not given it when they began, and the replies to it."""

    message: Message
    ledger: Sequence[LedgerEntry]
    not_given: Sequence[Consumer]
    replies: Sequence[ReplyRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """What waits for one consumer."""

    depth: int
    dropped_total: int
    oldest: datetime | None
    by_channel: Mapping[str, int]
    left_out: Mapping[Mailbox, Omission]  # what it was not given when it began, where that is something


class HostedState(StrEnum):
    """Where the agent of a hosted task is."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    STOPPED = "stopped"  # no agent runs: it could not be started, or it has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPart:
    """One thing that a hosted agent said or did, or was told. Every text of it is data, and hostile."""

    kind: str  # `said`, `thought`, `tool`, `told` or `problem`
    text: str = ""
    title: str = ""  # of a tool
    status: str = ""  # of a tool: what the agent says of it
    changes: Sequence[tuple[str, str]] = ()  # of files: the path, and the difference
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedProgress:
    """A task whose agent the daemon runs, without a terminal: how that stands, and the newest of what it did."""

    agent: str
    state: HostedState
    problem: str = ""  # why no agent runs
    parts: Sequence[HostedPart] = ()
    plan: Sequence[tuple[str, str]] = ()  # its steps: the text, and how far it is
    left_out: int = 0  # earlier parts that are not kept


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """A task, where it is, what its session does (a `Presence`, or `gone`), and how much it has not seen."""

    task: Task
    state: TaskState
    presence: str
    pending: int
    sessions: Sequence[Session] = ()
    hosted: HostedProgress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a person wants to know at a glance."""

    sessions: Sequence[Session]
    consumers: Sequence[ConsumerState]
    senders: Sequence[SenderRule]
    mutes: Sequence[Mute]
    parked: Sequence[ReplyRow]
    waiting_replies: int
    not_stored: Sequence[Draft]
    refused_pairings: Sequence[RefusedPairing]
    store: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLine:
    """A channel in the list. `unread` is counted among its newest hundred; neither number has what was cleared."""

    source: str
    channel: str
    count: int
    unread: int
    last_at: datetime
    cleared: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCard:
    """A channel in the list, and its newest message (None: retention has just removed it)."""

    line: ChannelLine
    newest: Message | None


class Outlook(StrEnum):
    """The kinds of forecast; stable, for programs."""

    NOW = "now"
    BOUNDARY = "boundary"
    WAKE = "wake"
    PROMPT = "prompt"
    NEXT_CALL = "next_call"
    NEXT_SESSION = "next_session"
    UNCERTAIN = "uncertain"
    COUNTED = "counted"
    SCHEDULED = "scheduled"
    MUTED = "muted"
    KNOWN = "known"
    NO_READER = "no_reader"


@dataclass(frozen=True, slots=True)
class Forecast:
    """The kind, and one sentence for people."""

    outlook: Outlook
    sentence: str


_NOBODY = Forecast(Outlook.NEXT_SESSION, "waits for the next session: none is connected now")
_NOT_RUNNING = Forecast(Outlook.NEXT_SESSION, "waits until a session of the task starts: none runs now")


def forecast(
    message: Message,
    sessions: Sequence[Session],
    mutes: Collection[Mute],
    *,
    has_readers: bool = True,
    waiting: Collection[SessionKey] = (),
) -> Forecast:
    """Say what will happen to a message, from who is here now, and whether agents read its mailbox at all.

    `waiting` are sessions that were in a long poll when it was accepted.
    """
    if not has_readers:
        return Forecast(
            Outlook.NO_READER, f"is kept for you: no agent reads {message.mailbox}, there is no such recipient"
        )
    if is_muted(message, mutes):
        return Forecast(Outlook.MUTED, "is muted: stored, shown when somebody pulls")
    if message.attention is Attention.COUNT:
        return Forecast(Outlook.COUNTED, f"is only counted: {_why_counted(message)}")
    here = [s for s in sessions if message.mailbox in s.mailboxes and s.hears(message, mutes) and not s.is_helper]
    if not here:
        return _NOT_RUNNING if message.mailbox.startswith(TASK) else _NOBODY
    return _reached(message, here, waiting)


def is_due(scheduled: ScheduledMessage, sessions: Sequence[Session], now: datetime) -> bool:
    """Whether a scheduled message may enter its mailbox: its time has come, and so has its occasion."""
    schedule = scheduled.schedule
    if schedule.due_at is not None and now < schedule.due_at:
        return False
    if schedule.occasion is Occasion.IDLE:
        readers = readers_of(scheduled.message.mailbox, sessions)
        return bool(readers) and not any(session.is_at_work for session in readers)
    return not _in_turns(scheduled, sessions)


def readers_of(mailbox: Mailbox, sessions: Sequence[Session]) -> Sequence[Session]:
    """Return the sessions that are given what enters a mailbox."""
    return [session for session in sessions if mailbox in session.mailboxes and not session.is_helper]


def _in_turns(scheduled: ScheduledMessage, sessions: Sequence[Session]) -> Sequence[Session]:
    """Return the sessions that are still in the turn in which the message was accepted."""
    turns = scheduled.schedule.turns
    return [
        session
        for session in sessions
        if session.key in turns and session.is_at_work and turns[session.key] in ("", session.turn)
    ]


def scheduled_forecast(scheduled: ScheduledMessage, sessions: Sequence[Session], now: datetime) -> Forecast:
    """Say what a scheduled message waits for."""
    due_at, occasion = scheduled.schedule.due_at, scheduled.schedule.occasion
    if scheduled.withdrawn_at is not None:
        return Forecast(Outlook.SCHEDULED, f"was withdrawn at {format_moment(scheduled.withdrawn_at, now)}")
    until = [f"until {format_moment(due_at, now)}"] if due_at is not None and now < due_at else []
    if occasion is Occasion.IDLE:
        readers = readers_of(scheduled.message.mailbox, sessions)
        names = _names([each for each in readers if each.is_at_work] or readers)
        until += [f"until {names} is idle" if names else "until a session is here and idle"]
    elif occasion is Occasion.TURN and (working := _in_turns(scheduled, sessions)):
        until += [f"until {_names(working)} has ended this turn"]
    return Forecast(Outlook.SCHEDULED, f"waits {', and '.join(until)}" if until else "is due, and delivered now")


def as_if_stored(new: NewMessage, now: datetime) -> Message:
    """Return a message that is not stored as it would be, to say what would happen to it."""
    return Message(
        id=MessageId(""),
        mailbox=new.mailbox,
        seq=0,
        received_at=now,
        source=new.source,
        sender=new.sender,
        text=new.text,
        trust=new.trust,
        attention=new.attention,
        channel=new.channel,
        priority=new.priority,
    )


def _reached(message: Message, here: Sequence[Session], waiting: Collection[SessionKey]) -> Forecast:
    """Say how it comes to one of the sessions that are here, the last active first."""
    if polling := [s for s in here if s.presence is Presence.WAITING or (not s.is_elsewhere and s.key in waiting)]:
        return _at_once(message, polling)
    may_push = message.attention in (Attention.WAKE, Attention.BOUNDARY)
    hooked = [session for session in here if session.is_hooked]
    if may_push and (busy := [s for s in hooked if s.presence is Presence.BUSY]):
        return _between_calls(message, busy[0])
    if may_push and (left := [s for s in hooked if s.is_inherited and s.is_busy]):
        return _after_restart(left[0])
    if hosted := [s for s in here if s.is_hosted and s.wakers and message.attention in s.wake_attentions]:
        return _hosted(message, hosted)
    return _at_rest(message, here, hooked)


def _at_rest(message: Message, here: Sequence[Session], hooked: Sequence[Session]) -> Forecast:
    """Say how it comes to sessions that are not known to work."""
    idle = [s for s in here if s.wakers and not s.is_one_shot and s.presence is not Presence.BUSY]
    prompted = [s for s in hooked if not s.hindrance]  # of one that nobody may see any more, no prompt is promised
    if message.attention is Attention.WAKE and idle and (any(s.can_be_woken for s in idle) or not prompted):
        return _woken(message, idle)
    if hooked:
        return _with_prompt(message, prompted or hooked)
    return Forecast(Outlook.NEXT_CALL, f"is shown to {_names(here)} with its next Harken call")


def _at_once(message: Message, polling: Sequence[Session]) -> Forecast:
    names = _names(polling)
    if all(session.shows_in_result(message) for session in polling):
        return Forecast(Outlook.NOW, f"goes to {names} now, which is waiting for messages")
    return Forecast(
        Outlook.NOW, f"is announced to {names} now, which is waiting for messages, and read in pieces by inbox_read"
    )


def _between_calls(message: Message, session: Session) -> Forecast:
    if session.shows(message, "tool"):
        return Forecast(Outlook.BOUNDARY, f"goes to {session.label}, which is busy, between two tool calls")
    return Forecast(
        Outlook.BOUNDARY,
        f"is announced to {session.label}, which is busy, between two tool calls; it reads the text by inbox_pull",
    )


def _after_restart(session: Session) -> Forecast:
    return Forecast(
        Outlook.UNCERTAIN,
        f"goes to {session.label} between two tool calls if it still works: "
        "Harken was restarted, and that is not known yet",
    )


def _woken(message: Message, idle: Sequence[Session]) -> Forecast:
    session = next((session for session in idle if session.can_be_woken), idle[0])
    if not session.can_be_woken:
        waits = f"waits for the next session: {session.label} is not woken, {session.hindrance}"
        return Forecast(Outlook.UNCERTAIN, waits)
    if session.is_inherited:
        return Forecast(
            Outlook.UNCERTAIN,
            f"wakes {session.label} if it is idle: Harken was restarted, and that is not known yet",
        )
    standing = "which is idle" if session.presence is Presence.IDLE else "unless it is at work"
    if session.shows(message, "bell"):
        return Forecast(Outlook.WAKE, f"wakes {session.label}, {standing}")
    return Forecast(Outlook.WAKE, f"wakes {session.label}, {standing}, to read it by inbox_pull")


def _hosted(message: Message, hosted: Sequence[Session]) -> Forecast:
    if idle := [session for session in hosted if session.presence is not Presence.BUSY]:
        return _woken(message, idle)
    return Forecast(Outlook.WAKE, f"wakes {hosted[0].label} as soon as its turn is over: no hook of it runs meanwhile")


def _with_prompt(message: Message, hooked: Sequence[Session]) -> Forecast:
    if all(session.shows(message, "prompt") for session in hooked):
        return Forecast(Outlook.PROMPT, f"is shown to {_names(hooked)} with its next prompt")
    return Forecast(Outlook.PROMPT, f"is announced to {_names(hooked)} with its next prompt, and read by inbox_pull")


def _why_counted(message: Message) -> str:
    if message.trust is Trust.UNKNOWN:
        return f"{message.sender.label} is not known here (harken allow {message.sender.id})"
    return "the configuration says so for such messages"


def _names(sessions: Sequence[Session]) -> str:
    return ", ".join(sorted({session.label for session in sessions}))
