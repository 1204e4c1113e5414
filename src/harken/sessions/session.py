"""Sessions: who is here now, through what, idle, busy or waiting, and how each can be woken.

In memory; a `SessionRecord` of each is kept beside, so that a restarted daemon knows who was here and at work before it
is spoken to. What a session was given is in the store; this only knows whether it is here. A session is known by its
connection, by the host's own name for the conversation (`native`) and by the host's process; any of them may come
first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Protocol, Self

import msgspec

from harken.errors import HarkenError
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
    SessionAddress,
    SessionKey,
    TaskId,
    Trust,
    WakeResult,
)
from harken.sessions.turns import (
    BLOCK_CHARS,
    FRAME_CHARS,
    OPENING_CHARS,
    CarrierRecord,
    Halt,
    HookEvent,
    HookMoment,
    SessionHalt,
    TurnLog,
    TurnPhase,
    TurnVerdict,
    holds,
    on_one_line,
    width,
)
from harken.store.contract.people import Mute

MAX_LISTED = 1_000
MAX_MESSAGES_IN_PIECES = 200
MAX_SPANS = 200  # of one message
_AROUND_BYTES = 1_500  # what a result has beside the text of a message
ZonedTime = Annotated[datetime, msgspec.Meta(tz=True)]
Span = tuple[int, int]
"""Part of a text: its first character, and the one after its last."""


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
    opened_at: ZonedTime
    last_active: ZonedTime
    machine: str = ""
    satellite: str = ""
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
    is_hosted: bool = False
    has_token: bool = False
    is_busy: bool | None = None
    is_at_rest: bool = False
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
    halt: SessionHalt | None = None


_RECORDED: Final = (
    "key", "agent", "consumer", "host", "client", "cwd", "pid", "mailboxes", "surfaces", "opened_at", "last_active",
    "machine", "satellite", "process_identity", "is_host_process", "named", "native", "has_many", "shares_connection",
    "reports_results", "reports_interrupts", "is_helper", "is_one_shot", "is_hosted", "has_token", "is_busy",
    "is_at_rest", "turn", "result_bytes", "transcript", "halt",
)  # fmt: skip
"""The fields that a session and its record have alike."""


class Coverage:
    """What one conversation was given of the messages that it reads in pieces."""

    def __init__(self) -> None:
        self._spans: dict[MessageId, tuple[Span, ...]] = {}

    def add(self, message: MessageId, span: Span) -> None:
        """A piece was given. Of very many messages, or scattered pieces, the oldest are forgotten."""
        spans = _merged([*self._spans.pop(message, ()), span])
        self._spans[message] = spans[-MAX_SPANS:]
        if len(self._spans) > MAX_MESSAGES_IN_PIECES:
            del self._spans[next(iter(self._spans))]

    def gap(self, message: MessageId, length: int, span: Span) -> int | None:
        """Return the first character that is not given, counting a piece that is about to be; None when all is."""
        spans = _merged([*self._spans.get(message, ()), span])
        end = spans[0][1] if spans[0][0] == 0 else 0
        return end if end < length else None


def _merged(spans: list[Span]) -> tuple[Span, ...]:
    """Return the same parts, in order, with those joined that touch."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return tuple(joined)


@dataclass(slots=True, kw_only=True)
class Session:
    """One running conversation of an agent. Changes while it lives, by its own methods and by `Sessions`.

    Nothing outside this package assigns its attributes.
    """

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
    machine: str = ""  # where it runs; empty: on the machine of this daemon, which is the only one
    satellite: str = ""  # the satellite that it runs on; empty: the machine of the daemon
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
    is_hosted: bool = False  # it has no terminal: the daemon speaks its protocol, alone or beside an editor
    has_token: bool = False  # its token says as whom it reads, and what: no folder, and no task that is named
    turn: str = ""  # the host's own name of the turn that it was last heard in
    daemon: str = ""  # another one of the same store that has it, and reaches it; empty: this one
    is_inherited: bool = False  # from before a restart; nothing has said since what it is doing
    is_replaced: bool = False  # another conversation has taken its place: what that one had is offered again
    edges: frozenset[str] = frozenset()  # connections that it had before a restart, and that may come back
    hindrance: str = ""  # why it cannot be woken now; empty when it can, as far as is known
    probe: Callable[[], Awaitable[str]] | None = None  # looks whether it can be woken; returns the hindrance
    is_busy: bool | None = None  # None: no hook has said
    halt: SessionHalt | None = None  # why it does not go on by itself, as far as its host tells
    is_at_rest: bool = False  # it was noted that it has nothing to do until it is spoken to
    moments: set[str] = field(default_factory=set[str])  # which hooks have run: the proof that they are there
    notice_moments: frozenset[str] = frozenset()  # those that carry no outsider's words, only that some wait
    moment_chars: Mapping[str, int] = field(default_factory=dict[str, int])  # how much each of them carries
    result_bytes: int = 0  # how much of a result its host shows its model; 0: not known
    wakers: dict[str, Waker] = field(default_factory=dict[str, Waker])
    transcript: str = ""  # path of the host's own record of the conversation
    coverage: Coverage = field(default_factory=Coverage)  # what it was given of messages that it reads in pieces
    _turns: TurnLog = field(default_factory=TurnLog, init=False)
    _broken_turn: str = field(default="", init=False)  # interrupted last, if it has a name: late events mean nothing
    _awaited: frozenset[str] = field(default=frozenset(), init=False)  # `edges` that have not come back
    _waits: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]], init=False)
    _noticed: set[MessageId] = field(default_factory=set[MessageId], init=False)  # announced in this turn, without text
    _oversize: set[MessageId] = field(default_factory=set[MessageId], init=False)  # of those, what fits no telling
    _last_notice: str = field(default="", init=False)  # told last: a prompt that holds it is not the person's
    _stops: int = field(default=0, init=False)  # how often in a row the end of its turn was held up
    _farewells: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]], init=False)
    _last_block: MessageId | None = field(default=None, init=False)  # newest channel message its last prompt carried
    _last_owed: frozenset[MessageId] = field(default=frozenset(), init=False)  # last told to wait for its answer
    _listed: frozenset[MessageId] = field(default=frozenset(), init=False)  # fits no result, and was listed in one

    @property
    def presence(self) -> Presence:
        """What it is doing now."""
        if self._waits:
            return Presence.WAITING
        if self.is_busy is None or self.is_inherited:
            return Presence.CONNECTED
        return Presence.BUSY if self.is_busy else Presence.IDLE

    @property
    def is_at_work(self) -> bool:
        """Whether it is in a turn, also when only a restart has made that uncertain; not while it waits for messages.

        Of a session without hooks it is not known, and not assumed.
        """
        return self.is_busy is True and self.presence is not Presence.WAITING

    @property
    def is_waiting(self) -> bool:
        """Whether it is in a long poll."""
        return bool(self._waits)

    @property
    def told_of(self) -> Collection[MessageId]:
        """What was announced to it in this turn without its text."""
        return self._noticed

    @property
    def too_long(self) -> Collection[MessageId]:
        """Of `told_of`, what fits no telling."""
        return self._oversize

    @property
    def listed(self) -> frozenset[MessageId]:
        """What fits no result of its host, and was listed in one."""
        return self._listed

    @property
    def unproven(self) -> Collection[DeliveryId]:
        """What hooks and wakes carried to it without proof."""
        return self._turns.carried

    @property
    def carriers(self) -> Collection[str]:
        """What carried `unproven`."""
        return self._turns.carriers

    @property
    def has_wakes(self) -> bool:
        """Whether a wake is unproven: its host's record may show it at any time."""
        return self._turns.has_wakes

    @property
    def is_unproven(self) -> bool:
        """Whether its next event may prove something, or say at last what it is doing."""
        return bool(self._turns.carried) or (self.is_inherited and self.is_busy is not None)

    @property
    def is_hooked(self) -> bool:
        """Whether it is reached between its tool calls and with its prompts."""
        return bool(self.moments)

    @property
    def wake_attentions(self) -> frozenset[Attention]:
        """What it is woken for. One that the daemon hosts gets no prompt otherwise, for which other mail would wait."""
        return frozenset({Attention.WAKE, Attention.BOUNDARY} if self.is_hosted else {Attention.WAKE})

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
    def label(self) -> str:
        """Its consumer, and its machine if there are several: the name by which people are told of it."""
        return f"{self.consumer} on {self.machine}" if self.machine else f"{self.consumer}"

    @property
    def is_elsewhere(self) -> bool:
        """Whether another daemon of the same store has it."""
        return bool(self.daemon)

    @property
    def address(self) -> SessionAddress:
        """What no other session of the store has: two daemons may have sessions with the same key."""
        return self.daemon, self.key

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

    def read(self, reading: MailScope) -> bool:
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
        for end in self._waits:
            end()

    def note_listed(self, messages: Collection[MessageId]) -> None:
        """A result has listed what is too long for any; of very many, some may be listed once more."""
        before = self._listed if len(self._listed) < MAX_LISTED else frozenset[MessageId]()
        self._listed = before.union(messages)

    def forget_notices(self) -> None:
        """Another turn begins, or this one was interrupted: what was announced in it may be announced again."""
        self._noticed.clear()
        self._oversize.clear()

    def work(self, turn: str = "") -> None:
        """It is known to be in a turn; in this one, where that is known."""
        self.is_busy, self.is_inherited, self.is_at_rest, self.halt = True, False, False, None
        if turn in ("", self._broken_turn):
            self._broken_turn = ""

    def rest(self, broken_turn: str = "") -> None:
        """It is known to be between two turns; the last of them was interrupted, if it is named."""
        self.is_busy, self.is_inherited = False, False
        if self.halt is not None and self.halt.kind is Halt.WAITS:
            self.halt = None
        self._broken_turn = broken_turn or self._broken_turn

    def stop_working(self, kind: Halt, at: datetime, reason: str) -> bool:
        """It does not go on by itself; return whether that is news. A host may ask more than once in a turn."""
        is_news = kind is Halt.WAITS or self.halt is None or self.halt.kind is not kind
        if is_news:
            self.halt = SessionHalt(kind=kind, at=at, reason=reason)
        return is_news

    def note_halt_told(self) -> None:
        """The person was told of its halt, or need not be."""
        self.halt = self.halt and msgspec.structs.replace(self.halt, is_told=True)

    def come_to_rest(self) -> bool:
        """It has nothing to do until it is spoken to; return whether that is news."""
        is_news, self.is_at_rest = not self.is_at_rest, True
        return is_news

    def leave_rest(self) -> None:
        """It was given something to do, or its rest could not be noted."""
        self.is_at_rest = False

    # -- its hooks and its turn -------------------------------------------------------------------------------

    def hook_ran(self, moment: HookMoment, *, notice_moments: frozenset[str], moment_chars: Mapping[str, int]) -> None:
        """A hook ran: it is reached at that moment from now on, and each of them carries so much."""
        self.moments.add(moment.value)
        self.notice_moments, self.moment_chars = notice_moments, moment_chars

    def ignores(self, event: HookEvent) -> bool:
        """Whether an event came too late to mean anything.

        It is a tool of an interrupted turn, with a result that no model reads; or the end of a turn that another one
        has followed.
        """
        is_late = event.moment is HookMoment.TOOL and event.turn == self._broken_turn != ""
        is_end = event.is_interrupted or (event.moment is HookMoment.START and self.reports_interrupts)
        is_named = bool(event.turn) and bool(self.turn)
        is_past = is_end and is_named and event.turn != self.turn and not self.is_inherited
        if is_late or is_past:
            self._broken_turn = event.turn
        return is_late or is_past

    def says(self, prompt: str) -> bool:
        """Whether a prompt is what Harken itself said: it is not a new one of the person's."""
        notice = self._last_notice
        return any(holds(prompt, each) for each in self.unproven) or (bool(notice) and notice in prompt)

    def judge(self, event: HookEvent, recorded: Collection[str]) -> TurnVerdict:
        """Return what an event proves of what hooks and wakes carried."""
        match event.moment:
            case HookMoment.PROMPT:
                return self._turns.submitted(event.prompt, event.turn, recorded=recorded)
            case HookMoment.TOOL:
                return self._turns.stepped(event.turn, is_step=event.is_step)
            case HookMoment.STOP:
                return self._turns.ended(event.turn, recorded=recorded)
            case _:
                return TurnVerdict()

    def note_transcript(self, path: str) -> None:
        """Its host's own record of the conversation is there; empty when an event does not say."""
        self.transcript = path or self.transcript

    def note_results(self, *, can_tell: bool) -> None:
        """Its hooks can tell which results of Harken's tools were its: then its calls prove nothing."""
        self.reports_results = self.reports_results or can_tell

    def be_hosted(self) -> None:
        """The daemon speaks its protocol: it needs no other connection, and its turns begin and end as that says."""
        self.is_hosted, self.is_helper, self.reports_interrupts = True, False, True
        self.rest()

    def note_one_shot(self, *, is_one_shot: bool) -> None:
        """Its host's command line says whether it answers one prompt and ends."""
        self.is_one_shot = is_one_shot

    def follow(self, turn: str) -> None:
        """It was heard in this turn; empty where its host does not name turns."""
        self.turn = turn

    def take_replaced(self) -> bool:
        """Return, once, whether another conversation has taken its place: what that one had is offered again."""
        is_replaced, self.is_replaced = self.is_replaced, False
        return is_replaced

    def settled(self, turn: str) -> Collection[DeliveryId]:
        """Return, once, what answers carried in a turn that has ended."""
        return [delivery for pusher in self.connections.values() for delivery in pusher.settle(turn)]

    def begin_turn(self, turn: str, *, is_own: bool) -> None:
        """A prompt was submitted; `is_own`: by Harken, so that it counts how often turns were held up on."""
        self.work(turn)
        self._stops = self._stops if is_own else 0

    def went_idle(self, turn: str = "") -> None:
        """Nothing runs in it any more: a conversation begins, or its turn was interrupted."""
        self.rest(turn)
        self.forget_notices()

    def can_be_held_up(self, most: int) -> bool:
        """Whether the end of its turn may be held up once more."""
        return self._stops < most

    def held_up(self) -> None:
        """The end of its turn is held up: it goes on."""
        self._stops += 1

    def not_held_up(self) -> None:
        """What should have held up the end of its turn did not arrive."""
        self._stops -= 1
        self.rest()

    # -- what it is told --------------------------------------------------------------------------------------

    @property
    def last_told(self) -> tuple[MessageId | None, frozenset[MessageId]]:
        """The newest channel message that it was shown with a prompt, and what it was last told to answer."""
        return self._last_block, self._last_owed

    def begin_wake(self) -> None:
        """A turn of its own begins: how often earlier ones were held up does not matter for it."""
        self._stops = 0

    def show_block(self, newest: MessageId) -> None:
        """Its prompt carries channel messages up to this one."""
        self._last_block = newest

    def owe(self, messages: frozenset[MessageId]) -> bool:
        """It is told that these wait for its answer; return whether that is news."""
        before, self._last_owed = self._last_owed, messages
        return messages != before

    def announce(self, messages: frozenset[MessageId], notice: str) -> None:
        """It is told of messages without their text, by a notice; none and empty when there is nothing to tell of."""
        self._noticed |= messages
        self._last_notice = notice

    def note_too_long(self, messages: Collection[MessageId]) -> None:
        """These fit no telling: it is told of them only once."""
        self._oversize.update(messages)

    def carry(self, carrier: str, deliveries: Collection[DeliveryId], phase: TurnPhase, *, turn: str = "") -> None:
        """Note what a hook or a wake is about to hand over to it."""
        self._turns.carry(carrier, deliveries, phase, turn=turn)

    def carried(self, carrier: str) -> None:
        """Its host has what a carrier carried: from now on its events can prove it."""
        self._turns.confirm(carrier)

    def carried_result(self, carrier: str, deliveries: Collection[DeliveryId], turn: str) -> None:
        """A result of Harken's own tools carried this, in a turn with hooks that can prove it."""
        self._turns.carry(carrier, deliveries, TurnPhase.STEP, turn=turn)
        self._turns.confirm(carrier)

    def not_carried(
        self,
        carrier: str,
        announced: frozenset[MessageId],
        last_told: tuple[MessageId | None, frozenset[MessageId]] | None = None,
    ) -> None:
        """A text did not arrive, or may not have: what it announced may be announced again.

        With `last_told` it surely did not: that is what the session was told before.
        """
        self._turns.forget(carrier)
        self._noticed -= announced
        self._oversize -= announced
        if last_told is not None:
            self._last_block, self._last_owed = last_told

    def forget_carrier(self, carrier: str) -> bool:
        """What a carrier carried did not arrive; return whether it had no proof yet."""
        return self._turns.forget(carrier)

    def forget_last_told(self) -> None:
        """A prompt that carried something was taken back: what it showed may be shown again."""
        self._last_block, self._last_owed = None, frozenset()

    def give_up_wakes(self) -> Sequence[str]:
        """Wait no longer for the proof of wakes; return their carriers."""
        return self._turns.give_up_wakes()

    def written(self, recorded: Collection[str]) -> TurnVerdict:
        """Return what its host's record proves, in whichever turn it was."""
        return self._turns.written(recorded)

    # -- after a restart --------------------------------------------------------------------------------------

    def inherit_result(self, carrier: str, delivery: DeliveryId, *, is_printed: bool = True) -> None:
        """Before a restart, the result of a call carried this in the turn that it was in then."""
        self._turns.inherit(carrier, delivery, self.turn, is_printed=is_printed)

    def lose(self, edge: str) -> None:
        """A connection is gone."""
        self.connections.pop(edge, None)
        self.edges -= {edge}
        self._awaited -= {edge}

    def edge_came_back(self, edge: str) -> bool:
        """A connection from before a restart is here again; return whether it was still waited for."""
        is_awaited = edge in self._awaited
        self._awaited -= {edge}
        return is_awaited

    def give_up_edges(self, event: HookEvent) -> Collection[str]:
        """Return, once, connections from before a restart that an event tells of another turn before: not of theirs."""
        is_same = event.turn == self.turn and not event.is_interrupted
        is_first = event.moment in (HookMoment.START, HookMoment.PROMPT) and not event.turn
        if event.moment is HookMoment.BELL or (is_same and not is_first):
            return ()
        edges, self._awaited = self._awaited, frozenset[str]()
        return edges

    # -- how it is woken --------------------------------------------------------------------------------------

    def add_wakers(self, wakers: Collection[Waker], *, is_better: bool = True) -> None:
        """Let it be woken by these too; `is_better`: in the place of those with the same names."""
        found = {waker.name: waker for waker in wakers if is_better or waker.name not in self.wakers}
        self.wakers = self.wakers | found

    def prefer_waker(self, waker: Waker) -> None:
        """Let it be woken by this before anything else."""
        self.wakers = {waker.name: waker, **self.wakers}

    @contextmanager
    def woken_by(self, waker: Waker, over: Callable[[], None]) -> Iterator[None]:
        """Let it be woken by this while the context is open; call `over` when it is gone."""
        self.wakers[waker.name] = waker
        self._farewells.append(over)
        try:
            yield
        finally:
            self._farewells.remove(over)
            if self.wakers.get(waker.name) is waker:
                del self.wakers[waker.name]

    def ask_before_waking(self, probe: Callable[[], Awaitable[str]]) -> None:
        """Its host has to be asked whether it can be woken; `probe` returns what hinders it."""
        self.probe = probe

    def note_hindrance(self, reason: str) -> None:
        """It cannot be woken now; empty: it can, as far as is known."""
        self.hindrance = reason

    async def look(self) -> str:
        """Ask its host whether it can be woken now; return what hinders it."""
        if self.probe is not None:
            self.hindrance = await self.probe()
        return self.hindrance

    def begin_wait(self, end: Callable[[], None]) -> None:
        """Be in a long poll from now on; `end` is called when that is to begin once more."""
        self._waits.append(end)

    def end_wait(self, end: Callable[[], None]) -> None:
        """A long poll is over."""
        self._waits.remove(end)

    @property
    def record(self) -> SessionRecord:
        """What is kept of it over a restart."""
        return SessionRecord(
            **{name: getattr(self, name) for name in _RECORDED},
            moments=tuple(sorted(self.moments)),
            notice_moments=tuple(sorted(self.notice_moments)),
            moment_chars=dict(self.moment_chars),
            edges=(*self.edges.difference(self.connections), *self.connections),
            carriers=tuple(self._turns.records),
            noticed=tuple(self._noticed),
            oversize=tuple(self._oversize),
            last_notice=self._last_notice,
            stops=self._stops,
            last_block=self._last_block,
            last_owed=tuple(self._last_owed),
        )

    @classmethod
    def inherited(cls, record: SessionRecord) -> Self:
        """Return a session as it was before a restart; what it is doing now, something has to say first."""
        session = cls(
            **{name: getattr(record, name) for name in _RECORDED},
            is_inherited=True,
            moments=set(record.moments),
            notice_moments=frozenset(record.notice_moments),
            moment_chars=record.moment_chars,
            edges=frozenset(record.edges),
        )
        session._awaited = frozenset(record.edges)
        session._turns = TurnLog.inherited(record.carriers)
        session._noticed, session._oversize = set(record.noticed), set(record.oversize)
        session._last_notice, session._stops = record.last_notice, record.stops
        session._last_block, session._last_owed = record.last_block, frozenset(record.last_owed)
        return session

    def note_process(self, pid: int, identity: str) -> None:
        """It runs in this process; 0 when that is not known."""
        if pid:
            self.process_identity = identity or (self.process_identity if pid == self.pid else "")
            self.pid = pid

    def begin_anew(self) -> None:
        """Forget what the conversation so far was told: another one begins, and can prove nothing of it."""
        for pusher in self.connections.values():
            pusher.settle()
        self._turns = TurnLog()
        self.forget_notices()
        self.halt, self._last_notice, self._last_block, self._stops = None, "", None, 0
        self._last_owed, self._listed, self.coverage = frozenset(), frozenset(), Coverage()

    def forget_hooks(self) -> None:
        """Be known by a connection only, as before any hook ran."""
        self.is_busy, self.is_inherited, self.native = None, False, ""
        self.moments.clear()
        self.wakers.clear()
        self.part()

    def part(self) -> None:
        """Tell the program that waits to wake this session that it is over."""
        for farewell in tuple(self._farewells):
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


@dataclass(frozen=True, slots=True)
class NamedTask:
    """The task that a session was started for, wherever it runs: on the command line, or in the environment."""

    id: TaskId
    said_by: str = ""  # the agent in whose session that was said; empty for the person, who alone may


@dataclass(frozen=True, slots=True)
class MailScope:
    """The consumer that a session reads as, and its mailboxes: its folder decides, or the task named for it."""

    consumer: Consumer
    mailboxes: tuple[Mailbox, ...] = (INBOX,)
    problem: HarkenError | None = None  # why it reads nothing: the named task is not there, or not for it
