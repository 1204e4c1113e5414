"""Durable appends: the store with its journal against a bare write and fdatasync of the same bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import anyio

from bench.disk import MESSAGE_BYTES, open_disk
from bench.plan import Plan
from bench.rows import Budget, Row, Unit, least, most
from bench.samples import Samples, samples
from bench.stored import journaled_store, message

BUDGET: Final = Budget(at_most=2)
LIMITED_BY: Final = "WAL pages of every table and index it touches, two hand-overs between threads, the journal's line"
BATCH: Final = 100
BATCH_BUDGET: Final = Budget(at_least=20_000, is_of_ratio=False)


def measure(plan: Plan) -> Iterator[Row]:
    """Measure appends one at a time and in batches."""
    floor, one, batch_floor, batch = anyio.run(_measure, plan, backend_options={"use_uvloop": True})
    yield Row(
        name="append",
        what="durable append, one at a time",
        unit=Unit.MICROSECONDS,
        value=least(one),
        reference_name="write+fdatasync",
        reference=least(floor),
        budget=BUDGET,
        limited_by=LIMITED_BY,
    )
    yield Row(
        name="append-batch",
        what=f"durable append, {BATCH} at a time: messages",
        unit=Unit.PER_SECOND,
        value=most(samples(BATCH / seconds for seconds in batch.values)),
        reference_name=f"write+fdatasync of {BATCH}:",
        reference=most(samples(BATCH / seconds for seconds in batch_floor.values)),
        budget=BATCH_BUDGET,
        limited_by="Python: five statements and two objects a message",
    )


async def _measure(plan: Plan) -> tuple[Samples, Samples, Samples, Samples]:
    floor, one, batch_floor, batch = [], [], [], []
    text = "x" * MESSAGE_BYTES
    data = text.encode()
    async with journaled_store(plan.home("appends")) as store:
        with open_disk(plan.folder) as disk:
            for _ in plan.rounds("append", 500, 150):
                floor.append(disk.write(data))
                began = time.perf_counter()
                await store.messages.append([message(text)])
                one.append(time.perf_counter() - began)
            for _ in plan.rounds("append batches", 40, 15):
                messages = [message(text) for _ in range(BATCH)]
                batch_floor.append(disk.write(data * BATCH))
                began = time.perf_counter()
                await store.messages.append(messages)
                batch.append(time.perf_counter() - began)
    return samples(floor), samples(one), samples(batch_floor), samples(batch)
