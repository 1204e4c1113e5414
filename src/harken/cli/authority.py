"""Whether a command is the person's: what only they may do is refused to agents before anything is done.

Most verbs ask the daemon, which knows who asks. Those that work on files, or stop the daemon, look for themselves: at
the marks in their own environment, at the programs that they descend from, and at what a daemon says, or has noted, of
the agents here. That guards against mistakes of a model, not against malice on the same account.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from harken.cli.verbs import Invocation
from harken.control.client import DaemonClient
from harken.errors import Forbidden, HarkenError
from harken.hosts.host import find_marks, host_of_program
from harken.hosts.registry import host_marks, host_title
from harken.runs.mark import MARK

ASK_SECONDS: Final = 5.0
OWNER: Final = "owner"


def refuse_agent(asked: Invocation, what: str) -> None:
    """Refuse a command of an agent, or of a run; raises `Forbidden` with the reason for which it is taken for one."""
    _refuse_marked(os.environ, what)
    _refuse_descendant(what)
    try:
        with DaemonClient(asked.home, can_start=False) as daemon:
            is_agent = daemon.ask_within(ASK_SECONDS, "whoami")["role"] != OWNER
    except HarkenError:
        # None runs, or one of an earlier version, which cannot say.
        is_agent = _is_noted(asked)
    if is_agent:
        raise _refusal(what)


def _refuse_marked(environ: Mapping[str, str], what: str) -> None:
    if environ.get(MARK):
        raise _refusal(what)
    for mark in find_marks(environ, host_marks()):
        raise _refusal(what, host_title(mark.host), f"{mark.variable} is set in its environment")


def _refuse_descendant(what: str) -> None:
    """Refuse what a host's program has started, whether that is connected or not."""
    from harken.daemon.callers import ancestors
    from harken.hosts.process import command_line

    known = host_marks()
    for pid in ancestors(os.getpid()) or ():
        if host := host_of_program(command_line(pid), known):
            raise _refusal(what, host_title(host), f"process {pid} has started it")


def _is_noted(asked: Invocation) -> bool:
    """Whether the last daemon of a home has noted an agent that this command descends from, or it is of a run."""
    from harken.daemon.callers import AgentProcesses

    agents = AgentProcesses(asked.home.run_dir / "agents.json")
    return bool(agents.run_of(os.getpid())) or agents.above(os.getpid()) is not None


def _refusal(what: str, program: str = "", because: str = "") -> Forbidden:
    from harken.inbox.caller import refusal

    return refusal(what, program, because)
