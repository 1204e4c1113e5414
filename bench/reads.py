"""Reading with a great many messages stored, against the same with few: it should cost the same."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

import anyio

from bench.plan import Plan
from bench.rows import Budget, Row, Unit, least, once
from bench.samples import samples
from bench.stored import COMMON, CONSUMERS, MEDIUM, RARE, RARE_CHANNEL, filled_store, reader
from harken.clock import SystemClock
from harken.config.settings import LimitSettings
from harken.model import INBOX, Consumer
from harken.store.contract.messages import Filter
from harken.store.sql.store import SqlStore

FEW: Final = 1_000
NEXT: Final = 20
BUDGET: Final = Budget(at_most=1.3)
SEARCH_BUDGET: Final = Budget(at_most=20, is_of_ratio=False)
# The first half of the consumers: those that joined last have fewer than 20 to get among the few.
ASKING: Final = CONSUMERS // 2
LEASE: Final = timedelta(minutes=15)
MAX: Final = LimitSettings().new_consumer_most

Ask = Callable[[SqlStore, int], Awaitable[object]]
"""Asks a store something as the consumer of a number."""

QUERIES: Final = (
    ("search-rare", "search p95: a rare word", RARE, Filter()),
    ("search-medium", "search p95: one message in a hundred has it", MEDIUM, Filter()),
    ("search-common", "search p95: every message has it", COMMON, Filter()),
    ("search-both", "search p95: a common and a rare word", f"{COMMON} {RARE}", Filter()),
    ("search-channel", "search p95: a common word in a rare channel", COMMON, Filter(channel=RARE_CHANNEL)),
)
SEARCH_LIMIT: Final = (
    "newest first stops at the 20th hit; where hits are thin under a filter, every message with the word is looked at"
)


def measure(plan: Plan) -> Iterator[Row]:
    """Measure reads at the size of the plan against the same reads at 1,000 messages."""
    yield from anyio.run(_measure, plan, backend_options={"use_uvloop": True})


async def _measure(plan: Plan) -> list[Row]:
    async with (
        filled_store(plan.home("few"), FEW, plan.progress) as few,
        filled_store(plan.home("many"), plan.size.messages, plan.progress) as many,
    ):
        return await compare(plan, few, many)


async def compare(plan: Plan, few: SqlStore, many: SqlStore, kind: str = "") -> list[Row]:
    """Ask two stores the same things; rows begin with the kind of store that they are about."""
    rows = []
    for name, what, ask, clean, limited_by in (
        ("unread", "unread count", _unread, None, "deliveries above the cursor are counted"),
        ("next", f"next {NEXT}, looking", _peek, None, "rows are spread over a larger file"),
        ("offer", f"next {NEXT}, leasing (durable)", _offer, _withdraw, "two indexes of deliveries, fdatasync"),
    ):
        rows.append(await _compare(plan, few, many, name=name, what=what, ask=ask, clean=clean, why=limited_by))
    rows.append(await _enroll(plan, few, many))
    for name, what, text, where in QUERIES:
        rows.append(await _search(plan, few, many, name=name, what=what, text=text, where=where))
    return [replace(row, name=f"{kind}{row.name}", what=f"{kind.replace('-', ': ')}{row.what}") for row in rows]


async def _compare(
    plan: Plan, few: SqlStore, many: SqlStore, *, name: str, what: str, ask: Ask, clean: Ask | None, why: str
) -> Row:
    small, large = list[float](), list[float]()
    for number in plan.rounds(name, 300, 100):
        for store, taken in ((few, small), (many, large)):
            taken.append(await _timed(ask, store, number % ASKING))
            if clean:
                await clean(store, number % ASKING)
    return Row(
        name=name,
        what=f"{what}, {plan.size.messages:,} stored",
        unit=Unit.MICROSECONDS,
        value=least(samples(large)),
        reference_name=f"{FEW:,} stored",
        reference=least(samples(small)),
        budget=BUDGET,
        limited_by=why,
    )


async def _enroll(plan: Plan, few: SqlStore, many: SqlStore) -> Row:
    """A new consumer that begins with the last day, when all of it came within the day: the worst case."""
    small, large = list[float](), list[float]()
    since = SystemClock().now() - timedelta(days=1)
    for number in plan.rounds("enroll", 5, 3):
        for store, taken in ((few, small), (many, large)):
            began = time.perf_counter()
            await store.deliveries.enroll(Consumer(f"late-{number}"), INBOX, since, most=MAX)
            taken.append(time.perf_counter() - began)
    return Row(
        name="enroll",
        what="a new consumer begins, all received within a day",
        unit=Unit.MILLISECONDS,
        value=least(samples(large)),
        reference_name=f"{FEW:,} stored",
        reference=least(samples(small)),
    )


async def _search(plan: Plan, few: SqlStore, many: SqlStore, *, name: str, what: str, text: str, where: Filter) -> Row:
    small, large = list[float](), list[float]()
    ask = partial(_ask_search, text, where)
    for number in plan.rounds(name, 40, 20):
        small.append(await _timed(ask, few, number))
        large.append(await _timed(ask, many, number))
        if sum(large) > 5 * len(QUERIES):
            break  # It misses by far: the rest of the run matters more than its decimals.
    return Row(
        name=name,
        what=what,
        unit=Unit.MILLISECONDS,
        value=once(samples(large).p95),
        reference_name=f"{FEW:,} stored",
        reference=once(samples(small).p95),
        budget=SEARCH_BUDGET,
        limited_by=SEARCH_LIMIT,
    )


async def _timed(ask: Ask, store: SqlStore, number: int) -> float:
    began = time.perf_counter()
    await ask(store, number)
    return time.perf_counter() - began


async def _unread(store: SqlStore, number: int) -> object:
    return await store.deliveries.unread(reader(number))


async def _peek(store: SqlStore, number: int) -> object:
    return await store.deliveries.peek(reader(number), NEXT)


async def _offer(store: SqlStore, number: int) -> object:
    until = SystemClock().now() + LEASE
    return await store.deliveries.offer(reader(number), NEXT, surface="bench", carrier="offer", lease_until=until)


async def _withdraw(store: SqlStore, number: int) -> object:
    return await store.deliveries.withdraw(reader(number).session, "offer")


async def _ask_search(text: str, where: Filter, store: SqlStore, _number: int) -> object:
    return await store.messages.search(text, where, NEXT)
