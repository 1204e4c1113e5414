"""Who asks: as which session a process acts that is known by the marks of its host."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harken.daemon.callers import AgentProcesses, Callers
from harken.hosts.hook import Hello
from harken.inbox.caller import Role
from harken.model import Consumer, SessionKey
from harken.processes import LocalOrigin
from harken.runs.mark import limit_of
from harken.sessions.registry import Sessions
from harken.sessions.session import Session
from tests.builders import a_session

STAYS = (sys.executable, "-I", "-S", "-c", "import sys; print(flush=True); sys.stdin.read()")
NOW = datetime.now(UTC)


def session(key: str, host: str, *, consumer: str = "", pid: int = 0, native: str = "") -> Session:
    """A session that is here."""
    return a_session(
        host,
        at=NOW,
        key=SessionKey(key),
        consumer=Consumer(consumer or host),
        pid=pid,
        mailboxes=(),
        surfaces=(),
        native=native,
    )


def callers(folder: Path, *here: Session) -> Callers:
    """Sessions that are here, none of which has started what the test starts."""
    sessions = Sessions()
    sessions.inherit(here)
    return Callers(AgentProcesses(folder / "agents.json"), sessions)


@contextmanager
def process(command: Sequence[str] = STAYS, **environ: str) -> Iterator[int]:
    """A process with an environment of its own."""
    env = {"PATH": os.defpath, **environ}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        yield running.pid
        running.kill()


def test_a_marked_process_acts_as_the_session_that_its_environment_names(tmp_path: Path) -> None:
    """It reads, sends and acknowledges as the agent in whose shell it was started, though another one is here too."""
    mine = session("qwen-code:0b6f", "qwen-code", consumer="task:roof")
    other = session("qwen-code:1c70", "qwen-code")
    with process(QWEN_CODE="1", QWEN_CODE_SESSION_ID="0b6f") as pid:
        found = callers(tmp_path, other, mine).find(LocalOrigin(pid), Hello())
    assert (found.role, found.consumer, found.session) == (Role.AGENT, "task:roof", "qwen-code:0b6f")


def test_a_session_that_has_another_name_is_known_by_the_hosts_own_or_its_process(tmp_path: Path) -> None:
    """Claude Code is known by its process, and after /clear its conversation has another id than its shells say."""
    here = callers(tmp_path, session("claude-code:4711", "claude-code", pid=4711, native="0b6f"))
    for environ in ({"CLAUDE_CODE_SESSION_ID": "0b6f"}, {"CLAUDE_PID": "4711", "CLAUDE_CODE_SESSION_ID": "old"}):
        with process(CLAUDECODE="1", **environ) as pid:
            assert here.find(LocalOrigin(pid), Hello()).session == "claude-code:4711"


def test_a_marked_process_whose_session_is_not_here_acts_as_the_agent_without_one(tmp_path: Path) -> None:
    """The host may be gone, or was never connected: it is not the owner for that."""
    with process(CODEX_THREAD_ID="01a1") as pid:
        found = callers(tmp_path, session("codex:other", "codex")).find(LocalOrigin(pid), Hello())
    assert (found.role, found.consumer, found.session) == (Role.AGENT, "codex", "")


def test_of_several_marks_the_one_whose_session_is_here_counts(tmp_path: Path) -> None:
    """An agent in the shell of another has both; the outer one may be gone."""
    here = callers(tmp_path, session("opencode:s1", "opencode", pid=4711))
    with process(CLAUDECODE="1", OPENCODE="1", OPENCODE_PID="4711") as pid:
        assert here.find(LocalOrigin(pid), Hello()).session == "opencode:s1"


def test_what_a_process_descends_from_counts_before_its_marks(tmp_path: Path) -> None:
    """A host that was started in the shell of another gives its own shells the marks of both."""
    mine = session("gemini-cli:1", "gemini-cli", pid=os.getpid())
    here = callers(tmp_path, mine)
    here.agents.note([mine])
    with process(CLAUDECODE="1") as pid:
        assert here.find(LocalOrigin(pid), Hello()).session == "gemini-cli:1"


@pytest.mark.skipif(sys.platform != "linux", reason="there is no such limit elsewhere")
@pytest.mark.parametrize(
    ("limit", "run"),
    [(limit_of("r-8h2k4m"), "r-8h2k4m"), (limit_of("r-8h2k4m") - (1 << 60), "unknown"), (7, "unknown")],
)
def test_process_with_the_limit_of_a_run_is_the_runs_without_variable_or_parent(
    tmp_path: Path, limit: int, run: str
) -> None:
    """It cannot raise the limit again, and one that has lowered it is known by that: nobody else touches it."""
    command = ("bash", "-c", f"ulimit -x {limit}; exec {shlex.join(STAYS)}")
    with process(command) as pid:
        found = callers(tmp_path).find(LocalOrigin(pid), Hello())
    assert (found.role, found.session) == (Role.AGENT, f"run:{run}")
    with process() as pid:
        assert callers(tmp_path).find(LocalOrigin(pid), Hello()).role is Role.OWNER


@pytest.mark.skipif(sys.platform != "linux", reason="there is no such limit elsewhere")
def test_refusal_names_the_limit_by_which_an_unknown_run_was_known(tmp_path: Path) -> None:
    """A person whose login has such a limit would else be told that they are an agent, and not why."""
    with process(("bash", "-c", f"ulimit -x 100; exec {shlex.join(STAYS)}")) as pid:
        refusal = callers(tmp_path).find(LocalOrigin(pid), Hello()).refusal("allow senders")
    assert refusal.message == (
        "An agent may not allow senders. This counts as a command of a run, because its limit on file locks "
        "(ulimit -x) is lower than the daemon's, or it has ended."
    )


@pytest.mark.parametrize("peer", [0, 2**22 + 1], ids=["not told", "gone"])
def test_what_the_process_says_of_itself_counts_where_nobody_can_look(tmp_path: Path, peer: int) -> None:
    """Its own word is all there is, and no agent's command line hides what marks it."""
    here = callers(tmp_path)
    assert here.find(LocalOrigin(peer), Hello(env={"COPILOT_CLI": "1"})).consumer == "copilot-cli"
    assert here.find(LocalOrigin(peer), Hello(env={"HARKEN_RUN": "n-1"})).session == "run:n-1"
    assert here.find(LocalOrigin(peer), Hello()).role is Role.OWNER
