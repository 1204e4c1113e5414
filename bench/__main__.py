"""`python -m bench`: measure, print the table, write the JSON and, when all was measured, the page about it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench import (
    appends,
    commands,
    connecting,
    edge,
    hooks,
    ingest,
    judging,
    listening,
    machine,
    machines,
    pages,
    painting,
    reads,
    report,
    sessions,
    shared,
    starting,
    wake,
    webhooks,
)
from bench.plan import FULL, QUICK, Plan, Progress, Size
from bench.rows import Row
from harken.testing.daemon import CallFailed

BENCHMARKS: Final[Mapping[str, Callable[[Plan], Iterator[Row]]]] = {
    "edge": edge.measure,
    "hooks": hooks.measure,
    "wake": wake.measure,
    "appends": appends.measure,
    "reads": reads.measure,
    "shared": shared.measure,
    "machines": machines.measure,
    "pages": pages.measure,
    "painting": painting.measure,
    "listening": listening.measure,
    "judging": judging.measure,
    "sessions": sessions.measure,
    "connecting": connecting.measure,
    "ingest": ingest.measure,
    "webhooks": webhooks.measure,
    "commands": commands.measure,
    "starting": starting.measure,
}
PAGE: Final = Path(__file__).parent.parent / "docs" / "explanation" / "performance.md"
RESULTS: Final = Path(__file__).parent / "results" / "latest.json"
MAX_REASON: Final = 300
# What can go wrong while measuring; the other benchmarks still count.
FAILURES: Final = (OSError, RuntimeError, EOFError, ValueError, CallFailed, subprocess.SubprocessError)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmarks; return 1 when one could not be run. A missed budget is no failure: it is in the table."""
    options = _options(arguments)
    progress = Progress()
    size = _size(options)
    rows: list[Row] = []
    failed: dict[str, str] = {}
    parent = machine.disk_folder(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix="harken-bench-", dir=parent) as folder:
        facts = machine.facts(Path(folder))
        print(f"{facts['cores']} cores, load {facts['load']:.1f}, {facts['file_system']}, fdatasync {_sync(facts)}")
        for name in options.only or BENCHMARKS:
            began = time.monotonic()
            try:
                rows += BENCHMARKS[name](Plan(size, Path(folder), progress))
            except FAILURES as exc:
                failed[name] = f"{type(exc).__name__}: {exc}"[:MAX_REASON]
            progress.say(f"{name}: {failed.get(name, 'done')} ({time.monotonic() - began:.0f} s)")
    print(report.table(rows))
    facts = {**facts, "messages": size.messages, "quick": size.is_quick}
    _write(options.json, json.dumps(report.as_json(rows, facts, failed), indent=2, ensure_ascii=False) + "\n")
    if options.page is not None or (size == FULL and not options.only):
        _write(options.page or PAGE, report.page(rows, facts, failed))
    for name, reason in failed.items():
        print(f"{name} could not be measured: {reason}", file=sys.stderr)
    return 1 if failed else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Harken against its budgets.")
    parser.add_argument("--quick", action="store_true", help="fewer messages and rounds")
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), help="only this one; may be repeated")
    parser.add_argument("--rounds", type=_positive, default=0, help="this many rounds of everything")
    parser.add_argument("--messages", type=_positive, default=0, help="this many stored messages")
    parser.add_argument("--json", type=Path, default=RESULTS, help=f"where the JSON goes ({RESULTS.name})")
    parser.add_argument("--page", type=Path, help=f"write the page here; a full run writes {PAGE.name} anyway")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _size(options: argparse.Namespace) -> Size:
    chosen = QUICK if options.quick else FULL
    return replace(chosen, rounds=options.rounds, messages=options.messages or chosen.messages)


def _sync(facts: Mapping[str, object]) -> str:
    times = facts["fdatasync_us"]
    return f"{times['usual']} µs ({times['best']})" if isinstance(times, dict) else ""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
