"""Who asks over the socket: the person, a run, or an agent with what it has started.

What a run has started is the run's, whatever it did to its environment, session and parents (`runs/mark.py`). Else the
nearest agent that a process descends from counts. One that has left its parents is known by what its host has put into
its environment; as which session, that says too, if the session is here. What is not clear is an agent: it gets less
than the person.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from harken.daemon.agents import Agents
from harken.daemon.peers import UNKNOWN, environment_of
from harken.hosts.hook import Hello
from harken.hosts.identity import consumer_of
from harken.hosts.marks import FoundMark, find_marks
from harken.hosts.registry import host_marks, host_named, host_title
from harken.inbox import Caller, Role
from harken.inbox.caller import NO_SESSION
from harken.model import RULES, RUN, SessionKey
from harken.runs.mark import MARK
from harken.sessions.registry import Sessions
from harken.sessions.session import Session

# A person can be taken for a run by that: their login may have such a limit.
_LIMITED: Final = MappingProxyType(
    {"program": "a run", "because": "its limit on file locks (ulimit -x) is lower than the daemon's, or it has ended"}
)


class Callers:
    """Tells who asks, for one daemon."""

    def __init__(self, agents: Agents, sessions: Sessions) -> None:
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
