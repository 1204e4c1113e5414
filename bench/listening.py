"""Listening to an MCP server: from its socket to the durable store, against a bare parse of the same stream."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Final

import anyio
import httpx2
import msgspec

from bench.plan import Plan
from bench.rows import Row, Unit, most
from bench.samples import samples
from bench.stored import journaled_store
from harken.clock import SystemClock
from harken.ingest.intake import Intake, PolicyBook
from harken.ingest.pairing import Pairings
from harken.ingest.policy import IngestPolicy
from harken.sources.mcp.settings import read_settings
from harken.sources.mcp.source import McpSource

COUNT: Final = 5_000
SECONDS: Final = 120
LIMITED_BY: Final = "cleaning, redacting and judging each text, and the store's five statements a message, in Python"


def measure(plan: Plan) -> Iterator[Row]:
    """Measure announcements a second."""
    count = min(COUNT, plan.size.messages)
    heard, bare = list[float](), list[float]()
    for number in plan.rounds("announcements", 5, 2):
        with _announcing(count) as url:
            bare.append(count / anyio.run(_parse, f"{url}/bare", count))
            heard.append(count / anyio.run(_listen, plan, f"{url}/mcp", count, number))
    yield Row(
        name="listen",
        what=f"announcements of an MCP server, durable, {count:,} at once",
        unit=Unit.PER_SECOND,
        value=most(samples(heard)),
        reference_name="read and parsed only",
        reference=most(samples(bare)),
        limited_by=LIMITED_BY,
    )


@contextmanager
def _announcing(count: int) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.announcing", str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            port = server.stdout.readline() if server.stdout is not None else b""
            yield f"http://127.0.0.1:{int(port)}"
        finally:
            server.kill()


async def _parse(url: str, count: int) -> float:
    """Return how long it takes to read and decode every event."""
    began, found = time.perf_counter(), 0
    async with httpx2.AsyncClient(timeout=SECONDS) as client, client.stream("GET", url) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                found += "method" in msgspec.json.decode(line[6:])
    if found != count:
        raise RuntimeError(f"{found} of {count} came")
    return time.perf_counter() - began


async def _listen(plan: Plan, url: str, count: int, number: int) -> float:
    """Return how long it takes until every announcement is stored."""
    clock, found = SystemClock(), 0
    source = McpSource(read_settings("bench", {"kind": "mcp", "url": url}), clock)
    async with journaled_store(plan.home(f"listening-{number}")) as store:
        intake = Intake(store, PolicyBook(store.people, store.tokens, IngestPolicy()), Pairings(clock))
        began = time.perf_counter()
        with anyio.fail_after(SECONDS):
            async with aclosing(source.feeds()[0].follow("")) as batches:
                async for batch in batches:
                    await intake.accept_at_last(batch.drafts)
                    found += len(batch.drafts)
                    if found >= count:
                        return time.perf_counter() - began
    raise RuntimeError(f"{found} of {count} came")
