"""Who asks: you, an agent, or a run; and what the system tells about the process at the other end.

The processes of agents are remembered in a file for as long as they live: until their edges are back after a restart,
the shells of agents would pass for the person. It is no register of sessions: that is in memory. What a run has started
is known by its mark and its parents (`runs/mark.py`), also over HTTP by the socket it holds. Else the nearest agent
that a process descends from counts; a process that has left its parents is known by the variables of its host. What is
not clear is an agent: it gets less than the person.

A loopback port is open to every account, and to runs, which can read our token. Linux tells the account of the client's
socket (`sock_diag`, one question of some microseconds; `/proc/net/tcp` says the same and takes milliseconds). Elsewhere
nothing knows, and what a request carries must do.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import msgspec
import psutil
from anyio.abc import SocketAttribute, SocketStream
from starlette.types import Scope

from harken.automation import RunId
from harken.clock import Signal
from harken.config.home import write_private
from harken.errors import Forbidden, HarkenError, Unavailable
from harken.hosts.hook import Hello, consumer_of
from harken.hosts.host import GENERIC, FoundMark, find_marks
from harken.hosts.registry import host_marks, host_named, host_title
from harken.inbox.caller import NO_SESSION, Caller, Role, refusal
from harken.memory import json_bytes
from harken.model import RULES, RUN, TASK, Consumer, SessionKey, TaskId
from harken.processes import UNLIMITED, LocalOrigin, Origin, identity_of, is_alive, is_same_process, lock_limit
from harken.runs.mark import LOCKS, MARK, run_of_limit
from harken.sessions.registry import Sessions
from harken.sessions.session import NamedTask, Session

_log = logging.getLogger("harken.daemon")

MOST_KEPT_AT_ONCE: Final = 100  # of more agents, the file is written a few times a second, not with each
KEEP_SOON_SECONDS: Final = 0.25
KEEP_EVERY_SECONDS: Final = 60.0


class AgentProcess(msgspec.Struct, frozen=True):
    """An agent's process, who it reads as, and since when it is known."""

    pid: int
    consumer: str
    session: str
    since: datetime
    host: str = ""
    identity: str = ""  # of the process; earlier versions did not note it

    @property
    def is_here(self) -> bool:
        """Whether its process lives. One that may be another with the same number counts: it is given no more."""
        return is_alive(self.pid, self.identity) is not False

    @property
    def reads_as(self) -> tuple[Consumer, SessionKey]:
        """The consumer, and its session."""
        return Consumer(self.consumer), SessionKey(self.session)


class AgentProcesses:
    """The agents of one home."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = _read(path)  # of an earlier daemon, and not heard of since
        self._here: dict[int, AgentProcess] = {}
        self._in_tasks: dict[int, AgentProcess] = {}  # other programs in the folders of tasks
        self._runs: dict[RunId, AgentProcess] = {}
        self._own_limit = held_limit(os.getpid())
        self._pids: dict[SessionKey, int] = {}  # by which the sessions that are here were known last
        self._unkept = Signal()
        self._is_kept = True

    async def run(self) -> None:
        """Write down who is an agent, for ever, where there are too many to do that with each."""
        try:
            while True:
                await self._unkept.wait(KEEP_EVERY_SECONDS)
                if not self._is_kept:
                    self._keep()
                    await anyio.sleep(KEEP_SOON_SECONDS)
        finally:
            if not self._is_kept:
                self._keep()

    def follow(self, sessions: Sessions) -> None:
        """Learn of the sessions that come, go or change, from now on."""

        def note(changed: Collection[SessionKey]) -> None:
            pids: set[int] = set()
            for key in changed:
                session = sessions.get(key)
                pid = session.pid if session is not None and not session.satellite else 0
                pids |= {pid, self._pids.pop(key, 0)}
                if pid > 1:
                    self._pids[key] = pid
            self._note({pid: sessions.in_process(pid) for pid in pids if pid > 1})

        sessions.observe_sessions(note)

    def run_of(self, pid: int) -> str:
        """Return the run that a process belongs to, also after it changed its environment or session; empty: none.

        Raises `Unavailable` when that cannot be read now.
        """
        runs = self._known_runs()
        above = ancestors(pid) if runs else ()
        agent = next((runs[each] for each in above or () if each in runs and runs[each].is_here), None)
        if agent is None and above is None and self._has_runs() and is_gone(pid):
            return UNKNOWN  # it may have left its connection to another: nobody can tell what it was of
        return agent.session.removeprefix(RUN) if agent else run_of(pid, self._own_limit)

    def is_socket_of_run(self, inode: int) -> bool | None:
        """Whether a process of a run holds a socket; None while there is no run."""
        return is_held_in_run(inode, self._own_limit) if self._has_runs() else None

    def left_over(self, run: RunId) -> int:
        """Return the process of a run of an earlier daemon, if it is still there and known not to be another."""
        found = (agent for agent in self._before.values() if agent.session == f"{RUN}{run}")
        return next((agent.pid for agent in found if is_alive(agent.pid, agent.identity)), 0)

    def _known_runs(self) -> dict[int, AgentProcess]:
        runs = {agent.pid: agent for agent in self._before.values() if agent.session.startswith(RUN)}
        return runs | {agent.pid: agent for agent in self._runs.values()}

    def _has_runs(self) -> bool:
        # One that has killed its first process goes on until it is ended.
        return bool(self._runs) or any(agent.is_here for agent in self._known_runs().values())

    def above(self, pid: int) -> AgentProcess | None:
        """Return the agent that a process descends from."""
        known = self._before | self._here | {agent.pid: agent for agent in self._runs.values()}
        agent = known.get(descends_from(pid, known))
        return agent if agent is not None and agent.is_here else None

    def all_above(self, pid: int) -> Sequence[AgentProcess]:
        """Return every agent that a process descends from, of any program; where that cannot be read, all."""
        known = self._in_tasks | self._before | self._here | {agent.pid: agent for agent in self._runs.values()}
        pids = ancestors(pid) if known else ()
        found = known.values() if pids is None else [known[each] for each in pids if each in known]
        return [agent for agent in found if agent.is_here]

    def name_task(self, task: str, pid: int, host: str) -> NamedTask | None:
        """Return the task that a process of a host was started for; None when it names none.

        The person says that, in the settings of the host or before starting it. An agent that says it for what it
        starts in its shell would read the mail of another task, from any folder.
        """
        wanted = task.strip().removeprefix(TASK)
        return _named_task(wanted, self.all_above(pid), host) if wanted else None

    def run_began(self, run: RunId, pid: int) -> None:
        """A run has this process: what it starts is neither the person nor another agent."""
        self._runs[run] = AgentProcess(pid, RULES, f"{RUN}{run}", datetime.now(UTC), RULES, identity_of(pid))
        self._keep()

    def run_ended(self, run: RunId) -> None:
        """A run has no process any more."""
        if self._runs.pop(run, None):
            self._keep()

    def note(self, sessions: Sequence[Session]) -> None:
        """Learn who is here, the last active first."""
        found: dict[int, list[Session]] = {pid: [] for pid in (*self._here, *self._in_tasks)}
        for session in sessions:
            if session.pid > 1 and not session.satellite:
                found.setdefault(session.pid, []).append(session)
        self._note(found)

    def _note(self, found: Mapping[int, Sequence[Session]]) -> None:
        """Learn who is in these processes, the last active first."""
        # Only programs that are known to be agents: what started another MCP client may be an editor with the person's
        # own terminal inside, or a script of theirs. Of several sessions of one process the last active counts.
        is_news = False
        for pid, sessions in found.items():
            hosts = [each for each in sessions if each.is_host_process]
            agent = next((_agent(each) for each in hosts if each.host != GENERIC.name), None)
            is_news |= agent != self._here.get(pid)
            _put(self._here, pid, agent)
            _put(self._in_tasks, pid, next((_agent(each) for each in hosts if _is_in_folder(each)), None))
            if agent is not None:
                self._before.pop(pid, None)
        if not is_news:
            return
        self._is_kept = False
        if len(self._here) > MOST_KEPT_AT_ONCE:
            self._unkept.ring()
        else:
            self._keep()

    def _keep(self) -> None:
        self._is_kept = True
        self._before = {pid: agent for pid, agent in self._before.items() if agent.is_here}
        try:
            known = [*self._before.values(), *self._here.values(), *self._runs.values()]
            write_private(self._path, json_bytes(known).decode() + "\n")
        except (OSError, HarkenError) as exc:
            # Worth less than the hook that told of it: after a restart they are known again as soon as they speak.
            _log.warning("who is an agent could not be noted: %s", exc)


def _put(agents: dict[int, AgentProcess], pid: int, agent: AgentProcess | None) -> None:
    if agent is None:
        agents.pop(pid, None)
    else:
        agents[pid] = agent


def _named_task(wanted: str, above: Sequence[AgentProcess], host: str) -> NamedTask:
    for agent in above:
        is_the_host = agent.host in ("", host) and not agent.consumer.startswith(TASK)
        if agent.consumer != f"{TASK}{wanted}" and not is_the_host:
            return NamedTask(TaskId(wanted), agent.consumer)
    return NamedTask(TaskId(wanted))


def _is_in_folder(session: Session) -> bool:
    """Whether a session is a task's because of its folder. An app may have a server for each of several named ones."""
    return session.consumer.startswith(TASK) and (session.named is None or session.problem is not None)


def _agent(session: Session) -> AgentProcess:
    return AgentProcess(
        session.pid, session.consumer, session.key, session.opened_at, session.host, session.process_identity
    )


def _read(path: Path) -> dict[int, AgentProcess]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[AgentProcess])
    except (OSError, msgspec.DecodeError):
        return {}
    return {agent.pid: agent for agent in found}


if sys.platform == "linux":
    import resource

_LINE: Final = "socket:[{}]"


def is_held_in_run(inode: int, usual_limit: int) -> bool:
    """Whether a process with a lower limit than is usual, as only runs have, holds a socket; raises `OSError`."""
    if sys.platform != "linux":
        return False
    everybody = _processes()
    theirs = {pid for pid in everybody if _limit_of(pid) < usual_limit}
    looks = [_holds(pid, inode) for pid in theirs]
    if any(looks):
        return True
    # One that hides its files may hold it, unless another does.
    return None in looks and not any(_holds(pid, inode) for pid in everybody if pid not in theirs)


def _processes() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdecimal()]


def _limit_of(pid: int) -> int:
    """Return the limit that marks runs: from a call, because the file that says it takes thirty times as long."""
    try:
        hard = resource.prlimit(pid, LOCKS)[1]
    except OSError:
        return UNLIMITED  # it is gone, or another account's
    return UNLIMITED if hard == resource.RLIM_INFINITY else hard


def _holds(pid: int, inode: int) -> bool | None:
    """Whether a process holds a socket; None when it is there and that cannot be read."""
    wanted = _LINE.format(inode)
    try:
        with os.scandir(f"/proc/{pid}/fd") as files:
            return any(_target(file) == wanted for file in files)
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return None


def _target(file: os.DirEntry[str]) -> str:
    try:
        return str(Path(file).readlink())
    except OSError:
        return ""


# A person can be taken for a run by that: their login may have such a limit.
_LIMITED: Final = ("a run", "its limit on file locks (ulimit -x) is lower than the daemon's, or it has ended")


class ProcessFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What another machine says of one of its processes."""

    identity: str = ""
    words: tuple[str, ...] = ()  # that it was started with, as far as they tell anything


class OriginFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a satellite says of the process at the other end of a connection, which only it can look at."""

    pids: tuple[int, ...] = ()  # it, and those that it descends from
    processes: dict[int, ProcessFacts] = {}
    env: dict[str, str] = {}  # of its environment, the marks of hosts and runs
    run: str = ""  # that it belongs to
    is_clear: bool = True  # else what it descends from could not be looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class DistantOrigin:
    """A process of a satellite, as that has told of it."""

    satellite: str
    facts: OriginFacts
    trials: tuple[str, str]  # the folders of trials, there and here

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.facts.pids[0] if self.facts.pids else 0

    def lineage(self) -> Sequence[int]:
        """Return it and the processes that it descends from."""
        return self.facts.pids

    def identity_of(self, pid: int) -> str:
        """Return what no other process with this number has."""
        return found.identity if (found := self.facts.processes.get(pid)) else ""

    def command_line(self, pid: int) -> Sequence[str]:
        """Return the words that a process was started with."""
        return found.words if (found := self.facts.processes.get(pid)) else ()

    def folder(self, cwd: str) -> str:
        """Return a folder as it is to be read here: one of a trial is that of the same trial."""
        theirs, ours = self.trials
        return f"{ours}/{cwd.removeprefix(theirs + '/')}" if theirs and cwd.startswith(f"{theirs}/") else cwd


class Callers:
    """Tells who asks, for one daemon."""

    def __init__(self, agents: AgentProcesses, sessions: Sessions) -> None:
        self.agents = agents
        self._sessions = sessions
        self._marks = host_marks()

    def find(self, origin: Origin, hello: Hello) -> Caller:
        """Return who is at the other end of a connection, from the process and from what it says of itself."""
        if isinstance(origin, DistantOrigin):
            return self._find_distant(origin)
        # Where the system does not tell who is at the other end, its word is all there is.
        pid = origin.pid or hello.pid
        environ = {**hello.env, **environment_of(pid)}
        if run := self.agents.run_of(pid) or environ.get(MARK):
            program, because = _LIMITED if run == UNKNOWN else ("", "")
            session = SessionKey(f"{RUN}{run}")
            return Caller(role=Role.AGENT, consumer=RULES, session=session, program=program, because=because)
        if agent := self.agents.above(pid):
            consumer, session = agent.reads_as
            return Caller(role=Role.AGENT, consumer=consumer, session=session)
        if marks := find_marks(environ, self._marks):
            return self._marked(marks, "")
        return Caller(role=Role.OWNER)

    def is_agent(self, origin: Origin, hello: Hello) -> bool:
        """Whether not the person is at the other end of a connection."""
        return self.find(origin, hello).role is not Role.OWNER

    def is_socket_of_agent(self, inode: int) -> bool:
        """Whether an agent, or what one has started, holds a socket or hides what it holds; raises `OSError`."""
        if sys.platform != "linux":
            return False
        holders = [pid for pid in _processes() if _holds(pid, inode) is not False]
        try:
            return any(self.find(LocalOrigin(pid), Hello()).role is Role.AGENT for pid in holders)
        except Unavailable as exc:
            raise OSError(exc.message) from exc

    def name_task(self, task: str, origin: Origin, pid: int, host: str) -> NamedTask | None:
        """Return the task that a process was started for, as `AgentProcesses` does, wherever it is."""
        if not isinstance(origin, DistantOrigin):
            return self.agents.name_task(task, origin.pid or pid, host)
        wanted = task.strip().removeprefix(TASK)
        return _named_task(wanted, self._above(origin), host) if wanted else None

    def _find_distant(self, origin: DistantOrigin) -> Caller:
        """Return who asks on a satellite, which has looked at the process: what is not clear there is an agent."""
        environ = origin.facts.env
        if run := origin.facts.run or environ.get(MARK):
            return Caller(
                role=Role.AGENT, consumer=RULES, session=SessionKey(f"{RUN}{run}"), satellite=origin.satellite
            )
        if agent := next(iter(self._above(origin)), None):
            consumer, session = agent.reads_as
            return Caller(role=Role.AGENT, consumer=consumer, session=session, satellite=origin.satellite)
        if marks := find_marks(environ, self._marks):
            return self._marked(marks, origin.satellite)
        return Caller(role=Role.OWNER, satellite=origin.satellite)

    def _above(self, origin: DistantOrigin) -> Sequence[AgentProcess]:
        """Return the agents that a process of a satellite descends from, nearest first; where that is not told, all."""
        there = self._sessions.of_satellite(origin.satellite)
        known = [each for each in there if each.pid > 1 and each.is_host_process and each.host != GENERIC.name]
        if not origin.facts.is_clear:
            return [_agent(each) for each in known]
        above = origin.lineage()[1:]
        return [
            _agent(each)
            for pid in above
            for each in known
            if each.pid == pid and is_same_process(each.process_identity, origin.identity_of(pid)) is not False
        ]

    def _marked(self, marks: Sequence[FoundMark], satellite: str) -> Caller:
        """Return the agent of the host that marked a process: of several, one with a session there."""
        there = self._sessions.of_satellite(satellite)
        here = ((mark, session) for mark in marks if (session := session_of(mark, there)))
        mark, session = next(here, (marks[0], None))
        return Caller(
            satellite=satellite,
            role=Role.AGENT,
            consumer=session.consumer if session else consumer_of(host_named(mark.host), mark.host),
            session=session.key if session else NO_SESSION,
            program=host_title(mark.host),
            because=f"{mark.variable} is set in its environment",
        )


def session_of(mark: FoundMark, live: Sequence[Session]) -> Session | None:
    """Return the session that a mark names: the conversation, else the last active of the host's process."""
    mine = [session for session in live if session.host == mark.host]
    for session in mine:
        if mark.native and (session.native == mark.native or session.key == f"{mark.host}:{mark.native}"):
            return session
    return next((session for session in mine if session.pid == mark.pid > 1), None)


UNKNOWN: Final = "unknown"  # stands for a run of which nobody knows which it is
_CREDENTIALS = struct.Struct("3i")


def check_user(stream: SocketStream) -> int:
    """Return the process id of the peer, 0 where the system does not tell; refuse another user.

    The socket's folder is closed to others already; this holds when someone opened it by mistake.
    """
    if sys.platform != "linux":  # pragma: no cover - file permissions alone guard it there
        return 0
    raw = stream.extra(SocketAttribute.raw_socket)
    if raw.family != socket.AF_UNIX:
        return 0
    pid, uid, _gid = _CREDENTIALS.unpack(raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid != os.geteuid():
        raise Forbidden("This daemon belongs to another user.", "Start your own: harken up")
    return int(pid)


def run_of(pid: int, usual_limit: int = UNLIMITED) -> str:
    """Return the run that a process was started in, however far it went from it; empty when in none.

    A limit that is lower than usual and marks no run has been lowered by a process of one: no other process knows of
    it. Raises `Unavailable` when that cannot be read now.
    """
    limit = held_limit(pid)
    if limit < usual_limit:
        return run_of_limit(limit) or UNKNOWN
    return environment_of(pid).get(MARK, "")


def held_limit(pid: int) -> int:
    """Return the limit by which what a run has started is known; raises `Unavailable` when that cannot be read now."""
    try:
        return lock_limit(pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return UNLIMITED
    except OSError as exc:
        raise _unknown(exc) from exc


def environment_of(pid: int) -> Mapping[str, str]:
    """Return the environment that a process was started with; nothing where the system does not show it.

    Raises `Unavailable` when that cannot be read now: taken for the person's own, it could do what an agent may not.
    """
    try:
        return psutil.Process(pid).environ() if pid > 0 else {}
    except psutil.Error:
        return {}
    except OSError as exc:
        raise _unknown(exc) from exc


def _unknown(exc: OSError) -> Unavailable:
    return Unavailable(f"Harken cannot tell who is asking: {exc.strerror}.", "Close some agents, or try again.")


def is_gone(pid: int) -> bool:
    """Whether a process has ended, and was waited for."""
    return pid > 0 and not psutil.pid_exists(pid)


def ancestors(pid: int) -> Sequence[int] | None:
    """Return the processes from which a process descends, nearest first; None where they cannot be looked at."""
    try:
        return [parent.pid for parent in psutil.Process(pid).parents()] if pid > 0 else ()
    except psutil.Error:
        return None


def descends_from(pid: int, hosts: Collection[int]) -> int:
    """Return which of some processes a process descends from, 0 when none."""
    if not hosts:
        return 0
    above = ancestors(pid)
    if above is None:
        # What cannot be looked at might be an agent: it gets no more than one.
        return next(iter(hosts))
    return next((parent for parent in above if parent in hosts), 0)


NOBODY: Final = -1  # no open socket there, so nobody who could be asked
ROOT: Final = 0  # can read our token anyway
ANSWER_SECONDS: Final = 1.0

CONNECTION: Final = "harken.connection"
"""Names what is noted of a connection, in the extensions of a request's scope: it is asked once for each."""

YOURS_ALONE: Final = frozenset({"/api/approve", "/api/confirm", "/do/approve", "/do/answer"})
"""Where questions are answered: an agent that has our token or a page of ours has not become its user."""

_NETLINK_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_IS_REQUEST: Final = 1
_ALL_STATES: Final = 0xFFFFFFFF
_NO_COOKIE: Final = 0xFFFFFFFF
_ANSWER_BYTES: Final = 4096
_HEADER: Final = struct.Struct("=IHHII")
_ASKED: Final = struct.Struct("=BBBBI")
_PORTS: Final = struct.Struct("!HH")
_PLACE: Final = struct.Struct("=III")
_TOLD: Final = struct.Struct("=4B48xIIIII")  # state is the second, the owner the last but one, the inode the last

Place = tuple[str, int]


class ClientSocket(NamedTuple):
    """The socket at the other end."""

    owner: int  # an account's number
    inode: int


_UNTOLD: Final = ClientSocket(NOBODY, 0)


def client_check(
    is_of_run: Callable[[int], bool | None],
    is_of_agent: Callable[[int], bool] = lambda _inode: False,
    *,
    any_account: bool = False,
) -> Callable[[Scope], Forbidden | None]:
    """Return what says why a request is not for us to answer: it is another account's, unless any may ask, or a run's.

    `is_of_run` tells it of the inode of a socket, None while there is no run. What only the person may answer is not
    for an agent either, which `is_of_agent` tells: that takes long. Where the system does not tell whose a socket is,
    nothing is refused.
    """
    if not is_told():
        return lambda _scope: None

    def check(scope: Scope) -> Forbidden | None:
        noted: dict[str, Any] = scope.get("extensions", {}).get(CONNECTION, {})
        try:
            asking = noted.get("client") or noted.setdefault("client", _asking(scope))
        except OSError:
            asking = _UNTOLD  # it was told when we began: taken for ours now, a stranger would only have to wear us out
        if not any_account and asking.owner not in (os.geteuid(), ROOT):
            return Forbidden("This daemon belongs to another user.", "Each account has its own daemon: harken up")
        if noted.get("is_of_run") is None:
            try:
                noted["is_of_run"] = is_of_run(asking.inode)
            except OSError:
                return Forbidden("Harken cannot tell who is asking.", "Close some agents, or try again.")
        if noted["is_of_run"]:
            return Forbidden("A run does not use HTTP.", "Its prompt has what it needs.")
        try:
            is_agent = scope.get("path") in YOURS_ALONE and is_of_agent(asking.inode)
        except OSError:
            return Forbidden("Harken cannot tell who is asking.", "Close some agents, or try again.")
        return refusal("answer what waits for its user") if is_agent else None

    return check


def _asking(scope: Scope) -> ClientSocket:
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None:
        return _UNTOLD
    return client_socket((client[0], client[1]), (server[0], server[1]))


def client_socket(client: Place, server: Place) -> ClientSocket:
    """Return the socket at the client's end of a connection; raises `OSError` when the system does not tell."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    packed = [socket.inet_pton(family, place[0]).ljust(16, b"\0") for place in (client, server)]
    wanted = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + _PORTS.pack(client[1], server[1])
    wanted += b"".join(packed) + _PLACE.pack(0, _NO_COOKIE, _NO_COOKIE)
    # Absent elsewhere, and asked for on Linux only.
    netlink: int = getattr(socket, "AF_NETLINK", 0)
    with socket.socket(netlink, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asked:
        asked.settimeout(ANSWER_SECONDS)
        asked.send(_HEADER.pack(_HEADER.size + len(wanted), _BY_FAMILY, _IS_REQUEST, 1, 0) + wanted)
        answer = asked.recv(_ANSWER_BYTES)
    _size, kind, *_rest = _HEADER.unpack_from(answer)
    if kind != _BY_FAMILY:
        return _UNTOLD
    *_others, owner, inode = _TOLD.unpack_from(answer, _HEADER.size)
    # One that was closed is told as root's.
    return ClientSocket(owner, inode) if inode else _UNTOLD


def is_told() -> bool:
    """Whether the system tells the account of a connection, tried on one of our own."""
    if sys.platform != "linux":
        return False
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listening,
            socket.create_connection(listening.getsockname(), ANSWER_SECONDS) as client,
        ):
            return client_socket(client.getsockname(), listening.getsockname()).owner == os.geteuid()
    except OSError:
        return False
