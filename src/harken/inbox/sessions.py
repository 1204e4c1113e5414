"""Sessions: who is here now, through what, idle, busy or waiting, and how each can be woken.

In memory; a `SessionRecord` of each is kept beside, so that a restarted daemon knows who was here and at work before
anybody speaks to it. What a session was given is in the store; this only knows whether it is here. A session is known
by its connection, by the host's own name for the conversation (`native`) and by the host's process; any of them may
come first.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, Protocol, Self

import msgspec
from anyio import CancelScope, move_on_after

from harken.errors import HarkenError
from harken.inbox.coverage import Coverage
from harken.inbox.frames import BLOCK_CHARS, FRAME_CHARS, OPENING_CHARS, on_one_line, width
from harken.inbox.turns import CarrierRecord, TurnLog
from harken.memory import json_bytes
from harken.model import (
    INBOX,
    Attention,
    Consumer,
    DeliveryId,
    Mailbox,
    Message,
    MessageId,
    Reader,
    SessionKey,
    TaskId,
    Trust,
    WakeResult,
)
from harken.store.contract.people import Mute

_log = logging.getLogger("harken.sessions")

MOST_LISTED = 1_000
_AROUND_BYTES = 1_500  # what a result has beside the text of a message
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
UNANSWERED = "whether it can be woken is not known: its program did not say in time"


class Presence(StrEnum):
    """What a session is doing, as far as Harken can tell."""

    CONNECTED = "connected"  # here; busy or idle is not known: it has no hooks, or none spoke since a restart
    IDLE = "idle"  # between two turns
    BUSY = "busy"  # in a turn
    WAITING = "waiting"  # in a long poll: gets a message at once


@dataclass(frozen=True, slots=True)
class NamedTask:
    """The task that a session was started for, wherever it runs: on the command line, or in the environment."""

    id: TaskId
    said_by: str = ""  # the agent in whose session that was said; empty for the person, who alone may


@dataclass(frozen=True, slots=True)
class Reading:
    """As whom a session reads, and what: its folder decides, or the task that was named for it."""

    consumer: Consumer
    mailboxes: tuple[Mailbox, ...] = (INBOX,)
    problem: HarkenError | None = None  # why it reads nothing: the named task is not there, or not for it


class ReadingOf(Protocol):
    """Decides how a session reads."""

    def __call__(self, cwd: str, agent: Consumer, named: NamedTask | None = None, /) -> Reading:
        """Return how a session in a folder reads, which by itself would be `agent`."""
        ...


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


class NamingOf(Protocol):
    """Decides whether a session may be the task that was named for it."""

    def __call__(self, task: str, pid: int, host: str, /) -> NamedTask | None:
        """Return the task as a process of a host has named it, and whether an agent has; None when it named none."""
        ...


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


def mailboxes_of(cwd: str, projects: Mapping[str, Sequence[str]]) -> tuple[Mailbox, ...]:
    """Return what a session in a folder reads: the inbox, and the mailbox of each project it is inside."""
    here = PurePath(cwd or "/")
    inside = [name for name, folders in projects.items() if any(here.is_relative_to(folder) for folder in folders)]
    return (INBOX, *(Mailbox(f"project:{name}") for name in inside))


def trial_of(cwd: str, folder: PurePath) -> Mailbox | None:
    """Return the mailbox of the trial that a session runs in: it must not take mail that is meant for others."""
    here = PurePath(cwd or "/")
    return Mailbox(f"trial:{here.relative_to(folder).parts[0]}") if folder in here.parents else None


def _reading(session: Session, reading_of: ReadingOf) -> Reading:
    return reading_of(session.cwd, session.agent, session.named)


class Sessions:
    """The registry of live sessions."""

    def __init__(self) -> None:
        self._live: dict[SessionKey, Session] = {}
        self._observers: list[Callable[[], None]] = []
        self._changed: set[SessionKey] = set()

    def observe(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever a session comes, goes or does something. It must be quick."""
        self._observers.append(changed)

    def note_change(self, *sessions: SessionKey) -> None:
        """Tell the observers that something happened, to these sessions if they are known."""
        self._changed.update(sessions)
        for changed in self._observers:
            changed()

    def take_changed(self) -> Collection[SessionKey]:
        """Return, once, the sessions that came, went or changed."""
        changed, self._changed = self._changed, set()
        return changed

    def inherit(self, sessions: Collection[Session]) -> None:
        """Take over the sessions that an earlier daemon knew."""
        self._live.update((session.key, session) for session in sessions)
        self.note_change(*(session.key for session in sessions))

    async def probe(self, session: Session, seconds: float) -> None:
        """Look whether a session can be woken, where its host has to be asked for that."""
        if session.probe is None:
            return
        hindrance = UNANSWERED
        with move_on_after(seconds):
            try:
                hindrance = await session.probe()
            except (HarkenError, OSError, ValueError, RuntimeError, ExceptionGroup):
                # A host's program says what it likes: a message is accepted all the same.
                _log.exception("looking whether %s can be woken failed", session.key)
        session.hindrance = hindrance

    def open(self, session: Session, edge: str, pusher: Pusher) -> Session:
        """Register a connection; a second one of the same session joins it."""
        known = self._live.get(session.key) or self._had(session.host, edge) or self._met(session)
        if known is not None and session.named is not None and known.named not in (None, session.named):
            # A second edge of the same process for another task is a session of its own.
            session.key = SessionKey(f"{session.key}/{session.named.id}")
            known = self._live.get(session.key)
        if known is None:
            known = self._live[session.key] = session
        known.connections[edge] = pusher
        known.surfaces = known.surfaces or session.surfaces
        known.note_process(session.pid, session.process_identity)
        known.is_host_process = True
        known.last_active = max(known.last_active, session.last_active)
        self.note_change(known.key)
        return known

    def _had(self, host: str, edge: str) -> Session | None:
        """Return the session that a connection belonged to before a restart."""
        return next((each for each in self._live.values() if each.host == host and edge in each.edges), None)

    def _met(self, session: Session) -> Session | None:
        """Return the session that hooks of the same process told of before this connection, which has no name, came."""
        if not session.is_nameless or session.has_many:
            return None
        known = self.of_process(session.host, session.pid)
        return known if known is not None and not known.is_nameless else None

    def meet(self, session: Session, pids: Sequence[int]) -> tuple[Session, SessionKey | None]:
        """Return the live session that a hook speaks for, and the key it had until now if that changes.

        Found by the host's own id, else by the process (the nearest of `pids`), else the given one is new.
        """
        known = self._live.get(session.key) or self._known(session, pids)
        if known is None:
            session.is_helper = self._is_helper(session, pids)
            self._live[session.key] = session
            return session, None
        if not known.is_hooked:
            known.is_helper = self._is_helper(known, pids)
        if not known.is_hooked:
            # An edge may have been started elsewhere; and later an agent that changes its folder is still the same one.
            known.cwd = session.cwd
            if known.named is None:
                known.named = session.named
                # A hook knows the name of its host only; an edge may have been started with another (`--consumer`).
                consumer = known.agent if session.consumer == session.agent else session.consumer
                # What it was given as somebody else is offered to whoever that is.
                known.is_replaced |= known.read(Reading(consumer, session.mailboxes, session.problem))
        if known.is_inherited and known.native not in ("", session.native or known.native):
            # Another conversation began in the same process while nobody was there to hear of it.
            known.begin_anew()
            known.is_replaced = True
        known.native = session.native or known.native
        if session.is_host_process or not known.is_host_process:
            known.note_process(session.pid, session.process_identity)
            known.is_host_process = session.is_host_process
        if not known.is_nameless or session.is_nameless:
            return known, None
        former = known.key
        del self._live[former]
        known.be_named(session.key)
        self._live[known.key] = known
        self._changed.update((former, known.key))
        return known, former

    def _known(self, session: Session, pids: Sequence[int]) -> Session | None:
        """Return the live session of the same conversation, else of the same process."""
        mine = [each for each in self.live() if each.host == session.host]
        for each in mine:
            if each.native == session.native != "":
                return each
        unnamed = [each for each in mine if not each.native]
        # An agent that another one started has that one's process above its own: it is not the same session.
        near = unnamed if session.has_many else [each for each in mine if each.pid == session.pid] + unnamed
        # Of several connections without a name nobody can say which is meant; a call will tell.
        sure = [s for s in near if not s.has_many or sum(s.pid == other.pid for other in near) == 1]
        return next((each for pid in (session.pid, *pids) for each in sure if each.pid == pid > 1), None)

    def _is_helper(self, session: Session, pids: Sequence[int]) -> bool:
        """Whether another agent that is here, and reads the same, has started a session: it does a part of its work."""
        above = pids[pids.index(session.pid) + 1 :] if session.pid in pids else ()
        hosts = [each for each in self._live.values() if each.is_host_process]
        others = [each for each in hosts if each.key != session.key and each.pid != session.pid]
        return any(each.pid > 1 and each.pid in above and each.consumer == session.consumer for each in others)

    def of_process(self, host: str, pid: int) -> Session | None:
        """Return the session of a host's process, of several the last active that hooks have told of."""
        return min(self.all_of_process(host, pid), key=lambda each: each.is_nameless, default=None)

    def all_of_process(self, host: str, pid: int) -> Sequence[Session]:
        """Return the sessions of a host's process, the last active first."""
        return [each for each in self.live() if each.host == host and each.pid == pid > 1]

    def bind(self, session: Session, edge: str, key: SessionKey, native: str) -> tuple[Session, SessionKey | None]:
        """Let a connection be of the conversation that it names; return that, and the key it had if that changes."""
        target = self._live.get(key)
        if target is None and session.is_nameless:
            former = session.key
            del self._live[former]
            session.be_named(key)
            session.native = native
            self._live[key] = session
            self._changed.update((former, key))
            return session, former
        if target is None:
            target = self._live[key] = Session(
                key=key,
                agent=session.agent,
                consumer=session.consumer,
                host=session.host,
                client=session.client,
                cwd=session.cwd,
                pid=session.pid,
                mailboxes=session.mailboxes,
                named=session.named,
                problem=session.problem,
                surfaces=session.surfaces,
                opened_at=session.opened_at,
                last_active=session.last_active,
                process_identity=session.process_identity,
                is_host_process=session.is_host_process,
                native=native,
                has_many=session.has_many,
                shares_connection=session.shares_connection,
                reports_interrupts=session.reports_interrupts,
                result_bytes=session.result_bytes,
            )
        target.surfaces = target.surfaces or session.surfaces
        pusher = session.connections.pop(edge, None)
        if pusher is not None:
            target.connections[edge] = pusher
        if session.is_nameless and not session.connections:
            self._live.pop(session.key, None)
        self.note_change(session.key, target.key)
        return target, None

    def end(self, key: SessionKey) -> bool:
        """Take a session away that said it is over; return whether it was here."""
        session = self._live.pop(key, None)
        if session is None:
            return False
        session.part()
        self.note_change(key)
        return True

    def close(self, key: SessionKey, edge: str) -> bool:
        """Take a connection away; return whether the session is gone with it."""
        session = self._live.get(key)
        if session is None:
            return False
        session.connections.pop(edge, None)
        session.edges -= {edge}
        session.awaited -= {edge}
        if session.connections or (session.is_hooked and not session.has_many):
            # Hooks know it without a connection; it ends when they say so, or with its process.
            return False
        return self.end(key)

    def read_anew(self, reading_of: ReadingOf) -> Sequence[SessionKey]:
        """Let every session read as its folder, or its task, now says; return those for which that is a change."""
        changed = [session.key for session in self._live.values() if session.read(_reading(session, reading_of))]
        if changed:
            self.note_change(*changed)
        return changed

    def name_task(self, session: Session, named: NamedTask, reading_of: ReadingOf) -> bool:
        """Let a session read as the task that it was started for; return whether that is a change."""
        session.named = named
        is_changed = session.read(_reading(session, reading_of))
        if is_changed:
            self.note_change(session.key)
        return is_changed

    def live(self) -> Sequence[Session]:
        """Return the live sessions, the last active first."""
        return sorted(self._live.values(), key=lambda session: session.last_active, reverse=True)

    def keys(self) -> Collection[SessionKey]:
        """Return the keys of the live sessions."""
        return tuple(self._live)

    def listeners(self, mailbox: Mailbox) -> Sequence[Session]:
        """Return the live sessions that read a mailbox."""
        return [each for each in self._live.values() if mailbox in each.mailboxes and not each.is_helper]

    def touch(self, key: SessionKey, now: datetime) -> None:
        """Note that a session did something."""
        if session := self._live.get(key):
            session.last_active = now

    def get(self, key: SessionKey) -> Session | None:
        """Return a live session."""
        return self._live.get(key)

    def last_active(self, key: SessionKey) -> float:
        """Return when a session did something last, as a number to compare; 0 for one that is not here."""
        session = self._live.get(key)
        return session.last_active.timestamp() if session else 0.0

    def waiting(self) -> Collection[SessionKey]:
        """Return the sessions that are in a long poll now."""
        return [session.key for session in self._live.values() if session.waits]

    @contextmanager
    def in_wait(self, key: SessionKey) -> Iterator[CancelScope]:
        """Count a session as waiting while the context is open; it is cancelled when that is to begin once more."""
        session = self._live.get(key)
        with CancelScope() as scope:
            if session is None:
                yield scope
                return
            session.waits.append(scope.cancel)
            try:
                yield scope
            finally:
                session.waits.remove(scope.cancel)
