"""Which processes are agents: those whose session is here, and those that were here before a restart.

Until their edges are back, the shells of agents would pass for the person, and an agent's word for the owner's. So the
processes are remembered in a file, for as long as they live. It is no register of sessions: that is in memory.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harken.automation import RunId
from harken.config.home import write_private
from harken.daemon.peers import UNKNOWN, ancestors, descends_from, held_limit, is_gone, run_of
from harken.daemon.run_sockets import is_held_in_run
from harken.errors import HarkenError
from harken.hosts.host import GENERIC
from harken.hosts.process import identity_of, is_alive
from harken.memory import json_bytes
from harken.model import RULES, RUN, TASK, Consumer, SessionKey, TaskId
from harken.sessions.reading import NamedTask
from harken.sessions.session import Session

_log = logging.getLogger("harken.daemon")


class Agent(msgspec.Struct, frozen=True):
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


class Agents:
    """The agents of one home."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = _read(path)  # of an earlier daemon, and not heard of since
        self._here: dict[int, Agent] = {}
        self._in_tasks: dict[int, Agent] = {}  # other programs in the folders of tasks
        self._runs: dict[RunId, Agent] = {}
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

    def _known_runs(self) -> dict[int, Agent]:
        runs = {agent.pid: agent for agent in self._before.values() if agent.session.startswith(RUN)}
        return runs | {agent.pid: agent for agent in self._runs.values()}

    def _has_runs(self) -> bool:
        # One that has killed its first process goes on until it is ended.
        return bool(self._runs) or any(agent.is_here for agent in self._known_runs().values())

    def above(self, pid: int) -> Agent | None:
        """Return the agent that a process descends from."""
        known = self._before | self._here | {agent.pid: agent for agent in self._runs.values()}
        agent = known.get(descends_from(pid, known))
        return agent if agent is not None and agent.is_here else None

    def all_above(self, pid: int) -> Sequence[Agent]:
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
        self._runs[run] = Agent(pid, RULES, f"{RUN}{run}", datetime.now(UTC), RULES, identity_of(pid))
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


def _agent(session: Session) -> Agent:
    return Agent(session.pid, session.consumer, session.key, session.opened_at, session.host, session.process_identity)


def _read(path: Path) -> dict[int, Agent]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[Agent])
    except (OSError, msgspec.DecodeError):
        return {}
    return {agent.pid: agent for agent in found}
