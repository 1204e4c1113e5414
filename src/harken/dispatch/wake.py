"""Wakes an idle session for a message that may do so: one session, the last active, by the first way that works.

Deciding who (`choose`) is pure and apart from doing it. A busy session is left alone, it gets the message between two
tool calls; but many hosts do not say when a person interrupts a turn, so one that took nothing for a while is woken
too. A run that answers one prompt and ends is never woken. A wake without proof is given up after a time: what it
carried is offered by the next surface, as a repeat. Where daemons share a store, each chooses among the sessions of all
of them, and wakes its own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import anyio
from anyio.abc import TaskGroup

from harken.clock import Clock, Signal
from harken.dispatch.bells import WaitingQuery
from harken.errors import HarkenError
from harken.model import (
    WATCH,
    Consumer,
    Delivery,
    DeliveryState,
    Message,
    MessageId,
    SessionAddress,
    SessionKey,
    WakeResult,
)
from harken.sessions.registry import Sessions
from harken.sessions.session import Session
from harken.sessions.turns import HookMoment
from harken.store.contract import Changes

_log = logging.getLogger("harken.wake")

PATIENCE = timedelta(seconds=20)  # how long a busy session has to take a message between two tool calls
UNSURE = timedelta(minutes=2)  # the same where the host would have told of an interruption, but a restart came between
ANSWER = timedelta(seconds=15)  # how long a bell has to be answered before another way is tried
LONGEST_STEP = timedelta(minutes=30)  # how long a busy session may keep a wake back
PROOF = timedelta(seconds=60)  # how long a wake has to show that it worked
FRESH = timedelta(hours=1)  # older mail waits for the next prompt: nobody expects to be woken for it
WAKE_SECONDS = 30.0
SETTLE = timedelta(seconds=2)  # how long a session that has just come needs until it listens
FIRST_PROMPT_GRACE = timedelta(seconds=10)  # how long what waited for a session is left to its first prompt
MAX_TRIES = 3
MAX = 20
MAX_SESSIONS = 50
MAX_TRIED = 10_000
BREATH_SECONDS = 0.1
LOOK_EVERY_SECONDS = 30.0  # a lease that runs out rings nowhere

Ledger = Callable[[MessageId], Awaitable[Sequence[Delivery]]]
GiveUp = Callable[[SessionKey], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeChoice:
    """Which session to wake and how, or when to look again."""

    session: Session | None = None
    way: str = ""
    look_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Tries:
    """How often a way was tried for a message, and when last."""

    count: int = 0
    last: datetime | None = None

    def again_at(self, now: datetime) -> datetime | None:
        """Return when it may be tried again; None: not any more."""
        if self.count >= MAX_TRIES:
            return None
        return now if self.last is None else self.last + ANSWER


Tried = Mapping[tuple[MessageId, SessionAddress, str], Tries]


def patience(session: Session) -> timedelta:
    """Return how long a session that seems busy has to take a message between two tool calls."""
    if not session.reports_interrupts:
        return PATIENCE
    return UNSURE if session.is_inherited else LONGEST_STEP


def choose(message: Message, sessions: Sequence[Session], tried: Tried, now: datetime) -> WakeChoice:
    """Choose among the sessions for which a message waits, the last active first.

    A way that was not tried comes before one that was; the same one has a while before it is tried again, because a
    host may not have listened yet.
    """
    if any(session.is_waiting or (session.is_busy and message.id in session.told_of) for session in sessions):
        return WakeChoice()
    # Whoever was told and ended its turn without reading is not told again; others may be.
    sessions = [session for session in sessions if message.id not in session.told_of]
    for session in sessions:
        since = max(message.received_at, session.last_active)
        if session.is_busy and now < since + patience(session):
            return WakeChoice(look_at=since + patience(session))
    # One that cannot be woken now is looked at again when that changes.
    sessions = [session for session in sessions if not session.is_one_shot and not session.hindrance]
    ways = list[tuple[int, datetime, Session, str]]()
    for session in sorted(sessions, key=lambda each: bool(each.is_busy)):
        for way in session.wakers:
            tries = tried.get((message.id, session.address, way), Tries())
            due = tries.again_at(max(now, _listens_at(session, message)))
            ways += [(tries.count, due, session, way)] if due is not None else []
    if not ways:
        return WakeChoice()
    _, due_at, chosen, way = min(ways, key=lambda each: each[0])
    return WakeChoice(session=chosen, way=way) if due_at <= now else WakeChoice(look_at=due_at)


def _listens_at(session: Session, message: Message) -> datetime:
    """Return when a session may be woken for a message.

    A new session is about to get a prompt, which brings what waited. A wake at that moment may come after it, and the
    host would queue the text until the end of the turn.
    """
    is_new = HookMoment.START in session.moments and HookMoment.PROMPT not in session.moments
    brings_it = is_new and message.received_at < session.opened_at
    return session.opened_at + (FIRST_PROMPT_GRACE if brings_it else SETTLE)


class Wakes:
    """The loop that wakes."""

    def __init__(
        self,
        changes: Changes,
        sessions: Sessions,
        clock: Clock,
        *,
        waiting: WaitingQuery,
        ledger: Ledger,
        give_up: GiveUp,
    ) -> None:
        self._changes = changes
        self._sessions = sessions
        self._clock = clock
        self._waiting = waiting
        self._ledger = ledger
        self._give_up = give_up
        self._tried: dict[tuple[MessageId, SessionAddress, str], Tries] = {}
        self._unproven: dict[SessionKey, _Wake] = {}
        self._under_way: dict[MessageId, datetime] = {}
        self._waking: set[SessionKey] = set()
        self._tasks: TaskGroup | None = None
        self._look = Signal()
        sessions.observe(self._look.ring)

    def expect_proof(self, session: SessionKey) -> None:
        """Wait for the proof of what a wake carried before a restart, as long as for one of now."""
        now = self._clock.now()
        self._unproven[session] = _Wake(now, now + PROOF)

    async def run(self) -> None:
        """Look whenever something changes or is due, for ever."""
        async with anyio.create_task_group() as self._tasks:
            with self._changes.listen(self._look.ring):
                while True:
                    due = await self.look()
                    pause = LOOK_EVERY_SECONDS if due is None else max(0.05, (due - self._clock.now()).total_seconds())
                    await self._look.wait(min(pause, LOOK_EVERY_SECONDS))
                    # Hosts that take nothing must not keep the daemon busy with asking them.
                    await anyio.sleep(BREATH_SECONDS)

    async def look(self) -> datetime | None:
        """Wake the sessions that should be; return when to look again."""
        await self._lapse()
        due = [wake.until for wake in self._unproven.values()]
        waiting = await self._by_message()
        for message, first in waiting:
            if message.id in self._under_way:
                due.append(self._under_way[message.id])
                continue
            if await self._is_taken(message, {session.reader.consumer for session in first}):
                continue
            # Asked anew: sessions are asked one after the other, and it may have come in between.
            here = self._among(self._sessions.everywhere())
            sessions = [s for s in here if await self._waiting(s.reader, s.wake_attentions, 1, only=[message.id])]
            choice = choose(message, sessions, self._tried, self._clock.now())
            if choice.look_at is not None:
                due.append(choice.look_at)
            if choice.session is not None and choice.session.is_elsewhere:
                due.append(self._leave_to_other(choice.session, message))
            elif choice.session is not None and choice.session.reader.session not in self._waking:
                together = [m for m, others in waiting if choice.session in others]
                due.append(await self._begin(choice.session, choice.way, together))
        return min(due, default=None)

    async def _by_message(self) -> list[tuple[Message, list[Session]]]:
        """Return what may wake a session now, with the sessions it waits for."""
        found: dict[MessageId, tuple[Message, list[Session]]] = {}
        since = self._clock.now() - FRESH
        for session in self._among(self._sessions.live()):
            # What a session was told of without its text must not hide what came after it.
            wakes, told = session.wake_attentions, session.told_of
            for message in await self._waiting(session.reader, wakes, MAX, without=told, since=since):
                found.setdefault(message.id, (message, []))[1].append(session)
        return list(found.values())

    def _among(self, sessions: Sequence[Session]) -> Sequence[Session]:
        """Return the consumers that can be reached or have asked: others would be enrolled by being asked for."""
        here = [s for s in sessions if s.wakers or s.is_waiting or s.is_busy is not None]
        here = [session for session in here if not session.is_helper]
        # Somebody with that many open conversations looks at the last ones.
        return here[:MAX_SESSIONS]

    async def _is_taken(self, message: Message, without: Collection[Consumer]) -> bool:
        """Whether an agent of some host has it already: the others that it waits for find it with their prompt."""
        here = {session.address for session in self._sessions.everywhere()}
        for delivery in await self._ledger(message.id):
            if delivery.consumer == WATCH or delivery.consumer in without:
                continue
            if delivery.state in (DeliveryState.SEEN, DeliveryState.ANSWERED):
                return True
            if delivery.state is DeliveryState.OFFERED and delivery.address in here:
                return True
        return False

    def _leave_to_other(self, session: Session, message: Message) -> datetime:
        """Leave a message to the daemon of another machine; when nothing comes of that, a session here is woken."""
        now = self._clock.now()
        for way in session.wakers:
            self._count(session.address, way, [message], now)
        self._under_way[message.id] = now + ANSWER
        return now + ANSWER

    async def _begin(self, session: Session, way: str, messages: Sequence[Message]) -> datetime:
        """Wake a session beside everything else: a host that does not answer must not hold up the others."""
        key, until = session.reader.session, self._clock.now() + timedelta(seconds=WAKE_SECONDS)
        # Whatever waits for this session is on its way to it: nobody else is woken for it, and by no second way.
        self._under_way.update((message.id, until) for message in messages)
        self._waking.add(key)
        if self._tasks is not None:
            self._tasks.start_soon(self._wake, session, way, messages)
            return until
        return await self._wake(session, way, messages)

    async def _wake(self, session: Session, way: str, messages: Sequence[Message]) -> datetime:
        key, address, waker = session.key, session.address, session.wakers[way]
        # Whoever is cut off in the middle of it cannot say whether the host has the text.
        result = WakeResult.TAKEN
        try:
            with anyio.move_on_after(WAKE_SECONDS):
                result = await waker.wake()
        except (OSError, HarkenError) as exc:
            result = WakeResult.REFUSED
            _log.warning("%s by %s failed: %s", key, waker.name, exc)
        finally:
            self._waking.discard(key)
            if result is not WakeResult.POSTPONED:
                self._count(address, waker.name, messages, self._clock.now())
        now = self._clock.now()
        _log.info("%s by %s: %s", key, waker.name, result.name.lower())
        for message in messages:
            self._under_way.pop(message.id, None)
        if result is WakeResult.TAKEN:
            self._unproven[key] = _Wake(now, now + PROOF)
            self._under_way.update((message.id, now + ANSWER) for message in messages)
        self._look.ring()
        return now + ANSWER if result is WakeResult.TAKEN else now

    def _count(self, address: SessionAddress, way: str, messages: Sequence[Message], now: datetime) -> None:
        if len(self._tried) > MAX_TRIED:
            self._tried.clear()
        for message in messages:
            before = self._tried.get((message.id, address, way), Tries())
            self._tried[message.id, address, way] = Tries(before.count + 1, now)

    async def _lapse(self) -> None:
        """Give up waiting for the proof of wakes after their time."""
        now = self._clock.now()
        self._under_way = {message: until for message, until in self._under_way.items() if until > now}
        busy = {session.reader.session for session in self._sessions.live() if session.is_busy}
        for key, wake in tuple(self._unproven.items()):
            if wake.until > now:
                continue
            if key in busy and now < wake.at + LONGEST_STEP:
                # Hosts keep it back while a tool runs: a second one would only stand behind the first.
                self._unproven[key] = _Wake(wake.at, now + PROOF)
                continue
            del self._unproven[key]
            await self._give_up(key)


@dataclass(frozen=True, slots=True)
class _Wake:
    """A wake that the host took and nothing has proven: when it was, and until when it is waited for."""

    at: datetime
    until: datetime
