"""`Sessions`: the registry of the sessions that are here, and how connections, hooks and processes find theirs.

A record of each is kept in a small file, so that a restarted daemon knows who is here and at work. It is written when
the session changes, removed when it is gone, and not synced: what a power cut would take, it takes together with the
sessions. A file that cannot be read or written costs the memory of one session, never a message.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol, Self

import msgspec
from anyio import CancelScope, move_on_after

from harken.errors import HarkenError
from harken.memory import json_bytes
from harken.model import Consumer, Mailbox, SessionKey, WakeResult
from harken.processes import Origin
from harken.sessions.session import MailScope, NamedTask, Pusher, Session, SessionRecord

_log = logging.getLogger("harken.sessions")
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNANSWERED = "whether it can be woken is not known: its program did not say in time"


class MailScopeOf(Protocol):
    """Decides how a session reads."""

    def __call__(
        self, cwd: str, agent: Consumer, named: NamedTask | None = None, /, *, satellite: str = ""
    ) -> MailScope:
        """Return how a session in a folder, of this machine or a satellite, reads, which by itself would be `agent`."""
        ...


class NamedTaskOf(Protocol):
    """Decides whether a session may be the task that was named for it."""

    def __call__(self, task: str, origin: Origin, pid: int, host: str, /) -> NamedTask | None:
        """Return the task as a process of a host has named it, and whether an agent has; None when it named none.

        `pid` is what it says itself, where the system does not tell who is at the other end.
        """
        ...


_Place = tuple[int, str]
"""A process, and the satellite that it runs on."""


def _place(session: Session) -> _Place | None:
    return (session.pid, session.satellite) if session.pid > 1 else None


def _reading(session: Session, reading_of: MailScopeOf) -> MailScope:
    if session.has_token:
        return MailScope(session.consumer, session.mailboxes)
    return reading_of(session.cwd, session.agent, session.named, satellite=session.satellite)


class SessionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon tells others of one of its sessions: what they show of it, and foretell with."""

    record: SessionRecord
    wakers: tuple[str, ...] = ()
    hindrance: str = ""
    is_waiting: bool = False
    is_inherited: bool = False

    @property
    def news(self) -> Self:
        """The same, without what changes with every call."""
        return msgspec.structs.replace(self, record=msgspec.structs.replace(self.record, last_active=_LONG_AGO))


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another daemon of the store, by its id and its machine, and what it says of its sessions, or last said."""

    daemon: str
    machine: str
    sessions: Sequence[SessionReport]
    has_left: bool = False  # a moment ago: it may be starting again


@dataclass(frozen=True, slots=True)
class DistantWaker:
    """A way to wake a session of another daemon, which does that."""

    name: str

    async def wake(self) -> WakeResult:
        """Leave it to the other daemon."""
        return WakeResult.POSTPONED


class Sessions:
    """The registry of live sessions, and of what other daemons say of theirs."""

    def __init__(self) -> None:
        self._live: dict[SessionKey, Session] = {}
        self._elsewhere: Sequence[Session] = ()
        self._left: Sequence[Session] = ()
        self._foreign: dict[tuple[str, str, int], tuple[SessionReport, Session]] = {}  # by daemon, machine and report
        self._machine = ""
        self._observers: list[Callable[[], None]] = []
        self._reader_observers: list[Callable[[], None]] = []
        self._session_observers: list[Callable[[Collection[SessionKey]], None]] = []
        self._readers: dict[SessionKey, Consumer] = {}
        self._consumers = Counter[Consumer]()
        self._are_readers_other = False
        self._changed: set[SessionKey] = set()
        self._news: set[SessionKey] = set()  # what those that are told of single sessions have not heard yet
        # Where sessions are looked for whenever one comes: looking at all of them would make thousands slow to connect.
        self._places: dict[SessionKey, _Place] = {}
        self._in_places: dict[_Place, dict[SessionKey, None]] = {}
        self._awaited: dict[tuple[str, str], list[Session]] = {}  # by host and connection, before a restart

    def observe(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever a session comes, goes or does something. It must be quick."""
        self._observers.append(changed)

    @contextmanager
    def observing(self, changed: Callable[[], None]) -> Iterator[None]:
        """Call `changed` as `observe` does, until the context is left."""
        self._observers.append(changed)
        try:
            yield
        finally:
            self._observers.remove(changed)

    def observe_sessions(self, changed: Callable[[Collection[SessionKey]], None]) -> None:
        """Call `changed` with the sessions that came, went or did something: all, where it is not known which."""
        self._session_observers.append(changed)

    def observe_readers(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever a session comes, goes or reads as another consumer. It must be quick."""
        self._reader_observers.append(changed)

    def note_change(self, *sessions: SessionKey) -> None:
        """Tell the observers that something happened, to these sessions if they are known."""
        self._changed.update(sessions)
        self._file(*(sessions or {**self._readers, **self._live}))
        news, self._news = self._news, set()
        is_other, self._are_readers_other = self._are_readers_other, False
        for told in self._session_observers:
            told(news)
        for changed in (*self._observers, *(self._reader_observers if is_other else ())):
            changed()

    def _file(self, *sessions: SessionKey) -> None:
        """Know where these sessions are found, and who reads, after they came, went or changed."""
        self._news.update(sessions)
        for key in sessions:
            session = self._live.get(key)
            self._file_place(key, _place(session) if session is not None else None)
            self._file_reader(key, session.consumer if session is not None else None)

    def _file_place(self, key: SessionKey, place: _Place | None) -> None:
        before = self._places.pop(key, None)
        if place is not None:
            self._places[key] = place
        if before == place:
            return
        if before is not None:
            del self._in_places[before][key]
            if not self._in_places[before]:
                del self._in_places[before]
        if place is not None:
            self._in_places.setdefault(place, {})[key] = None

    def _file_reader(self, key: SessionKey, consumer: Consumer | None) -> None:
        before = self._readers.pop(key, None)
        if consumer is not None:
            self._readers[key] = consumer
        if before == consumer:
            return
        self._are_readers_other = True
        if consumer is not None:
            self._consumers[consumer] += 1
        if before is not None:
            self._consumers[before] -= 1
            if not self._consumers[before]:
                del self._consumers[before]

    def take_changed(self) -> Collection[SessionKey]:
        """Return, once, the sessions that came, went or changed."""
        changed, self._changed = self._changed, set()
        return changed

    def inherit(self, sessions: Collection[Session]) -> None:
        """Take over the sessions that an earlier daemon knew."""
        self._live.update((session.key, session) for session in sessions)
        still = {place: [each for each in those if self._is_here(each)] for place, those in self._awaited.items()}
        self._awaited = {place: those for place, those in still.items() if those}
        for session in sessions:
            for edge in session.edges:
                self._awaited.setdefault((session.host, edge), []).append(session)
        self.note_change(*(session.key for session in sessions))

    async def probe(self, session: Session, seconds: float) -> None:
        """Look whether a session can be woken, where its host has to be asked for that."""
        if session.probe is None:
            return
        hindrance = UNANSWERED
        with move_on_after(seconds):
            try:
                hindrance = await session.look()
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
        had = self._awaited.get((host, edge), ())
        return next((each for each in had if edge in each.edges and self._is_here(each)), None)

    def _is_here(self, session: Session) -> bool:
        return self._live.get(session.key) is session

    def _met(self, session: Session) -> Session | None:
        """Return the session that hooks of the same process told of before this connection, which has no name, came."""
        if not session.is_nameless or session.has_many:
            return None
        known = self.of_process(session)
        return known if known is not None and not known.is_nameless else None

    def meet(self, session: Session, pids: Sequence[int]) -> tuple[Session, SessionKey | None]:
        """Return the live session that a hook speaks for, and the key it had until now if that changes.

        Found by the host's own id, else by the process (the nearest of `pids`), else the given one is new.
        """
        known = self._live.get(session.key) or self._known(session, pids)
        if known is None:
            session.is_helper = self._is_helper(session, pids)
            self._live[session.key] = session
            self._file(session.key)
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
                known.is_replaced |= known.read(MailScope(consumer, session.mailboxes, session.problem))
        if known.is_inherited and known.native not in ("", session.native or known.native):
            # Another conversation began in the same process while nobody was there to hear of it.
            known.begin_anew()
            known.is_replaced = True
        known.native = session.native or known.native
        if session.is_host_process or not known.is_host_process:
            known.note_process(session.pid, session.process_identity)
            known.is_host_process = session.is_host_process
        if not known.is_nameless or session.is_nameless:
            self._file(known.key)
            return known, None
        former = known.key
        del self._live[former]
        known.be_named(session.key)
        self._live[known.key] = known
        self._changed.update((former, known.key))
        self._file(former, known.key)
        return known, former

    def _known(self, session: Session, pids: Sequence[int]) -> Session | None:
        """Return the live session of the same conversation, else of the same process."""
        same = (each for each in self._live.values() if each.native == session.native != "")
        same = (each for each in same if each.host == session.host and each.satellite == session.satellite)
        if (known := max(same, key=lambda each: each.last_active, default=None)) is not None:
            return known
        return next((known for pid in (session.pid, *pids) if (known := self._known_at(session, pid))), None)

    def _known_at(self, session: Session, pid: int) -> Session | None:
        """Return the live session of a process that may be of the same conversation."""
        mine = [each for each in self.in_process(pid, session.satellite) if each.host == session.host]
        near = [each for each in mine if not each.native]
        if not session.has_many and pid == session.pid:
            # An agent that another one started has that one's process above its own: it is not the same session.
            near = mine + near
        # Of several connections without a name nobody can say which is meant; a call will tell.
        return next((each for each in near if not each.has_many or len(near) == 1), None)

    def _is_helper(self, session: Session, pids: Sequence[int]) -> bool:
        """Whether another agent that is here, and reads the same, has started a session: it does a part of its work."""
        above = pids[pids.index(session.pid) + 1 :] if session.pid in pids else ()
        others = (each for pid in above if pid != session.pid for each in self.in_process(pid, session.satellite))
        hosts = (each for each in others if each.is_host_process and each.key != session.key)
        return any(each.consumer == session.consumer for each in hosts)

    def of_process(self, session: Session) -> Session | None:
        """Return the session of the same process of a host, of several the last active that hooks have told of."""
        return min(self.all_of_process(session), key=lambda each: each.is_nameless, default=None)

    def all_of_process(self, session: Session) -> Sequence[Session]:
        """Return the sessions of the same process of a host, the last active first."""
        return [each for each in self.in_process(session.pid, session.satellite) if each.host == session.host]

    def in_process(self, pid: int, satellite: str = "") -> Sequence[Session]:
        """Return the live sessions of a process of this machine, or of a satellite, the last active first."""
        keys = self._in_places.get((pid, satellite), ())
        here = [each for key in keys if (each := self._live.get(key)) is not None]
        return sorted(here, key=lambda session: session.last_active, reverse=True)

    @property
    def consumers(self) -> Collection[Consumer]:
        """The consumers that the live sessions read as."""
        return self._consumers.keys()

    def of_satellite(self, name: str) -> Sequence[Session]:
        """Return the live sessions of a satellite; without a name, those of this machine."""
        return [each for each in self.live() if each.satellite == name]

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
            self._file(former, key)
            return session, former
        if target is None:
            target = self._live[key] = Session(
                key=key,
                agent=session.agent,
                consumer=session.consumer,
                host=session.host,
                client=session.client,
                machine=session.machine,
                satellite=session.satellite,
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

    def leave(self, session: Session, *, keeps_running: bool) -> None:
        """A conversation is over; `keeps_running`: its process goes on with another one."""
        session.begin_anew()
        if keeps_running:
            session.rest()
            session.native = ""
        elif session.connections:
            # Its connection ends with the process, or goes on with another conversation; until then it is a session.
            session.forget_hooks()
        else:
            self.end(session.key)

    def close(self, key: SessionKey, edge: str) -> bool:
        """Take a connection away; return whether the session is gone with it."""
        session = self._live.get(key)
        if session is None:
            return False
        session.lose(edge)
        if session.connections or session.is_hosted or (session.is_hooked and not session.has_many):
            # Hooks, or the daemon that runs it, know it without a connection; it ends when they say so, or with its
            # process.
            return False
        return self.end(key)

    def read_anew(self, reading_of: MailScopeOf) -> Sequence[SessionKey]:
        """Let every session read as its folder, or its task, now says; return those for which that is a change."""
        changed = [session.key for session in self._live.values() if session.read(_reading(session, reading_of))]
        if changed:
            self.note_change(*changed)
        return changed

    def name_task(self, session: Session, named: NamedTask, reading_of: MailScopeOf) -> bool:
        """Let a session read as the task that it was started for; return whether that is a change."""
        session.named = named
        is_changed = session.read(_reading(session, reading_of))
        if is_changed:
            self.note_change(session.key)
        return is_changed

    def read_also(self, session: Session, mailboxes: tuple[Mailbox, ...]) -> None:
        """Let a session that reads every mailbox read those that came later."""
        if session.mailboxes != mailboxes:
            session.mailboxes = mailboxes
            self.note_change(session.key)

    def live(self) -> Sequence[Session]:
        """Return the live sessions, the last active first."""
        return sorted(self._live.values(), key=lambda session: session.last_active, reverse=True)

    def everywhere(self) -> Sequence[Session]:
        """Return the live sessions of all daemons that share the store, the last active first. For looking only."""
        if self._elsewhere:
            for session in self._live.values():
                session.machine = session.machine or self._machine
        found = [*self._live.values(), *self._elsewhere]
        return sorted(found, key=lambda session: session.last_active, reverse=True)

    def also_left(self) -> Sequence[Session]:
        """Return the sessions of all daemons, also of those that stopped a moment ago: no turn has ended by that."""
        return [*self.everywhere(), *self._left]

    def reports(self) -> Sequence[SessionReport]:
        """Return what other daemons are told of the sessions here."""
        return [_report(session) for session in self._live.values()]

    def hear_of(self, machine: str, others: Sequence[Neighbour]) -> None:
        """Know the sessions of other daemons, and what this machine is called beside theirs."""
        before = [(session.machine, session.address, session.presence) for session in self._elsewhere]
        # What is said of most of thousands is what was said before.
        known, self._machine, self._foreign = self._foreign, machine, {}
        self._left = [_distant(each, other) for other in others if other.has_left for each in other.sessions]
        for other in others:
            for report in () if other.has_left else other.sessions:
                place = other.daemon, other.machine, id(report)
                self._foreign[place] = known.get(place) or (report, _distant(report, other))
        self._elsewhere = [session for _, session in self._foreign.values()]
        if before != [(session.machine, session.address, session.presence) for session in self._elsewhere]:
            self.note_change()

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
        return [session.key for session in self._live.values() if session.is_waiting]

    @contextmanager
    def in_wait(self, key: SessionKey) -> Iterator[CancelScope]:
        """Count a session as waiting while the context is open; it is cancelled when that is to begin once more."""
        session = self._live.get(key)
        with CancelScope() as scope:
            if session is None:
                yield scope
                return
            session.begin_wait(scope.cancel)
            try:
                yield scope
            finally:
                session.end_wait(scope.cancel)


def _report(session: Session) -> SessionReport:
    # What was told to it, and by what it is known here, is nobody else's business.
    record = msgspec.structs.replace(
        session.record, process_identity="", edges=(), carriers=(), noticed=(), oversize=(), transcript="",
        last_notice="", last_block=None, last_owed=(),
    )  # fmt: skip
    return SessionReport(
        record=record,
        wakers=tuple(session.wakers),
        hindrance=session.hindrance,
        is_waiting=session.is_waiting,
        is_inherited=session.is_inherited,
    )


def _distant(report: SessionReport, other: Neighbour) -> Session:
    session = Session.inherited(report.record)
    session.machine, session.daemon = session.machine or other.machine, other.daemon
    session.is_inherited, session.hindrance = report.is_inherited, report.hindrance
    session.wakers = {name: DistantWaker(name) for name in report.wakers}
    if report.is_waiting:
        session.begin_wait(_keep_waiting)
    return session


def _keep_waiting() -> None:
    """Let it wait: only its own daemon ends that."""


_log = logging.getLogger("harken.daemon")

_SUFFIX, _UNFINISHED = ".json", ".new"


class SessionFiles:
    """The records of one home."""

    def __init__(self, folder: Path, sessions: Sessions) -> None:
        self._folder = folder
        self._sessions = sessions

    def read(self) -> Sequence[SessionRecord]:
        """Return what an earlier daemon left. What cannot be understood, or was not written to its end, is removed."""
        found = list[SessionRecord]()
        for unfinished in self._folder.glob(f"*{_UNFINISHED}"):
            with suppress(OSError):
                unfinished.unlink()
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            # Whatever else has such a name is not opened: it may never end.
            if not path.is_file() or path.is_symlink():
                continue
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=SessionRecord))
            except (OSError, msgspec.DecodeError, UnicodeDecodeError):
                _log.warning("what %s says of a session cannot be read", path.name)
                with suppress(OSError):
                    path.unlink()
        return found

    def begin(self) -> None:
        """Keep the records true from now on."""
        self._sessions.observe(self._note_change)

    def _note_change(self) -> None:
        """Write the records of the sessions that changed, remove those of sessions that are gone."""
        for key in self._sessions.take_changed():
            session, path = self._sessions.get(key), self._path(key)
            try:
                if session is None:
                    path.unlink(missing_ok=True)
                else:
                    _replace(path, json_bytes(session.record))
            except OSError as exc:
                _log.warning("what session %s is doing could not be noted: %s", key, exc)

    def _path(self, key: SessionKey) -> Path:
        return self._folder / (hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32] + _SUFFIX)


def _replace(path: Path, data: bytes) -> None:
    """Put a file into place at once: a reader sees the old one or the new one."""
    temporary = path.with_suffix(_UNFINISHED)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        is_whole = os.write(descriptor, data) == len(data)
    finally:
        os.close(descriptor)
    if is_whole:  # else the disk is full, and the last one that was is better
        temporary.replace(path)
