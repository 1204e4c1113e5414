"""Databases to measure against: many messages, many consumers, built through the store's own contract."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio

from bench.plan import Progress
from harken.clock import SystemClock
from harken.model import INBOX, Attention, Consumer, NewMessage, Reader, Sender, SessionKey, Trust
from harken.store.journal import Journal
from harken.store.sql.store import SqlStore
from harken.store.sqlite import open_store

CONSUMERS: Final = 100
BATCH: Final = 5_000
INDEX_BATCH: Final = 50_000
OFFERED: Final = 10
SEED: Final = 11

COMMON: Final = "the"
MEDIUM: Final = "deploy"
RARE: Final = "zanzibar"
MEDIUM_EVERY: Final = 100
RARE_PARTS: Final = 10
RARE_CHANNEL: Final = "alerts/critical"
CHANNELS: Final = ("teams", "email", "ci", "agent")
WORDS_PER_MESSAGE: Final = 24
VOCABULARY: Final = 20_000


def message(text: str, channel: str = "ci") -> NewMessage:
    """Return a message as ingest makes it."""
    return NewMessage(
        mailbox=INBOX,
        source="bench",
        sender=Sender("ci-bot", "CI"),
        text=text,
        trust=Trust.KNOWN,
        attention=Attention.WAKE,
        channel=channel,
    )


def reader(number: int) -> Reader:
    """Return the consumer of a number, with a session of its own."""
    return Reader(consumer=Consumer(f"consumer-{number}"), session=SessionKey(f"bench:{number}"))


class Texts:
    """Texts whose words are as unevenly frequent as in real mail; the same in every run."""

    def __init__(self, count: int) -> None:
        self._random = random.Random(SEED)
        self._words = [f"w{number:x}" for number in range(VOCABULARY)]
        self._weights = _running_sum([1 / (rank + 10) for rank in range(VOCABULARY)])
        self._rare_every = max(1, count // RARE_PARTS)

    def message(self, number: int) -> NewMessage:
        """Return the message of a number, from 0."""
        words = self._random.choices(self._words, cum_weights=self._weights, k=WORDS_PER_MESSAGE)
        extra = MEDIUM if number % MEDIUM_EVERY == 0 else ""
        is_rare = number % self._rare_every == 0
        channel = RARE_CHANNEL if is_rare else CHANNELS[number % len(CHANNELS)]
        return message(" ".join([COMMON, *words, extra, RARE if is_rare else ""]), channel)


def _running_sum(values: Sequence[float]) -> list[float]:
    total, result = 0.0, []
    for value in values:
        total += value
        result.append(total)
    return result


@asynccontextmanager
async def journaled_store(folder: Path) -> AsyncIterator[SqlStore]:
    """A store with its journal, as the daemon has it."""
    await anyio.Path(folder).mkdir(parents=True)
    journal = Journal(folder)
    async with open_store(folder / "harken.db", SystemClock(), after_commit=journal.observe) as store:
        try:
            yield store
        finally:
            journal.close()


@asynccontextmanager
async def filled_store(folder: Path, count: int, progress: Progress) -> AsyncIterator[SqlStore]:
    """A store of many messages, searchable, whose consumers joined one after the other while it grew."""
    await anyio.Path(folder).mkdir(parents=True)
    async with open_store(folder / "harken.db", SystemClock()) as store:
        await _fill(store, count, progress)
        indexed = 0
        while found := await store.messages.index(INDEX_BATCH):
            indexed += found
            progress.step("index", indexed, count)
        await _hand_out(store)
        yield store


async def _fill(store: SqlStore, count: int, progress: Progress) -> None:
    texts, part = Texts(count), max(1, count // CONSUMERS)
    clock, joined = SystemClock(), 0
    for begin in range(0, count, min(BATCH, part)):
        if joined < CONSUMERS and begin >= joined * part:
            await store.deliveries.enroll(reader(joined).consumer, INBOX, clock.now())
            joined += 1
        await store.messages.append([texts.message(n) for n in range(begin, min(count, begin + min(BATCH, part)))])
        progress.step("store", min(count, begin + BATCH), count)


async def _hand_out(store: SqlStore) -> None:
    """Give every consumer some, half of them proven, so that there are deliveries above and below the cursors."""
    until = SystemClock().now() + timedelta(hours=1)
    for number in range(CONSUMERS):
        given = await store.deliveries.offer(
            reader(number), OFFERED, surface="bench", carrier="fill", lease_until=until
        )
        await store.deliveries.prove([offer.delivery_id for offer in given.whole[: OFFERED // 2]], "bench")
