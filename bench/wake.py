"""From a message accepted to a waiting agent that has it: durable, across three processes.

The agent is a raw MCP client behind a real edge; the clock starts just before the sender writes its call.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.disk import MESSAGE_BYTES, Disk, open_disk
from bench.plan import Plan
from bench.processes import running, script, serving
from bench.rows import Budget, Row, Unit, least, once
from bench.samples import Samples, samples
from harken.testing.agent import EdgeClient
from harken.testing.daemon import SocketClient

TEXT: Final = "x" * MESSAGE_BYTES
LINE: Final = TEXT.encode() + b"\n"
BUDGET: Final = Budget(at_most=4.5)
IDLE_BUDGET: Final = Budget(at_most=5.5)
P95_BUDGET: Final = Budget(at_most=5, is_of_ratio=False)
POLL_SECONDS: Final = 0.005
IDLE_SECONDS: Final = 0.02
ARM_SECONDS: Final = 10.0
LIMITED_BY: Final = (
    "Python woken five times on the way (daemon, writer, daemon, edge, agent) where the reference is woken twice; "
    "the SDK's answer alone takes as long as the reference"
)


@contextmanager
def relay(path: Path, count: int) -> Iterator[list[socket.socket]]:
    """Connections to a process that repeats each line of the first to all of them."""
    with running(script("relay.py", str(path), str(count))):
        streams = [socket.socket(socket.AF_UNIX) for _ in range(count)]
        try:
            for stream in streams:
                stream.connect(str(path))
            yield streams
        finally:
            for stream in streams:
                stream.close()


def round_trip(stream: socket.socket, line: bytes) -> None:
    """Send a line to the relay and wait until all of it is back."""
    stream.sendall(line)
    left = len(line)
    while left:
        left -= len(stream.recv(left))


def until_waiting(caller: SocketClient, count: int) -> None:
    """Return when that many sessions are in a long poll."""
    end = time.monotonic() + ARM_SECONDS
    while sum(s["presence"] == "waiting" for s in caller.call("status")["sessions"]) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"fewer than {count} sessions wait")
        time.sleep(POLL_SECONDS)
    # A poll counts as waiting just before it looks for itself the first time.
    time.sleep(POLL_SECONDS)


def measure(plan: Plan) -> Iterator[Row]:
    """Measure waking one agent."""
    home = plan.home("wake")
    with (
        serving(home) as daemon,
        EdgeClient(daemon.edge_command("bench"), name="bench") as agent,
        daemon.caller() as caller,
        open_disk(home) as disk,
        relay(home / "relay.sock", 1) as streams,
    ):
        floor, woken = _rounds(plan, agent, caller, disk, streams[0])
        idle_floor, idle_woken = _rounds(plan, agent, caller, disk, streams[0], idle_seconds=IDLE_SECONDS)
    yield Row(
        name="wake",
        what="send to waiting agent, durable, hot",
        unit=Unit.MILLISECONDS,
        value=least(woken),
        reference_name="write+fdatasync+round trip",
        reference=least(floor),
        budget=BUDGET,
        limited_by=LIMITED_BY,
    )
    yield Row(
        name="wake-p95",
        what="the same, 95th percentile",
        unit=Unit.MILLISECONDS,
        value=once(woken.p95),
        reference_name="the floor's p95",
        reference=once(floor.p95),
        budget=P95_BUDGET,
        limited_by="other load on the machine, and the chores of the daemon (index, journal)",
    )
    yield Row(
        name="wake-idle",
        what=f"send to waiting agent, after {IDLE_SECONDS * 1e3:.0f} ms in which nothing happened",
        unit=Unit.MILLISECONDS,
        value=least(idle_woken),
        reference_name="write+fdatasync+round trip",
        reference=least(idle_floor),
        budget=IDLE_BUDGET,
        limited_by="a processor that was idle runs the first lines of any code several times slower",
    )


def _rounds(
    plan: Plan, agent: EdgeClient, caller: SocketClient, disk: Disk, stream: socket.socket, *, idle_seconds: float = 0.0
) -> tuple[Samples, Samples]:
    floor, woken = [], []
    for _ in plan.rounds("wake", 200, 60):
        time.sleep(idle_seconds)
        began = time.perf_counter()
        disk.write(LINE)
        round_trip(stream, LINE)
        floor.append(time.perf_counter() - began)
        woken.append(_wake(agent, caller, idle_seconds))
    return samples(floor), samples(woken)


def _wake(agent: EdgeClient, caller: SocketClient, idle_seconds: float) -> float:
    request = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
    until_waiting(caller, 1)
    time.sleep(idle_seconds)
    began = time.perf_counter()
    caller.ask("send", text=TEXT)
    messages = agent.result(request)
    took = time.perf_counter() - began
    caller.answer()
    if [message["content"] for message in messages] != [TEXT]:
        raise RuntimeError(f"the agent got {len(messages)} messages")
    return took
