"""Who is an agent: known while its session is here, and remembered over a restart of the daemon."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harken.daemon.callers import AgentProcesses
from harken.model import SessionKey
from harken.processes import identity_of
from harken.sessions.session import Session
from tests.builders import a_session


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
