"""How sessions are reached: joins the hooks, the bells, the wakes and the push channels for one daemon.

Each part says itself what it is; here they are only joined, with what the system tells about a host's process.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

import anyio
import anyio.to_thread
from anyio.abc import ByteStream

from harken.clock import Clock
from harken.dispatch.bells import BellRinger, Bells
from harken.dispatch.wake import Wakes
from harken.display import one_line
from harken.errors import HarkenError
from harken.hosts.hook import Hello, Voice
from harken.hosts.host import RecordReader
from harken.hosts.registry import broken_hosts, hook_adapter, hook_host, host_named, host_names
from harken.hosts.wake import HostWaker, QuestionListener, WakeTarget, WakeWay
from harken.inbox.inbox import Inbox
from harken.inbox.questions import Approvals, Questions
from harken.model import ApprovalChoice, SessionKey
from harken.processes import Origin, is_alive
from harken.sessions.registry import MailScopeOf, NamedTaskOf
from harken.sessions.session import Session, SessionRecord, Waker
from harken.sessions.turns import HookMoment
from harken.store.contract import Store
from harken.surfaces.composer import HookComposer, HookText
from harken.surfaces.hooks import (
    BellWaker,
    HandedAnswer,
    HookConnection,
    HookHandler,
    HostReach,
    LineConnection,
    Notify,
    TextWaker,
    push_waker,
)
from harken.surfaces.wire import LineReader

_log = logging.getLogger("harken.reach")

REAP_EVERY_SECONDS = 2.0
REAP_SOON_SECONDS = 0.2  # when a session has lost its connection: its process probably ends too
MAX_SOON = 25  # how often it is looked for so soon; one that lives on without a connection costs no more than others
GRACE = timedelta(seconds=30)  # how long after a restart the connections of a session may take to come back
PROBE_SECONDS = 0.5
HEAR_EVERY_SECONDS = 1.0
MAX_EVIDENCE = 200
TAIL_BYTES = 4 << 20
TASK_VARIABLE = "HARKEN_TASK"

# What a host's own program may do to whoever talks to it; it must not end the loop that wakes the others.
_FAILURES = (
    HarkenError,
    OSError,
    ValueError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    anyio.IncompleteRead,
)


class SatelliteReach(Protocol):
    """What only the machine of a session can do, where that is a satellite."""

    async def bell_path(self, session: Session) -> str:
        """Return where the session's own bell is there; it is there when the host hears of it."""
        ...

    def is_watched(self, session: Session) -> bool:
        """Whether the session was told of its bell."""
        ...

    def ring(self, session: Session) -> bool:
        """Let the session's own bell change; return whether the machine can be reached."""
        ...

    def is_gone(self, session: Session) -> bool:
        """Whether the machine has said that the session's process is gone."""
        ...

    async def read_record(self, session: Session) -> Collection[str]:
        """Return what the host's record there proves; nothing while the machine is out of reach."""
        ...

    def find_ways(self, session: Session, hello: Hello) -> None:
        """Ask for the host's own ways to wake the session, and add them when the answer is here."""
        ...

    async def look_up(self, satellite: str, asked: Mapping[str, object]) -> Mapping[str, Any]:
        """Return what the files of a host there say; nothing while the machine is out of reach."""
        ...


class SessionWiring:
    """The ways to live sessions."""

    def __init__(
        self,
        inbox: Inbox,
        store: Store,
        clock: Clock,
        bells: Bells,
        reading_of: MailScopeOf,
        *,
        questions: Questions,
        approvals: Approvals,
        naming: NamedTaskOf,
    ) -> None:
        self._inbox = inbox
        self._clock = clock
        self._started_at = clock.now()
        self._bells = bells
        self._naming = naming
        self._reading_of = reading_of
        self.approvals = approvals
        self._host_wakers: dict[str, HostWaker] = {}
        self._listeners: dict[str, QuestionListener] = {}
        self._hearing: dict[tuple[str, str], anyio.CancelScope] = {}  # by host and place
        self._satellites: SatelliteReach | None = None
        self._regained_at: dict[str, datetime] = {}  # when each link was made
        self._composer = HookComposer(inbox, questions)
        self.reach = HostReach(
            bell_of=self._bell_of,
            read_record=self._read_record,
            is_asking=self._is_asking,
            evidence_of=self._evidence_of,
        )
        self._handler = HookHandler(
            inbox,
            clock,
            self._composer,
            wakers=self._wakers,
            reading_of=reading_of,
            reach=self.reach,
            approvals=self.approvals,
        )
        self.ringer = BellRinger(bells, store.changes, inbox.sessions, inbox.waiting, host_names())
        self.wakes = Wakes(
            store.changes,
            inbox.sessions,
            clock,
            waiting=inbox.waiting,
            ledger=store.deliveries.ledger,
            give_up=self._give_up,
        )
        for broken in broken_hosts():
            _log.warning("left out the host %s", broken)

    @property
    def composer(self) -> HookComposer:
        """What writes the texts that sessions are told."""
        return self._composer

    def reach_satellites(self, satellites: SatelliteReach) -> None:
        """Reach the sessions of satellites from now on."""
        self._satellites = satellites

    async def serve_hook(self, stream: ByteStream, lines: LineReader, hello: Hello, origin: Origin) -> None:
        """Serve one run of a hook."""
        await HookConnection(stream, lines, self._handler).serve(self._with_task(hello, origin), origin)

    async def serve_wake(self, stream: ByteStream, lines: LineReader, hello: Hello, origin: Origin) -> None:
        """Serve a program that waits to wake its session."""
        adapter = hook_adapter(hello.host)
        if adapter is not None:
            line = LineConnection(stream, lines, self._handler, self._composer, self._inbox)
            await line.serve(self._with_task(hello, origin), adapter, origin)

    def _with_task(self, hello: Hello, origin: Origin) -> Hello:
        """Return a hello with the task that its host was started for, and who said so, in place of its own word."""
        named = self._naming(hello.env.get(TASK_VARIABLE, ""), origin, hello.pid, hello.host)
        return replace(hello, task=named.id if named else "", task_said_by=named.said_by if named else "")

    def greet(self, session: Session, hello: Hello, notify: Notify, origin: Origin) -> None:
        """Give a new MCP session the ways to be woken that need no hook to tell of them."""
        host = host_named(session.host)
        if host.is_woken_by_edge:
            session.add_wakers(self._wakers(session, hello), is_better=False)
        channel = host.channel() if host.channel else None
        if channel and channel.listens(origin.command_line(session.pid)):
            pusher = push_waker(channel, session, self._composer, notify)
            # Whoever turned the channel on prefers it to the bell.
            session.prefer_waker(pusher)

    async def hear_questions(self, harken: str) -> None:
        """Hear what hosts ask that no hook relays, wherever sessions of theirs run and you chose that."""
        async with anyio.create_task_group() as tasks:
            while True:
                wanted = await self._places(harken)
                for gone in self._hearing.keys() - wanted:
                    self._hearing.pop(gone).cancel()
                for host, place in wanted - self._hearing.keys():
                    scope = self._hearing[host, place] = anyio.CancelScope()
                    tasks.start_soon(self._hear, host, place, scope)
                await anyio.sleep(HEAR_EVERY_SECONDS)

    async def _places(self, harken: str) -> Collection[tuple[str, str]]:
        """Return where sessions ask, each with its host."""
        targets: dict[str, list[WakeTarget]] = {}
        for session in self._inbox.sessions.live():
            if not session.satellite and host_named(session.host).listener:
                targets.setdefault(session.host, []).append(_target(session, Hello()))
        found: set[tuple[str, str]] = set()
        for host, those in targets.items():
            # It looks at processes and small files.
            places = await anyio.to_thread.run_sync(self._listener(host).places, those, harken)
            found.update((host, place) for place in places)
        return found

    def _listener(self, host: str) -> QuestionListener:
        declared = host_named(host).listener
        if declared is None:
            raise KeyError(host)
        if host not in self._listeners:
            self._listeners[host] = declared()()
        return self._listeners[host]

    async def _hear(self, host: str, place: str, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await self._listener(host).listen(place, self._handler.ask_person)
        except* _FAILURES as exc:
            _log.info("what %s asks in %s is not heard: %s", host, place, exc.exceptions[0])
        finally:
            if self._hearing.get((host, place)) is scope:
                del self._hearing[host, place]

    async def inherit(self, records: Sequence[SessionRecord]) -> None:
        """Know the sessions of an earlier daemon again: who is here, at work or idle, and what it was told last.

        What their hosts asked that daemon is withdrawn.
        """
        await self.approvals.begin()
        sessions = [Session.inherited(record) for record in records if _lives(record)]
        self._inbox.sessions.inherit(sessions)
        # A task may have come or gone since.
        self._inbox.sessions.read_anew(self._reading_of)
        await self._settle(sessions)
        for gone in {record.key for record in records}.difference(self._inbox.sessions.keys()):
            await self._inbox.proofs.release(gone)
            self._inbox.sessions.note_change(gone)

    async def lose_touch(self, satellite: str) -> None:
        """The link to a satellite was cut: what its sessions do meanwhile is not heard, as over a restart."""
        self._regained_at.pop(satellite, None)
        lost = self._of(satellite)
        for session in lost:
            session.part()
        sessions = [Session.inherited(session.record) for session in lost]
        self._inbox.sessions.inherit(sessions)
        await self._settle(sessions)
        for session in sessions:
            session.note_hindrance(f"its machine {satellite} is out of reach")
        self._inbox.sessions.note_change()

    def regain(self, satellite: str) -> None:
        """The link to a satellite is here again: its sessions can be woken, and their connections come back."""
        self._regained_at[satellite] = self._clock.now()
        for session in self._of(satellite):
            session.note_hindrance("")
            session.add_wakers(self._wakers(session, Hello()))
        self._inbox.sessions.note_change()

    async def dismiss(self, satellite: str) -> None:
        """A satellite is one no more: its sessions are gone, and what they did not see is offered to others."""
        for session in self._of(satellite):
            self._inbox.sessions.end(session.key)
            await self._inbox.proofs.release(session.key)

    async def _settle(self, sessions: Collection[Session]) -> None:
        for session in sessions:
            await self._inbox.proofs.settle_past(session)
            session.add_wakers(self._wakers(session, Hello()))
            if session.has_wakes:
                self.wakes.expect_proof(session.key)

    async def reap(self, satellite: str = "") -> None:
        """Let sessions go that ended without a word, look for late proof, and see which idle ones can be woken.

        Those of this machine, or of a satellite: one that answers slowly holds up no others.
        """
        parting, rounds = frozenset[SessionKey](), 0
        while True:
            found = frozenset(session.key for session in self._of(satellite) if _is_parting(session))
            parting, rounds = found, rounds + 1 if found == parting else 0
            is_soon = bool(parting) and rounds < MAX_SOON
            await anyio.sleep(REAP_SOON_SECONDS if is_soon else REAP_EVERY_SECONDS)
            for session in self._of(satellite):
                if session.has_wakes:
                    await self._inbox.proofs.look_again(session, self._read_record)
                is_over = await self._let_go(session, is_left=self._is_left(session))
                if not is_over and session.probe is not None and not session.is_busy:
                    await self._look_at(session)

    async def bury(self, satellite: str) -> None:
        """Let the sessions go that lost their processes, as a satellite says, before anything else comes from there."""
        for session in self._of(satellite):
            await self._let_go(session)

    async def _let_go(self, session: Session, *, is_left: bool = False) -> bool:
        """End a session that is left, or has lost its process; return whether it is over."""
        # A process that is not known, or is the first of a container, is not looked for.
        is_gone = session.pid > 1 and self._is_gone(session)
        if session.connections or not (is_gone or is_left):
            return False
        await self._inbox.proofs.look_again(session, self._read_record)
        self._inbox.sessions.end(session.key)
        await self._inbox.proofs.release(session.key)
        return True

    def _of(self, satellite: str) -> Sequence[Session]:
        return self._inbox.sessions.of_satellite(satellite)

    async def _look_at(self, session: Session) -> None:
        before = session.hindrance
        await self._inbox.sessions.probe(session, PROBE_SECONDS)
        if session.hindrance != before:
            self._inbox.sessions.note_change()

    def _is_left(self, session: Session) -> bool:
        """Whether the connections that a session had before a restart did not come back, and nothing else tells."""
        since = self._regained_at.get(session.satellite) if session.satellite else self._started_at
        if not session.edges or since is None or self._clock.now() < since + GRACE:
            return False
        return not session.is_hooked or session.has_many

    async def _give_up(self, key: SessionKey) -> None:
        if session := self._inbox.sessions.get(key):
            await self._inbox.proofs.give_up_wakes(session, self._read_record)

    def _is_gone(self, session: Session) -> bool:
        if session.satellite:
            return self._satellites is not None and self._satellites.is_gone(session)
        return is_alive(session.pid, session.process_identity) is False

    async def _bell_of(self, session: Session) -> str:
        if session.satellite:
            return await self._satellites.bell_path(session) if self._satellites else ""
        return str(self._bells.path(session.key))

    def _is_watched(self, session: Session) -> bool:
        if session.satellite:
            return self._satellites is not None and self._satellites.is_watched(session)
        return self._bells.is_watched(session.key)

    def _ring(self, session: Session) -> bool:
        if session.satellite:
            return self._satellites is not None and self._satellites.ring(session)
        return self._bells.ring_session(session.key)

    async def _read_record(self, session: Session) -> Collection[str]:
        if session.satellite:
            return await self._satellites.read_record(session) if self._satellites else ()
        return await read_record(session)

    async def _is_asking(self, satellite: str, host: str, payload: Mapping[str, object], pid: int) -> bool | None:
        if not satellite:
            return await still_asks(host, payload, pid)
        told = await self._look_up(satellite, do="asking", host=host, payload=payload, pid=pid)
        found = told.get("asking")
        return found if isinstance(found, bool) else None

    async def _evidence_of(self, answer: HandedAnswer) -> str:
        host, payload, choice = answer.host, answer.payload, answer.choice
        if not answer.satellite:
            return await evidence_of(host, payload, choice)
        told = await self._look_up(answer.satellite, do="evidence", host=host, payload=payload, choice=choice)
        return one_line(str(told.get("evidence", "")))[:MAX_EVIDENCE]

    async def _look_up(self, satellite: str, **asked: object) -> Mapping[str, Any]:
        return await self._satellites.look_up(satellite, asked) if self._satellites else {}

    def _wakers(self, session: Session, hello: Hello) -> Sequence[Waker]:
        """Return the ways to wake a session, as its host declares them."""
        host = host_named(session.host)
        found: list[Waker] = []
        # Only a session that was told at its start watches its bell; one that was connected later does not.
        if host.watches_bell and (hello.moment == HookMoment.START or self._is_watched(session)):
            found.append(BellWaker(session=session, ring=self._ring))
        if host.waker is not None and session.satellite:
            if self._satellites is not None:
                self._satellites.find_ways(session, hello)
        elif host.waker is not None:
            waker = self._host_wakers.setdefault(host.name, host.waker()())
            found += [self._text_waker(way, session, hello) for way in waker.ways(_target(session, hello))]
        return found

    def add_ways(self, ways: Collection[WakeWay], session: Session, hello: Hello) -> None:
        """Let a session be woken in its host's own ways."""
        session.add_wakers([self._text_waker(way, session, hello) for way in ways])
        self._inbox.sessions.note_change()

    def _text_waker(self, way: WakeWay, session: Session, hello: Hello) -> Waker:
        async def send(told: HookText) -> bool | None:
            try:
                # Asked for now: a conversation that was cleared has another id than when this hook ran.
                return await way.send(_target(session, hello), told.text)
            except _FAILURES as exc:
                _log.warning("%s by %s failed: %s", session.key, way.surface, exc)
                return None

        if (look := way.hindrance) is not None:
            session.ask_before_waking(lambda: look(_target(session, hello)))
        hooks = hook_host(session.host)
        return TextWaker(
            name=way.surface,
            session=session,
            composer=self._composer,
            send=send,
            most_chars=hooks.most_chars.get(HookMoment.BELL, 0),
            runs_prompt_hook=way.runs_prompt_hook,
            speaks_as_user=way.speaks_as_user or hooks.voices.get(HookMoment.BELL, Voice.USER) is Voice.USER,
        )


def _is_parting(session: Session) -> bool:
    """Whether a session that was connected is not any more, and only its hooks and its process are left."""
    return bool(session.surfaces) and not session.connections and not session.edges


def _target(session: Session, hello: Hello) -> WakeTarget:
    return WakeTarget(native=session.native, pid=session.pid, cwd=session.cwd, env=hello.env)


def _lives(record: SessionRecord) -> bool:
    """Whether a session's process is still there; of one that is not known for sure, its connection will tell."""
    if record.satellite:
        return True  # it says so itself, when its link is here
    is_sure = is_alive(record.pid, record.process_identity) if record.pid > 1 else None
    return bool(record.edges) if is_sure is None else is_sure


async def read_record(session: Session) -> Collection[str]:
    """Return what a session's host has recorded of what it was told and has not proven."""
    reader = host_named(session.host).transcript
    if reader is None or not session.unproven:
        return ()
    return await proven_by(reader(), session.transcript, session.unproven)


async def proven_by(reader: RecordReader, path: str, ids: Collection[str]) -> Collection[str]:
    """Return which of some ids the record at a path proves. Off the loop: a record may be large."""
    return await anyio.to_thread.run_sync(lambda: reader(_tail(path), ids)) if path else ()


async def still_asks(host: str, payload: Mapping[str, object], pid: int) -> bool | None:
    """Whether a host of this machine still shows its own question, as its files say."""
    declared = host_named(host).approvals
    return await anyio.to_thread.run_sync(declared().is_asking, payload, Hello(ppid=pid)) if declared else None


async def evidence_of(host: str, payload: Mapping[str, object], choice: ApprovalChoice) -> str:
    """Return what the record of a host of this machine shows of an answer that the host was handed."""
    declared = host_named(host).approvals
    if declared is None:
        return ""
    path = declared().record(payload)
    record = await anyio.to_thread.run_sync(_tail, path) if path else ()
    return declared().evidence(payload, choice, record)


def _tail(path: str) -> Sequence[bytes]:
    """Return the last lines of a record, none when there is no such file of ours."""
    try:
        # The path came with a hook's payload: whatever else it names is not opened, and never waited for.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError):
        return ()
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return ()
        is_cut = status.st_size > TAIL_BYTES
        file.seek(max(0, status.st_size - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).splitlines()
    return lines[1:] if is_cut else lines
