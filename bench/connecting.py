"""Sessions that connect one after the other: what the last of thousands costs beside one of the first, and its memory.

Processor time of the daemon is compared, because the time on the clock is that of the client, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.plan import Plan
from bench.processes import exact_cpu_seconds, rss_bytes, serving
from bench.rows import Budget, Row, Unit, least, once
from bench.samples import samples
from bench.swarm import Swarm

BUDGET: Final = Budget(at_most=1.5)
BLOCKS: Final = 20
COMPARED: Final = 5  # blocks at each end: the collector of the interpreter works in some of them and not in others


def measure(plan: Plan) -> Iterator[Row]:
    """Measure what each session costs the daemon, in blocks."""
    block = max(1, plan.size.connected // BLOCKS)
    costs: list[float] = []
    with serving(plan.home("connecting")) as daemon, Swarm(daemon.socket, ["first"]) as swarm:
        bare_rss = rss_bytes(daemon.pid)
        for number in range(BLOCKS):
            plan.progress.step("connecting", number + 1, BLOCKS)
            before = exact_cpu_seconds(daemon.pid)
            for each in range(block):
                swarm.add(daemon.socket, f"consumer-{number}-{each}")
            costs.append((exact_cpu_seconds(daemon.pid) - before) / block)
        grown = rss_bytes(daemon.pid) - bare_rss
    count = block * BLOCKS
    yield Row(
        name="connect",
        what=f"daemon: processor time to connect one of the last {block * COMPARED:,} of {count:,} sessions",
        unit=Unit.MILLISECONDS,
        value=least(samples(costs[-COMPARED:])),
        reference_name=f"one of the first {block * COMPARED:,}",
        reference=least(samples(costs[:COMPARED])),
        budget=BUDGET,
        limited_by="what looks at all sessions whenever one comes",
    )
    yield Row(
        name="session-rss",
        what=f"daemon: memory for each of {count:,} connected sessions",
        unit=Unit.MEGABYTES,
        value=once(grown / count),
    )
