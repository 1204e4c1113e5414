"""Who asks: you, an agent, or a run; and which processes are agents.

The processes of agents are remembered in a file for as long as they live: until their edges are back after a restart,
the shells of agents would pass for the person. It is no register of sessions: that is in memory. What a run has started
is known by its mark and its parents (`runs/mark.py`), also over HTTP by the socket it holds. Else the nearest agent
that a process descends from counts; a process that has left its parents is known by the variables of its host. What is
not clear is an agent: it gets less than the person.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from harken.automation import RunId
from harken.config.home import write_private
from harken.daemon.peers import UNKNOWN, ancestors, descends_from, environment_of, held_limit, is_gone, run_of
from harken.errors import HarkenError
from harken.hosts.hook import Hello
from harken.hosts.host import GENERIC
from harken.hosts.identity import consumer_of
from harken.hosts.marks import FoundMark, find_marks
from harken.hosts.process import identity_of, is_alive
from harken.hosts.registry import host_marks, host_named, host_title
from harken.inbox import Caller, Role
from harken.inbox.caller import NO_SESSION
from harken.memory import json_bytes
from harken.model import RULES, RUN, TASK, Consumer, SessionKey, TaskId
from harken.runs.mark import LOCKS, MARK, UNLIMITED
from harken.sessions.reading import NamedTask
from harken.sessions.registry import Sessions
from harken.sessions.session import Session

_log = logging.getLogger("harken.daemon")


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
        """As whom, and in which session."""
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

    def run_of(self, pid: int) -> str:
        """Return the run that a process is of, whatever it did to its environment or session; empty when of none.

        Raises `Unavailable` when nobody can look now.
        """
        runs = self._known_runs()
        above = ancestors(pid) if runs else ()
        agent = next((runs[each] for each in above or () if each in runs and runs[each].is_here), None)
        if agent is None and above is None and self._has_runs() and is_gone(pid):
            return UNKNOWN  # it may have left its connection to another: nobody can tell what it was of
        return agent.session.removeprefix(RUN) if agent else run_of(pid, self._own_limit)

    def is_socket_of_run(self, inode: int) -> bool | None:
        """Whether a process of a run holds a socket; None while there is no run, and nobody looks."""
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
        """Return every agent that a process descends from, of any program; all that are here, where nobody can look."""
        known = self._in_tasks | self._before | self._here | {agent.pid: agent for agent in self._runs.values()}
        pids = ancestors(pid) if known else ()
        found = known.values() if pids is None else [known[each] for each in pids if each in known]
        return [agent for agent in found if agent.is_here]

    def name_task(self, task: str, pid: int, host: str) -> NamedTask | None:
        """Return the task that a process of a host was started for; None when it names none.

        The person says that, in the settings of the host or before starting it. An agent that says it for what it
        starts in its shell would read the mail of another task, whatever folder it says that from.
        """
        wanted = task.strip().removeprefix(TASK)
        if not wanted:
            return None
        for agent in self.all_above(pid):
            is_the_host = agent.host in ("", host) and not agent.consumer.startswith(TASK)
            if agent.consumer != f"{TASK}{wanted}" and not is_the_host:
                return NamedTask(TaskId(wanted), agent.consumer)
        return NamedTask(TaskId(wanted))

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
        # Only programs that are known to be agents: what started another MCP client may be an editor with the person's
        # own terminal inside, or a script of theirs. Of several sessions of one process the last active counts.
        with_process = [session for session in reversed(sessions) if session.pid > 1 and session.is_host_process]
        here = {session.pid: _agent(session) for session in with_process if session.host != GENERIC.name}
        self._in_tasks = {session.pid: _agent(session) for session in with_process if _is_in_folder(session)}
        if here == self._here:
            return
        self._here = here
        self._before = {pid: agent for pid, agent in self._before.items() if pid not in here and agent.is_here}
        self._keep()

    def _keep(self) -> None:
        try:
            known = [*self._before.values(), *self._here.values(), *self._runs.values()]
            write_private(self._path, json_bytes(known).decode() + "\n")
        except (OSError, HarkenError) as exc:
            # Worth less than the hook that told of it: after a restart they are known again as soon as they speak.
            _log.warning("who is an agent could not be noted: %s", exc)


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
    """Whether a process holds a socket; None when it is there and nobody can look."""
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
_LIMITED: Final = MappingProxyType(
    {"program": "a run", "because": "its limit on file locks (ulimit -x) is lower than the daemon's, or it has ended"}
)


class Callers:
    """Tells who asks, for one daemon."""

    def __init__(self, agents: AgentProcesses, sessions: Sessions) -> None:
        self.agents = agents
        self._sessions = sessions
        self._marks = host_marks()

    def find(self, peer: int, hello: Hello) -> Caller:
        """Return who is at the other end of a connection, from the process and from what it says of itself."""
        # Where the system does not tell who is at the other end, its word is all there is.
        pid = peer or hello.pid
        environ = {**hello.env, **environment_of(pid)}
        if run := self.agents.run_of(pid) or environ.get(MARK):
            told = _LIMITED if run == UNKNOWN else {}
            return Caller(role=Role.AGENT, consumer=RULES, session=SessionKey(f"{RUN}{run}"), **told)
        if agent := self.agents.above(pid):
            consumer, session = agent.reads_as
            return Caller(role=Role.AGENT, consumer=consumer, session=session)
        if marks := find_marks(environ, self._marks):
            return self._marked(marks)
        return Caller(role=Role.OWNER)

    def _marked(self, marks: Sequence[FoundMark]) -> Caller:
        """Return the agent by whose host a process is marked: of several, one whose session is here."""
        here = ((mark, session) for mark in marks if (session := session_of(mark, self._sessions.live())))
        mark, session = next(here, (marks[0], None))
        return Caller(
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
