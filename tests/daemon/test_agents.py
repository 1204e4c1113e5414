"""Who is an agent: known while its session is here, and remembered over a restart of the daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from harken.daemon.callers import MOST_KEPT_AT_ONCE, AgentProcesses
from harken.dispatch.bells import BellRinger, Bells
from harken.model import Message, SessionKey
from harken.processes import identity_of
from harken.sessions.registry import Sessions
from harken.sessions.session import Session
from harken.store.sql.writer import LocalChanges
from tests.builders import a_session
from tests.cost import instructions_of
from tests.inbox.rig import Quiet


def session(pid: int, host: str = "codex", *, opened_at: datetime | None = None, identity: str = "") -> Session:
    """A live session of a process."""
    opened_at = opened_at or datetime.now(UTC)
    return a_session(
        host,
        at=opened_at,
        key=SessionKey(f"{host}:{pid}"),
        pid=pid,
        mailboxes=(),
        surfaces=(),
        process_identity=identity or identity_of(pid),
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where agents are remembered."""
    return tmp_path / "agents.json"


def test_an_agent_is_one_also_after_a_restart(file: Path) -> None:
    """Until its edge is back, its shell would pass for the person, and its word for the owner's."""
    parent = os.getppid()
    AgentProcesses(file).note([session(parent)])
    known = AgentProcesses(file).above(os.getpid())
    assert known is not None
    assert known.reads_as == ("codex", f"codex:{parent}")
    assert file.stat().st_mode & 0o777 == 0o600


def test_whose_session_has_ended_is_no_agent_any_more(file: Path) -> None:
    """The process may be a shell in which an agent ran for a while."""
    agents = AgentProcesses(file)
    agents.note([session(os.getppid())])
    agents.note([])
    assert agents.above(os.getpid()) is None
    assert AgentProcesses(file).above(os.getpid()) is None


def test_another_process_with_the_same_number_is_no_agent(file: Path) -> None:
    """Numbers are used again; whoever has it now began at another moment."""
    AgentProcesses(file).note([session(os.getppid(), identity=identity_of(os.getpid()) + "1")])
    assert AgentProcesses(file).above(os.getpid()) is None


@pytest.mark.parametrize("days", [-4_000, 4_000])
def test_an_agent_stays_one_when_the_clock_is_set(file: Path, days: int) -> None:
    """Taken for the person, it could do what only the owner may."""
    opened_at = datetime.now(UTC) + timedelta(days=days)
    AgentProcesses(file).note([session(os.getppid(), opened_at=opened_at)])
    assert AgentProcesses(file).above(os.getpid()) is not None


def test_an_agent_that_an_earlier_version_noted_is_one_while_its_number_is_in_use(file: Path) -> None:
    """Nobody can say whether it is the same process: it gets no more than an agent."""
    known = {"consumer": "codex", "session": "codex:1", "since": "2001-01-01T00:00:00Z", "host": "codex"}
    file.write_text(json.dumps([{"pid": os.getppid(), **known}]))
    assert AgentProcesses(file).above(os.getpid()) is not None


@pytest.mark.parametrize("left", [b"", b"{", b'[{"pid": "x"}]', b"\xff"])
def test_a_damaged_file_is_no_accident(file: Path, left: bytes) -> None:
    """A daemon that does not start because of it would lose mail."""
    file.write_bytes(left)
    assert AgentProcesses(file).above(os.getpid()) is None


def test_what_any_mcp_client_started_is_the_persons(file: Path) -> None:
    """It may be an editor with the person's own terminal inside."""
    agents = AgentProcesses(file)
    agents.note([session(os.getppid(), "generic")])
    assert agents.above(os.getpid()) is None


def noted(file: Path) -> int:
    """How many agents the file knows."""
    return len(json.loads(file.read_text()))


async def nothing_waits(*_asked: object, **_besides: object) -> Sequence[Message]:
    """No message waits for anybody."""
    return ()


def connect(sessions: Sessions, number: int) -> None:
    """Let an agent with a process of its own connect."""
    pid = 1_000_000 + number  # no number that this system gives away
    sessions.open(session(pid, identity="told"), f"e{number}", Quiet())


@pytest.mark.parametrize("kind", ["codex", "generic"])
def test_a_newcomer_costs_the_same_however_many_are_here(file: Path, kind: str) -> None:
    """Every one that looked at all the others would make thousands of agents slow to connect, and each hook of theirs.

    Who is an agent, and which bells are listened to, is learnt of the newcomer alone.
    """
    sessions = Sessions()
    AgentProcesses(file).follow(sessions)
    BellRinger(Bells(file.parent), LocalChanges(), sessions, nothing_waits, {"codex"})
    cost: dict[int, int] = {}
    for number in range(1_500):
        fresh = session(1_000_000 + number, kind, identity="told")
        opening = partial(sessions.open, fresh, f"e{number}", Quiet())
        if number in (200, 1_499):
            cost[number] = instructions_of(opening)
        else:
            opening()
    assert cost[1_499] <= 1.1 * cost[200]


@pytest.mark.anyio
async def test_of_very_many_agents_the_file_is_written_soon(file: Path) -> None:
    """To write all of them with each newcomer is quadratic; none may be missing when the daemon has ended."""
    sessions = Sessions()
    agents = AgentProcesses(file)
    agents.follow(sessions)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agents.run)
        await anyio.lowlevel.checkpoint()
        for number in range(MOST_KEPT_AT_ONCE + 50):
            connect(sessions, number)
        assert noted(file) == MOST_KEPT_AT_ONCE
        tasks.cancel_scope.cancel()
    assert noted(file) == MOST_KEPT_AT_ONCE + 50
