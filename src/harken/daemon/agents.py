"""Which processes are agents: those whose session is here, and those that were here before a restart.

Until their edges are back, the shells of agents would pass for the person, and an agent's word for the owner's. So the
processes are remembered in a file, for as long as they live. It is no register of sessions: that is in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harken.config.home import write_private
from harken.daemon.peers import descends_from, is_alive
from harken.errors import HarkenError
from harken.hosts.base import GENERIC
from harken.inbox import Session
from harken.model import RULES, RUN, Consumer, SessionKey
from harken.reaction import RunId

_log = logging.getLogger("harken.daemon")


class Agent(msgspec.Struct, frozen=True):
    """An agent's process, who it reads as, and since when it is known."""

    pid: int
    consumer: str
    session: str
    since: datetime

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
        self._runs: dict[RunId, Agent] = {}

    def above(self, pid: int) -> Agent | None:
        """Return the agent that a process descends from."""
        known = self._before | self._here | {agent.pid: agent for agent in self._runs.values()}
        agent = known.get(descends_from(pid, known))
        return agent if agent is not None and is_alive(agent.pid, agent.since) else None

    def run_began(self, run: RunId, pid: int) -> None:
        """A run has this process: what it starts is neither the person nor another agent."""
        self._runs[run] = Agent(pid, RULES, f"{RUN}{run}", datetime.now(UTC))
        self._keep()

    def run_ended(self, run: RunId) -> None:
        """A run has no process any more."""
        if self._runs.pop(run, None):
            self._keep()

    def note(self, sessions: Sequence[Session]) -> None:
        """Learn who is here, the last active first."""
        # Only programs that are known to be agents: what started another MCP client may be an editor with the person's
        # own terminal inside, or a script of theirs. Of several sessions of one process the last active counts.
        here = {
            session.pid: Agent(session.pid, session.consumer, session.key, session.opened_at)
            for session in reversed(sessions)
            if session.pid > 1 and session.host != GENERIC.name
        }
        if here == self._here:
            return
        self._here = here
        self._before = {
            pid: agent for pid, agent in self._before.items() if pid not in here and is_alive(pid, agent.since)
        }
        self._keep()

    def _keep(self) -> None:
        try:
            known = [*self._before.values(), *self._here.values(), *self._runs.values()]
            write_private(self._path, msgspec.json.encode(known).decode() + "\n")
        except (OSError, HarkenError) as exc:
            # Worth less than the hook that told of it: after a restart they are known again as soon as they speak.
            _log.warning("who is an agent could not be noted: %s", exc)


def _read(path: Path) -> dict[int, Agent]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[Agent])
    except (OSError, msgspec.DecodeError):
        return {}
    return {agent.pid: agent for agent in found}
