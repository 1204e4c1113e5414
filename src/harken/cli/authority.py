"""Whether a command is the person's: what only they may do is refused to agents before anything is done.

Most verbs ask the daemon, which knows who asks. Those that work on files, or stop the daemon, look for themselves: at
the marks in their own environment, at the programs that they descend from, and at what a daemon says, or has noted, of
the agents here. That guards against mistakes of a model, not against malice on the same account.

What only a person can agree to is asked here too: a yes, or a word that is not typed by accident. Where there is no
terminal to ask on, it is refused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

import click

from harken.cli.invocation import Invocation
from harken.errors import Forbidden, HarkenError, UserError
from harken.hosts.host import find_marks, host_of_program
from harken.hosts.registry import host_marks, host_title
from harken.runs.mark import MARK

ASK_SECONDS: Final = 5.0
OWNER: Final = "owner"
DRY_RUN: Final = "Say --yes; --dry-run shows what would be done."
NOT_DONE = 1  # the exit code when the person said no


def refuse_agent(asked: Invocation, what: str) -> None:
    """Refuse a command of an agent, or of a run; raises `Forbidden` with the reason for which it is taken for one."""
    _refuse_marked(os.environ, what)
    _refuse_descendant(what)
    try:
        with asked.daemon(can_start=False) as daemon:
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
    from harken.processes import command_line

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


def agree(asked: Invocation, question: str, *, is_agreed: bool, hint: str = DRY_RUN) -> None:
    """Return when the person agrees, now or beforehand; end the command when they do not."""
    if is_agreed:
        return
    _refuse_unasked(asked, hint)
    if not click.confirm(question, default=True):
        _leave(asked)


def agree_by_word(asked: Invocation, question: str, word: str, *, is_agreed: bool) -> None:
    """Like `agree`, for what cannot be undone: the person has to type a word."""
    if is_agreed:
        return
    _refuse_unasked(asked, "Say --yes if you are sure.")
    if click.prompt(question, default="", show_default=False).strip() != word:
        _leave(asked)


def _refuse_unasked(asked: Invocation, hint: str) -> None:
    if asked.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("This needs your yes, and there is no terminal to ask in.", hint)


def _leave(asked: Invocation) -> None:
    asked.screen.line("Nothing was changed.")
    click.get_current_context().exit(NOT_DONE)
