"""Sessions: who is here now, through what, idle, busy or waiting, and how each can be woken.

In memory; a `SessionRecord` of each is kept beside, so that a restarted daemon knows who was here and at work before
anybody speaks to it. What a session was given is in the store; this only knows whether it is here. A session is known
by its connection, by the host's own name for the conversation (`native`) and by the host's process; any of them may
come first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Protocol, Self

import msgspec

from harken.errors import HarkenError
from harken.memory import json_bytes
from harken.model import (
    Attention,
    Consumer,
    DeliveryId,
    Mailbox,
    Message,
    MessageId,
    Reader,
    SessionKey,
    Trust,
    WakeResult,
)
from harken.sessions.coverage import Coverage
from harken.sessions.frames import BLOCK_CHARS, FRAME_CHARS, OPENING_CHARS, on_one_line, width
from harken.sessions.reading import NamedTask, Reading
from harken.sessions.turns import CarrierRecord, TurnLog
from harken.store.contract.people import Mute

MOST_LISTED = 1_000
_AROUND_BYTES = 1_500  # what a result has beside the text of a message
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Presence(StrEnum):
    """What a session is doing, as far as Harken can tell."""

    CONNECTED = "connected"  # here; busy or idle is not known: it has no hooks, or none spoke since a restart
    IDLE = "idle"  # between two turns
    BUSY = "busy"  # in a turn
    WAITING = "waiting"  # in a long poll: gets a message at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A hint that something arrived: never the body."""

    message: Message
    unread: int


class Pusher(Protocol):
    """A connection that can be given a hint. It must not block: a slow one drops hints, never messages."""

    def push(self, note: Note) -> None:
        """Hand over a hint."""
        ...

    def notify(self, method: str, params: Mapping[str, object]) -> bool:
        """Send any notification, as a probe does; return whether there was room for it."""
        ...

    def settle(self, turn: str = "") -> Collection[DeliveryId]:
        """Return, once, what answers that were written have carried: the end of the turn proves it."""
        ...

    def abandon(self, but_of: str = "") -> Collection[str]:
        """Return, once, the carriers of answers that were written in a turn that is over, and proves nothing."""
        ...


class Waker(Protocol):
    """A way to start a turn in an idle session."""

    @property
    def name(self) -> str:
        """The surface, as people and the ledger call it."""
        ...

    async def wake(self) -> WakeResult:
        """Hand over what waits."""
        ...


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a session over a restart of the daemon."""

    key: SessionKey
    agent: Consumer
    consumer: Consumer
    host: str
    client: str
    cwd: str
    pid: int
    mailboxes: tuple[Mailbox, ...]
    surfaces: tuple[str, ...]
    opened_at: Moment
    last_active: Moment
    process_identity: str = ""  # earlier versions did not note it
    is_host_process: bool = True
    named: NamedTask | None = None
    native: str = ""
    has_many: bool = False
    shares_connection: bool = False
    reports_results: bool = False
    reports_interrupts: bool = False
    is_helper: bool = False
    is_one_shot: bool = False
    is_busy: bool | None = None
    turn: str = ""
    moments: tuple[str, ...] = ()
    notice_moments: tuple[str, ...] = ()
    moment_chars: dict[str, int] = msgspec.field(default_factory=dict)
    result_bytes: int = 0
    edges: tuple[str, ...] = ()
    carriers: tuple[CarrierRecord, ...] = ()
    noticed: tuple[MessageId, ...] = ()
    oversize: tuple[MessageId, ...] = ()
    transcript: str = ""
    last_notice: str = ""
    stops: int = 0
    last_block: MessageId | None = None
    last_owed: tuple[MessageId, ...] = ()


@dataclass(slots=True, kw_only=True)
class Session:
    """One running conversation of an agent. Changes while it lives; only `Sessions` changes it."""

    key: SessionKey
    agent: Consumer  # who it is by itself, in no task's folder
    consumer: Consumer  # as whom it reads
    host: str
    client: str
    cwd: str
    pid: int
    mailboxes: tuple[Mailbox, ...]
    surfaces: tuple[str, ...]
    opened_at: datetime
    last_active: datetime
    process_identity: str = ""  # what no other process with the number `pid` has; empty when it is not known
    is_host_process: bool = True  # `pid` is the host; else only a hook said so, which somebody may have run by hand
    named: NamedTask | None = None
    problem: HarkenError | None = None  # why it reads nothing
    native: str = ""  # the host's own id of the conversation
    has_many: bool = False  # the host's process may have other conversations beside this one
    shares_connection: bool = False  # and they may speak through its connection
    reports_results: bool = False  # its hooks say which results of Harken's tools were its: calls prove nothing
    reports_interrupts: bool = False  # its host says when a turn is interrupted: one that seems busy is
    connections: dict[str, Pusher] = field(default_factory=dict[str, Pusher])
    is_helper: bool = False  # started by another agent that is here: it is given nothing that it does not ask for
    is_one_shot: bool = False  # it answers one prompt and ends: there is nothing to wake
    turn: str = ""  # the host's own name of the turn that it was last heard in
    broken_turn: str = ""  # the one that was interrupted last, where its name is known: late events mean nothing
    is_inherited: bool = False  # from before a restart; nothing has said since what it is doing
    is_replaced: bool = False  # another conversation has taken its place: what that one had is offered again
    edges: frozenset[str] = frozenset()  # connections that it had before a restart, and that may come back
    awaited: frozenset[str] = frozenset()  # of those, the ones that have not: what they carried is of the turn then
    hindrance: str = ""  # why it cannot be woken now; empty when it can, as far as is known
    probe: Callable[[], Awaitable[str]] | None = None  # looks whether it can be woken; returns the hindrance
    waits: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])  # what ends its long polls
    is_busy: bool | None = None  # None: no hook has said
    moments: set[str] = field(default_factory=set[str])  # which hooks have run: the proof that they are there
    notice_moments: frozenset[str] = frozenset()  # those that carry no outsider's words, only that some wait
    moment_chars: Mapping[str, int] = field(default_factory=dict[str, int])  # how much each of them carries
    result_bytes: int = 0  # how much of a result its host shows its model; 0: not known
    wakers: dict[str, Waker] = field(default_factory=dict[str, Waker])
    turns: TurnLog = field(default_factory=TurnLog)
    noticed: set[MessageId] = field(default_factory=set[MessageId])  # announced in this turn without their text
    oversize: set[MessageId] = field(default_factory=set[MessageId])  # of those, what fits no telling
    transcript: str = ""  # path of the host's own record of the conversation
    last_notice: str = ""  # what it was told last: a prompt that holds it is not the person's
    stops: int = 0  # how often in a row the end of its turn was held up
    farewells: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])  # called when it is gone
    last_block: MessageId | None = None  # newest of the channel messages that its last prompt carried
    last_owed: frozenset[MessageId] = frozenset()  # what it was last told to wait for its answer
    listed: frozenset[MessageId] = frozenset()  # what fits no result of its host, and was listed in one
    coverage: Coverage = field(default_factory=Coverage)  # what it was given of messages that it reads in pieces

    @property
    def presence(self) -> Presence:
        """What it is doing now."""
        if self.waits:
            return Presence.WAITING
        if self.is_busy is None or self.is_inherited:
            return Presence.CONNECTED
        return Presence.BUSY if self.is_busy else Presence.IDLE

    @property
    def is_waiting(self) -> bool:
        """Whether it is in a long poll."""
        return bool(self.waits)

    @property
    def told_of(self) -> Collection[MessageId]:
        """What was announced to it in this turn without its text."""
        return self.noticed

    @property
    def is_unproven(self) -> bool:
        """Whether its next event may prove something, or say at last what it is doing."""
        return bool(self.turns.carried) or (self.is_inherited and self.is_busy is not None)

    @property
    def is_hooked(self) -> bool:
        """Whether it is reached between its tool calls and with its prompts."""
        return bool(self.moments)

    @property
    def can_be_woken(self) -> bool:
        """Whether there is a way to start a turn in it, as far as is known."""
        return bool(self.wakers) and not self.is_one_shot and not self.hindrance

    def shows(self, message: Message, moment: str) -> bool:
        """Whether a moment carries a message's text, and not only that something waits."""
        is_notice = moment in self.notice_moments
        if is_notice and message.trust is not Trust.OWNER:
            return False
        if message.attention is Attention.PROMPT and not is_notice:
            return len(on_one_line(message.text)) <= BLOCK_CHARS
        most = self.moment_chars.get(moment)
        return most is None or width(message.text) + FRAME_CHARS + OPENING_CHARS <= most

    def shows_in_result(self, message: Message) -> bool:
        """Whether a result carries a message's text whole."""
        return not self.result_bytes or len(json_bytes(message.text)) + _AROUND_BYTES <= self.result_bytes

    @property
    def ways(self) -> Sequence[str]:
        """Every surface it can be reached through, in the order of the ladder."""
        hooks = [f"hook: {moment}" for moment in ("prompt", "tool", "stop") if moment in self.moments]
        return [*hooks, *self.wakers, *self.surfaces]

    @property
    def reader(self) -> Reader:
        """How it reads."""
        return Reader(consumer=self.consumer, session=self.key, mailboxes=self.mailboxes)

    @property
    def is_nameless(self) -> bool:
        """Whether its key is only that of a connection."""
        return self.key.startswith("edge:")

    def require_reading(self) -> None:
        """Raise what keeps this session from reading; it must not look like an inbox in which nothing waits."""
        if self.problem is not None:
            raise self.problem.with_traceback(None)

    def hears(self, message: Message, mutes: Collection[Mute]) -> bool:
        """Whether a message may push to this session: nothing that concerns it is muted."""
        return not is_muted(message, mutes, session=self.key, consumer=self.consumer)

    def read(self, reading: Reading) -> bool:
        """Read like this from now on; return whether that is a change."""
        self.problem = reading.problem
        if (self.consumer, self.mailboxes) == (reading.consumer, reading.mailboxes):
            return False
        self.consumer, self.mailboxes = reading.consumer, reading.mailboxes
        self.begin_anew()
        self.end_waits()
        return True

    def be_named(self, key: SessionKey) -> None:
        """Be known by a name of its own; what it waits for comes to it under that name."""
        self.key = key
        self.end_waits()

    def end_waits(self) -> None:
        """Let its long polls begin once more: it is known, or reads, otherwise now."""
        for end in self.waits:
            end()

    def note_listed(self, messages: Collection[MessageId]) -> None:
        """A result has listed what is too long for any; of very many, some may be listed once more."""
        before = self.listed if len(self.listed) < MOST_LISTED else frozenset[MessageId]()
        self.listed = before.union(messages)

    def forget_notices(self) -> None:
        """Another turn begins, or this one was interrupted: what was announced in it may be announced again."""
        self.noticed.clear()
        self.oversize.clear()

    def work(self, turn: str = "") -> None:
        """It is known to be in a turn; in this one, where that is known."""
        self.is_busy, self.is_inherited = True, False
        if turn in ("", self.broken_turn):
            self.broken_turn = ""

    def rest(self, broken_turn: str = "") -> None:
        """It is known to be between two turns; the last of them was interrupted, if it is named."""
        self.is_busy, self.is_inherited = False, False
        self.broken_turn = broken_turn or self.broken_turn

    @property
    def record(self) -> SessionRecord:
        """What is kept of it over a restart."""
        return SessionRecord(
            key=self.key,
            agent=self.agent,
            consumer=self.consumer,
            host=self.host,
            client=self.client,
            cwd=self.cwd,
            pid=self.pid,
            mailboxes=self.mailboxes,
            surfaces=self.surfaces,
            opened_at=self.opened_at,
            last_active=self.last_active,
            process_identity=self.process_identity,
            is_host_process=self.is_host_process,
            named=self.named,
            native=self.native,
            has_many=self.has_many,
            shares_connection=self.shares_connection,
            reports_results=self.reports_results,
            reports_interrupts=self.reports_interrupts,
            is_helper=self.is_helper,
            is_one_shot=self.is_one_shot,
            is_busy=self.is_busy,
            turn=self.turn,
            moments=tuple(sorted(self.moments)),
            notice_moments=tuple(sorted(self.notice_moments)),
            moment_chars=dict(self.moment_chars),
            result_bytes=self.result_bytes,
            edges=(*self.edges.difference(self.connections), *self.connections),
            carriers=tuple(self.turns.records),
            noticed=tuple(self.noticed),
            oversize=tuple(self.oversize),
            transcript=self.transcript,
            last_notice=self.last_notice,
            stops=self.stops,
            last_block=self.last_block,
            last_owed=tuple(self.last_owed),
        )

    @classmethod
    def inherited(cls, record: SessionRecord) -> Self:
        """Return a session as it was before a restart; what it is doing now, something has to say first."""
        return cls(
            key=record.key,
            agent=record.agent,
            consumer=record.consumer,
            host=record.host,
            client=record.client,
            cwd=record.cwd,
            pid=record.pid,
            mailboxes=record.mailboxes,
            surfaces=record.surfaces,
            opened_at=record.opened_at,
            last_active=record.last_active,
            process_identity=record.process_identity,
            is_host_process=record.is_host_process,
            named=record.named,
            native=record.native,
            has_many=record.has_many,
            shares_connection=record.shares_connection,
            reports_results=record.reports_results,
            reports_interrupts=record.reports_interrupts,
            is_helper=record.is_helper,
            is_one_shot=record.is_one_shot,
            is_inherited=True,
            is_busy=record.is_busy,
            turn=record.turn,
            moments=set(record.moments),
            notice_moments=frozenset(record.notice_moments),
            moment_chars=record.moment_chars,
            result_bytes=record.result_bytes,
            edges=frozenset(record.edges),
            awaited=frozenset(record.edges),
            turns=TurnLog.inherited(record.carriers),
            noticed=set(record.noticed),
            oversize=set(record.oversize),
            transcript=record.transcript,
            last_notice=record.last_notice,
            stops=record.stops,
            last_block=record.last_block,
            last_owed=frozenset(record.last_owed),
        )

    def note_process(self, pid: int, identity: str) -> None:
        """It runs in this process; 0 when whoever says so does not know."""
        if pid:
            self.process_identity = identity or (self.process_identity if pid == self.pid else "")
            self.pid = pid

    def begin_anew(self) -> None:
        """Forget what the conversation so far was told: another one begins, and can prove nothing of it."""
        for pusher in self.connections.values():
            pusher.settle()
        self.turns = TurnLog()
        self.forget_notices()
        self.last_notice, self.last_block, self.stops = "", None, 0
        self.last_owed, self.listed, self.coverage = frozenset(), frozenset(), Coverage()

    def forget_hooks(self) -> None:
        """Be known by a connection only, as before any hook ran."""
        self.is_busy, self.is_inherited, self.native = None, False, ""
        self.moments.clear()
        self.wakers.clear()
        self.part()

    def part(self) -> None:
        """Tell whoever waits to wake this session that it is over."""
        for farewell in tuple(self.farewells):
            farewell()

    def hint(self, message: Message, unread: int) -> None:
        """Tell every connection of this session that a message arrived."""
        for pusher in tuple(self.connections.values()):
            pusher.push(Note(message=message, unread=unread))


def is_muted(message: Message, mutes: Collection[Mute], *, session: str = "", consumer: str = "") -> bool:
    """Whether a mute keeps this message from pushing, at all or to this session."""
    names = {("channel", message.channel), ("sender", message.sender.id), ("sender", message.sender.name)}
    names |= {("session", session), ("session", consumer)} if session else set()
    return any((mute.kind, mute.name) in names for mute in mutes)
