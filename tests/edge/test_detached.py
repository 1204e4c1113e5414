"""The daemon that an edge starts belongs to no session: it outlives every process of the host that wanted it."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from harken.config.home import is_locked
from harken.testing import EdgeClient, SocketClient, edge_command
from tests.edge.rig import INITIALIZE, REPORT, SERVE, LineReader, ancestors, program, result, started, tree
from tests.loss.rig import until

EDGES = 3
HOST = "import subprocess, sys; subprocess.run(sys.argv[1:])"

CARELESS_HOST = """
import fcntl, os, resource, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGHUP])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
os.set_inheritable(fcntl.fcntl(2, fcntl.F_DUPFD, int(sys.argv[1])), True)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
os.umask(int(sys.argv[2], 8))
os.execv(sys.argv[3], sys.argv[3:])
"""

WAIT = """
with open(PIPE + "-go") as go:
    go.read()
"""


@pytest.fixture
def harken_home(home: Path) -> Iterator[Path]:
    """A home whose daemon, whoever started it, is ended."""
    folder = home / "harken"
    yield folder
    lock = folder / "run" / "lock"
    if is_locked(lock):
        os.kill(daemon_of(folder), signal.SIGTERM)
    until(lambda: not is_locked(lock), "the daemon has ended")


def daemon_of(home: Path) -> int:
    """The process id of the running daemon."""
    return int(json.loads((home / "run" / "daemon.json").read_text())["pid"])


def daemons(home: Path) -> list[int]:
    """The process ids of every daemon of a home, also of those that are about to leave."""
    command = ["serve", "--home", str(home)]
    found = ((process.pid, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    return [pid for pid, words in found if words[4:7] == command]


def end_all(pids: set[int]) -> None:
    """End processes as a process manager does, without asking."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_the_daemon_lives_on_when_the_whole_process_tree_of_the_host_is_killed(harken_home: Path) -> None:
    """Process managers, containers' shells and editors end a tool together with everything that descends from it."""
    with EdgeClient([sys.executable, "-c", HOST, *edge_command(harken_home)]) as agent:
        daemon, family = daemon_of(harken_home), tree(agent.pid)
        assert len(family) > 1, "the host and its edge"
        assert daemon not in family
        end_all(family)
    address = (harken_home / "run" / "address").read_text().strip().removeprefix("unix:")
    with SocketClient(address) as caller:
        assert caller.call("status")["daemon"]["pid"] == daemon
    with EdgeClient(edge_command(harken_home)):
        assert daemon_of(harken_home) == daemon


def test_edges_that_start_at_the_same_moment_get_one_daemon(harken_home: Path) -> None:
    """Hosts start their servers together: whoever comes second to the lock must not be told of an error."""
    agents = [EdgeClient(edge_command(harken_home)) for _ in range(EDGES)]
    try:
        with ThreadPoolExecutor(EDGES) as pool:
            names = {said["serverInfo"]["name"] for said in pool.map(EdgeClient.handshake, agents)}
        assert names == {"harken"}
        assert [agent.tool("inbound_queue_stats")["depth"] for agent in agents] == [0] * EDGES
        until(lambda: daemons(harken_home) == [daemon_of(harken_home)], "the other daemons have left")
        assert not (harken_home / "run" / "failed").exists()
        assert "cannot serve" not in (harken_home / "logs" / "daemon.log").read_text()
    finally:
        for agent in agents:
            agent.close()


def test_a_daemon_that_is_still_starting_lives_on_too(home: Path, pipe: LineReader) -> None:
    """Starting takes the longest when a machine is busy, which is when people close what does not answer."""
    script = program(home, REPORT + WAIT + SERVE)
    os.mkfifo(home / "pipe-go")
    with started(home, "--spawn", script) as host:
        host.send(INITIALIZE)
        pid = pipe.message()["pid"]
        assert isinstance(pid, int)
        assert host.process.pid not in ancestors(pid)
        end_all(tree(host.process.pid))
    with started(home, "--spawn", "/nowhere/python") as host:
        host.send(INITIALIZE)
        (home / "pipe-go").write_text("go")
        assert host.read() == result(0, pid=pid)
    os.kill(pid, signal.SIGKILL)


def test_nothing_else_of_the_start_stays_behind(home: Path, pipe: LineReader) -> None:
    """What watched over the start would be one more process for every daemon that was ever started."""
    with started(home, "--spawn", program(home, REPORT + SERVE)) as host:
        pid = pipe.message()["pid"]
        assert isinstance(pid, int)
        host.send(INITIALIZE)
        assert host.read() == result(0, pid=pid)
        until(lambda: not any(str(home).encode() in words_of(one) for one in ancestors(pid)), "its parent is init")
        assert tree(host.process.pid) == {host.process.pid}
        os.kill(pid, signal.SIGKILL)


def words_of(pid: int) -> bytes:
    """The command line of a process, empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def through_a_careless_host(mask: str = "022") -> tuple[str, ...]:
    """A host that leaves open, masks, blocks and ignores what it can."""
    number = "5000" if resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 5000 else "200"
    return (sys.executable, "-c", CARELESS_HOST, number, mask)


@pytest.mark.parametrize(("mask", "kept"), [("000", 0o022), ("027", 0o027), ("777", 0o077)])
def test_the_daemon_has_nothing_of_a_careless_host(home: Path, pipe: LineReader, mask: str, kept: int) -> None:
    """A pipe that it holds never ends for the reader; with the host's mask it could not open what it wrote."""
    with started(home, "--spawn", program(home, REPORT), through=through_a_careless_host(mask)):
        report = pipe.message()
        assert (report["open"], report["umask"], report["blocked"]) == ([], kept, ["SigBlk:\t0000000000000000\n"])


def test_how_a_daemon_ended_is_known_also_under_a_careless_host(home: Path) -> None:
    """A process that ignores its children is not told how they ended, and passes that on to what it starts."""
    options = ("--spawn", program(home, "raise SystemExit(3)"), "--patience", "3")
    with started(home, *options, through=through_a_careless_host()) as host:
        host.send(INITIALIZE)
        assert "(it ended with code 3)" in str(host.read()["error"])
