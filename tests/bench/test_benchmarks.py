"""Every benchmark runs, at a tiny size: it would rot unseen, because nobody runs all of them with each change.

Those that start many programs run in `make soak`. No figure is judged here: a test machine is shared, and budgets are
for `make bench`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import psutil
import pytest

from bench import (
    appends,
    commands,
    connecting,
    edge,
    hooks,
    ingest,
    judging,
    listening,
    machines,
    pages,
    painting,
    reads,
    sessions,
    shared,
    starting,
    wake,
    webhooks,
)
from bench.__main__ import main
from bench.disk import sync_time
from bench.machine import file_system
from bench.painting import browser
from bench.plan import Plan, Progress, Size
from bench.processes import cpu_seconds, pss_bytes, rss_bytes
from bench.rows import Row
from bench.stored import COMMON, MEDIUM, RARE, filled_store, reader
from harken.store.contract.messages import Filter

TINY = Size(
    messages=300,
    sessions=5,
    crowds=(8,),
    connected=20,
    shared_sessions=16,
    load_seconds=0.1,
    idle_seconds=0.05,
    is_quick=True,
    rounds=2,
)

Measure = Callable[[Plan], Iterator[Row]]

QUICK: list[tuple[Measure, list[str]]] = [
    (hooks.measure, ["hook-empty", "approval-empty", "hook-text", "approval-asked", "approval-answered"]),
    (appends.measure, ["append", "append-batch"]),
    (
        reads.measure,
        [
            "unread", "next", "offer", "enroll",
            "search-rare", "search-medium", "search-common", "search-both", "search-channel",
        ],
    ),
    (pages.measure, ["page", "page-list"]),
    (listening.measure, ["listen"]),
    (judging.measure, ["rules"]),
]  # fmt: skip
SLOW: list[tuple[Measure, list[str]]] = [
    (edge.measure, ["edge-start", "edge-vs-sdk", "edge-rss", "edge-pss"]),
    (wake.measure, ["wake", "wake-p95", "wake-idle"]),
    *([(painting.measure, ["paint"])] if browser() else []),
    (
        shared.measure,
        [
            "shared-append", "shared-unread", "shared-next", "shared-offer", "shared-enroll", "shared-search-rare",
            "shared-search-medium", "shared-search-common", "shared-search-both", "shared-search-channel",
        ],
    ),
    (
        machines.measure,
        [
            "machines-wake-inbox", "machines-cpu-inbox", "machines-wake-project", "machines-cpu-project",
            "machines-idle-cpu",
        ],
    ),
    (
        sessions.measure,
        ["sessions-cpu", "sessions-rss", "sessions-wake", "sessions-rss-after", "sessions-one", "sessions-wake-8"],
    ),
    (connecting.measure, ["connect", "session-rss"]),
    (ingest.measure, ["ingest", "ingest-p99", "ingest-cpu", "ingest-one"]),
    (webhooks.measure, ["webhooks", "webhooks-p99", "webhooks-cpu"]),
    (starting.measure, ["start", "start-cpu", "rest-rss"]),
    (commands.measure, [f"cli-{verb}" for verb in ("version", "send", "list", "read", "status", "wait", "completion")]),
]  # fmt: skip


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A tiny run."""
    return Plan(TINY, tmp_path, Progress(io.StringIO()))


@pytest.mark.parametrize(("measure", "names"), [*QUICK, *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW)])
def test_a_benchmark_gives_its_rows_and_ends_what_it_started(plan: Plan, measure: Measure, names: list[str]) -> None:
    """Rows are compared between runs by name; a process left behind would disturb the next benchmark."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    rows = list(measure(plan))
    assert [row.name for row in rows] == names
    assert all(row.value.usual >= 0 for row in rows)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_a_run_prints_the_table_and_writes_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`make bench` is for people, its JSON for comparing runs: both say the same."""
    target, page = tmp_path / "results" / "run.json", tmp_path / "performance.md"
    arguments = ["--quick", "--only", "appends", "--rounds", "2", "--messages", "300"]
    assert main([*arguments, "--json", str(target), "--page", str(page)]) == 0
    run = json.loads(target.read_text())
    assert [row["name"] for row in run["rows"]] == ["append", "append-batch"]
    assert run["machine"]["messages"] == 300
    assert run["failed"] == {}
    printed = capsys.readouterr().out
    assert all(row["what"] in printed for row in run["rows"])
    assert all(row["what"] in page.read_text() for row in run["rows"])


def test_the_stored_messages_have_the_frequencies_that_rows_are_named_after(tmp_path: Path) -> None:
    """A `rare word` that is in every message would make a slow search look fast."""

    async def count() -> tuple[list[int], list[int]]:
        async with filled_store(tmp_path / "few", 1_000, Progress(io.StringIO())) as store:
            found = [len(await store.messages.search(word, Filter(), 1_000)) for word in (COMMON, MEDIUM, RARE)]
            unread = [(await store.deliveries.unread(reader(number))).count for number in (0, 50, 99)]
            return found, unread

    found, unread = anyio.run(count)
    assert found == [1_000, 10, 10]
    assert unread == [995, 495, 5]


def test_processes_are_measured_from_what_the_system_says(tmp_path: Path) -> None:
    """The figures come from /proc, where a change of format would give nonsense instead of an error."""
    process = psutil.Process()
    assert rss_bytes(process.pid) == pytest.approx(process.memory_info().rss, rel=0.2)
    assert 0 < pss_bytes(process.pid) <= rss_bytes(process.pid) * 1.2
    assert cpu_seconds(process.pid) == pytest.approx(sum(process.cpu_times()[:2]), abs=1.0)
    assert file_system(Path("/proc/self")) == "proc"
    assert sync_time(tmp_path, trials=3).minimum > 0
