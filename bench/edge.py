"""What a session start costs: the edge's time to its first answer, and its memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from bench.plan import Plan
from bench.processes import BARE, BARE_IDLE, pss_bytes, rss_bytes, running, script, serving, time_to_answer, time_to_end
from bench.rows import Budget, Row, Unit, least
from bench.samples import samples
from harken.testing.agent import EdgeClient

INITIALIZE: Final = (
    json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "bench", "version": "1"},
            },
        }
    ).encode()
    + b"\n"
)
CALLS: Final = 20
START_BUDGET: Final = Budget(at_most=1.3)
SDK_BUDGET: Final = Budget(at_least=40)
MEMORY_BUDGET: Final = Budget(at_most=12, is_of_ratio=False)


def measure(plan: Plan) -> Iterator[Row]:
    """Measure the edge against a daemon that is up."""
    with serving(plan.home("edge")) as daemon:
        command = daemon.edge_command("bench")
        yield from _start(plan, command)
        yield from _memory(plan, command)


def _start(plan: Plan, command: Sequence[str]) -> Iterator[Row]:
    bare, edge, sdk = [], [], []
    for _ in plan.rounds("edge start", 40, 12):
        bare.append(time_to_end(BARE))
        edge.append(time_to_answer(command, INITIALIZE))
    value = least(samples(edge))
    yield Row(
        name="edge-start",
        what="edge: spawn to the answer of initialize",
        unit=Unit.MILLISECONDS,
        value=value,
        reference_name="python -I -S -c pass",
        reference=least(samples(bare)),
        budget=START_BUDGET,
        limited_by="the interpreter's start, then the relay's modules and the daemon's handshake",
    )
    edge = []
    for _ in plan.rounds("SDK start", 5, 2):
        sdk.append(time_to_answer(script("sdk_stdio.py"), INITIALIZE))
        edge.append(time_to_answer(command, INITIALIZE))
    yield Row(
        name="edge-vs-sdk",
        what="edge: times faster than the SDK over stdio",
        unit=Unit.MILLISECONDS,
        value=least(samples(edge)),
        reference_name="SDK server",
        reference=least(samples(sdk)),
        is_speedup=True,
        budget=SDK_BUDGET,
        limited_by="the machine's import speed decides what the SDK costs; the edge is at its own floor",
    )


def _memory(plan: Plan, command: Sequence[str]) -> Iterator[Row]:
    bare, rss, pss = [], [], []
    for _ in plan.rounds("edge memory", 3, 1):
        with running(BARE_IDLE) as idle:
            bare.append(rss_bytes(idle.pid))
        with EdgeClient(command, name="bench") as agent:
            agent.request("tools/list", {})
            for _ in range(CALLS):
                agent.tool("inbound_queue_stats")
            rss.append(rss_bytes(agent.pid))
            pss.append(pss_bytes(agent.pid))
    for name, what, measured in (
        ("edge-rss", "edge: resident memory after some calls", rss),
        ("edge-pss", "edge: its share of memory (PSS)", pss),
    ):
        yield Row(
            name=name,
            what=what,
            unit=Unit.MEGABYTES,
            value=least(samples(measured)),
            reference_name="bare interpreter",
            reference=least(samples(bare)),
            budget=MEMORY_BUDGET,
            limited_by="the interpreter, and `json` once a request has been answered",
        )
