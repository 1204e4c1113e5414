"""The daemon by itself: how long it takes until it can be asked something, and what it keeps while it has no agents."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Final

from bench.plan import Plan
from bench.processes import BARE_IDLE, cpu_seconds, rss_bytes, running, serving, time_to_end
from bench.rows import Budget, Row, Unit, least
from bench.samples import samples

PYTHON: Final = (sys.executable, "-c", "pass")
READY_BUDGET: Final = Budget(at_most=500, is_of_ratio=False)
MEMORY_BUDGET: Final = Budget(at_most=60, is_of_ratio=False)


def measure(plan: Plan) -> Iterator[Row]:
    """Measure daemons that begin with nothing stored."""
    bare, ready, cpu, rss, idle = [], [], [], [], []
    for number in plan.rounds("daemon start", 7, 3):
        bare.append(time_to_end(PYTHON))
        began = time.perf_counter()
        with serving(plan.home(f"start-{number}")) as daemon:
            ready.append(time.perf_counter() - began)
            # What it does later, of its own accord, belongs to the start.
            time.sleep(plan.size.idle_seconds)
            cpu.append(cpu_seconds(daemon.pid))
            rss.append(rss_bytes(daemon.pid))
        with running(BARE_IDLE) as process:
            idle.append(rss_bytes(process.pid))
    yield Row(
        name="start",
        what="daemon: spawn to ready",
        unit=Unit.MILLISECONDS,
        value=least(samples(ready)),
        reference_name="python -c pass",
        reference=least(samples(bare)),
        budget=READY_BUDGET,
        limited_by="importing: the store, HTTP, and the declarations of hosts and sources",
    )
    yield Row(
        name="start-cpu",
        what=f"daemon: processor time of its first {plan.size.idle_seconds:g} seconds",
        unit=Unit.MILLISECONDS,
        value=least(samples(cpu)),
        reference_name="python -c pass",
        reference=least(samples(bare)),
    )
    yield Row(
        name="rest-rss",
        what="daemon: memory at rest, without agents",
        unit=Unit.MEGABYTES,
        value=least(samples(rss)),
        reference_name="bare interpreter",
        reference=least(samples(idle)),
        budget=MEMORY_BUDGET,
        limited_by="what is imported; each library that is not needed at the start can wait until it is used",
    )
