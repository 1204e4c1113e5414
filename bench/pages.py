"""Opening the page with much stored, against the same with little: it should cost what it shows."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from bench.plan import Plan
from bench.rows import Budget, Row, Unit, least
from bench.samples import samples
from bench.stored import CHANNELS, message
from harken.clock import SystemClock
from harken.inbox.caller import Bounds, Caller, Role
from harken.inbox.conversations import Conversations
from harken.inbox.inbox import Inbox
from harken.inbox.taskbook import TaskBook
from harken.inbox.tasks import NewTask, Tasks
from harken.inbox.views import Views
from harken.ingest.intake import Intake, PolicyBook
from harken.ingest.pairing import Pairings
from harken.ingest.policy import IngestPolicy
from harken.model import INBOX, Consumer, Reader, SessionKey
from harken.sessions.registry import Sessions
from harken.sessions.session import MailScope
from harken.store.sql.store import SqlStore
from harken.store.sqlite import open_store

LITTLE: Final = (100, 5)
MUCH: Final = (10_000, 200)
BATCH: Final = 500
OWNER: Final = Caller(role=Role.OWNER)
AGENT: Final = Reader(consumer=Consumer("claude-code"), session=SessionKey("bench"))
# Fifty messages in both, and a line for each task: 255 lines against 55 or so.
BUDGET: Final = Budget(at_most=5)
LIST_BUDGET: Final = Budget(at_most=1.5)


def measure(plan: Plan) -> Iterator[Row]:
    """Measure the list and the newest messages with 10,000 messages and 200 tasks, against 100 and 5."""
    yield from anyio.run(_measure, plan, backend_options={"use_uvloop": True})


async def _measure(plan: Plan) -> Sequence[Row]:
    small, large = list[float](), list[float]()
    few_listed, all_listed = list[float](), list[float]()
    many = (min(MUCH[0], plan.size.messages), MUCH[1] if plan.size.messages >= MUCH[0] else LITTLE[1])
    async with (
        looked_at(plan.home("page-few"), *LITTLE) as few,
        looked_at(plan.home("page-many"), *many) as full,
    ):
        for _ in plan.rounds("page", 200, 50):
            for store, taken, listed in ((few, small, few_listed), (full, large, all_listed)):
                began = time.perf_counter()
                await store.views.overview()
                await store.views.timeline(mailbox=INBOX)
                taken.append(time.perf_counter() - began)
                began = time.perf_counter()
                await store.conversations.list("open", limit=50)
                listed.append(time.perf_counter() - began)
    listing = Row(
        name="page-list",
        what=f"list of conversations, {many[0]:,} messages",
        unit=Unit.MILLISECONDS,
        value=least(samples(all_listed)),
        reference_name=f"{LITTLE[0]}",
        reference=least(samples(few_listed)),
        budget=LIST_BUDGET,
        limited_by="fifty rows in both: the newest message of each, and what of it is unread",
    )
    opening = Row(
        name="page",
        what=f"page opens, {many[0]:,} messages and {many[1]} tasks",
        unit=Unit.MILLISECONDS,
        value=least(samples(large)),
        reference_name=f"{LITTLE[0]} and {LITTLE[1]}",
        reference=least(samples(small)),
        budget=BUDGET,
        limited_by="a line for every task: its place, its unread, its last message",
    )
    return [opening, listing]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """What a page asks."""

    views: Views
    conversations: Conversations


@asynccontextmanager
async def looked_at(folder: Path, messages: int, tasks: int) -> AsyncIterator[LookedAt]:
    """Views over a store with so many messages, most in `inbox` and some in each of so many tasks."""
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    clock = SystemClock()
    async with open_store(folder / "harken.db", clock) as store:
        policies, book = PolicyBook(store.people, store.tokens, IngestPolicy()), TaskBook(store.tasks)
        intake = Intake(store, policies, Pairings(clock))
        inbox = Inbox(store, intake, policies, Sessions(), clock, bounds=Bounds(), tasks=book)
        use_cases = Tasks(store, inbox, book, clock, reading_of=lambda _cwd, agent, _named=None, **_: MailScope(agent))
        for number in range(tasks):
            await use_cases.new(OWNER, NewTask(title=f"Task {number}", dir=f"/work/{number}", prompt="begin"))
        await _fill(store, messages - tasks)
        await inbox.pull(AGENT, limit=20, surface="bench", carrier="bench")
        views = Views(store, use_cases.list, inbox, clock)
        yield LookedAt(views=views, conversations=Conversations(store.conversations, store.messages, clock))


async def _fill(store: SqlStore, count: int) -> None:
    for begin in range(0, count, BATCH):
        await store.messages.append(
            [message(f"message {n}", CHANNELS[n % len(CHANNELS)]) for n in range(begin, min(count, begin + BATCH))]
        )
