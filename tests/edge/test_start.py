"""The edge starts as fast as the interpreter allows, on nothing but the standard library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.edge.rig import INITIALIZE, FakeDaemon, LineReader, result, started

# What an interpreter without site has loaded by itself, and what the edge adds to it.
SLOW = {"json", "re", "enum", "socket", "argparse", "subprocess", "typing", "os", "collections", "threading", "asyncio"}


@pytest.fixture
def transport() -> str:
    """The thread of the other transport imports `socket`."""
    return "unix"


def imported(reader: LineReader, *, until: str = "") -> set[str]:
    """The modules that `-X importtime` has told of so far, or until one is named."""
    names: set[str] = set()
    while until not in names if until else not reader.is_quiet(0.05):
        line = reader.line().decode()
        assert line.startswith("import time:"), line
        names.add(line.rpartition("|")[2].strip())
    return names - {"imported package"}


def test_json_is_imported_only_after_the_first_answer(home: Path, daemon: FakeDaemon) -> None:
    """Importing it takes as long as the whole start, while an agent waits."""
    with started(home, interpreter=("-X", "importtime")) as host:
        assert host.process.stderr is not None
        stderr = LineReader(host.process.stderr.fileno())
        connection = daemon.accept()
        host.send(INITIALIZE)
        assert connection.message() == INITIALIZE
        before = imported(stderr)
        assert "_socket" in before
        assert before & SLOW == set()
        connection.send(result(0))
        assert host.read() == result(0)
        after = imported(stderr, until="json")
        foreign = {name for name in before | after if name.partition(".")[0] not in sys.stdlib_module_names}
        assert all(name == "harken" or name.startswith("harken.edge") for name in foreign)


def test_the_edge_is_small(home: Path, daemon: FakeDaemon) -> None:
    """There is one for every open session. The benchmark holds it to 12 MB; here only a slip is caught."""
    with started(home) as host:
        connection = daemon.accept()
        host.send(INITIALIZE)
        assert connection.message() == INITIALIZE
        connection.send(result(0))
        assert host.read() == result(0)
        assert host.memory_kb("VmRSS") < 16_000
