"""What the parts of the store suite share: how a backend is opened, the journal that watches it, plain messages.

Above are the parts (`store_messages.py`, `store_deliveries.py`, …), which `store.py` puts together. This module
tests nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import pytest

from harken.clock import Clock
from harken.model import (
    INBOX,
    Attention,
    Consumer,
    DeliveryState,
    Mailbox,
    MessageId,
    NewMessage,
    Offer,
    Priority,
    Reader,
    Sender,
    SessionKey,
    Trust,
)
from harken.store.contract import Store
from harken.store.contract.deliveries import ConsumerState
from harken.store.contract.events import AfterCommit, BeforeCommit, Event
from harken.store.contract.messages import Filter
from harken.testing import FakeClock

TASK: Final = Mailbox("task:a")
AGENT: Final = Consumer("claude-code")
OTHER: Final = Consumer("copilot-cli")
READER: Final = Reader(consumer=AGENT, session=SessionKey("s1"))
SECOND: Final = Reader(consumer=AGENT, session=SessionKey("s2"))
OTHER_READER: Final = Reader(consumer=OTHER, session=SessionKey("o1"))
LEASE_SECONDS: Final = 900.0
WAIT_SECONDS: Final = 20.0
LONG_SECONDS: Final = 1e9
EVERYTHING: Final = Filter()


class Journal:
    """Keeps the events of every commit."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, events: Sequence[Event]) -> None:
        """Keep the events of one commit."""
        self.events.extend(events)

    def kinds(self) -> list[str]:
        """Return what happened, in order."""
        return [event.kind for event in self.events]

    def of(self, kind: str) -> list[Event]:
        """Return the events of one kind."""
        return [event for event in self.events if event.kind == kind]


class Backend(Protocol):
    """How a backend is opened: the test module of a backend has it as its fixture `backend`."""

    def __call__(
        self, folder: Path, clock: Clock, after_commit: AfterCommit, before_commit: BeforeCommit | None = None
    ) -> AbstractAsyncContextManager[Store]:
        """Open the store that lives in this folder, or begin one."""
        ...


class StoreSuite:
    """The fixtures of every part."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        """The time, as the store sees it."""
        return FakeClock()

    @pytest.fixture
    def journal(self) -> Journal:
        """What the store calls after each commit."""
        return Journal()

    @pytest.fixture
    async def store(self, backend: Backend, tmp_path: Path, clock: FakeClock, journal: Journal) -> AsyncIterator[Store]:
        """A new, empty store."""
        async with backend(tmp_path, clock, journal) as store:
            yield store


def new_message(
    text: str = "hello",
    *,
    mailbox: Mailbox = INBOX,
    key: bytes | None = None,
    channel: str = "",
    priority: Priority = Priority.NORMAL,
) -> NewMessage:
    """Return a message as ingest would hand it over."""
    return NewMessage(
        mailbox=mailbox,
        source="teams",
        sender=Sender("ann"),
        text=text,
        trust=Trust.KNOWN,
        attention=Attention.WAKE,
        channel=channel,
        priority=priority,
        dedup_key=key,
    )


async def fill(store: Store, *texts: str, mailbox: Mailbox = INBOX) -> None:
    """Store one message per text."""
    await store.messages.append([new_message(text, mailbox=mailbox) for text in texts])


async def texts(
    store: Store, where: Filter = EVERYTHING, limit: int = 1000, *, newest_first: bool = False
) -> list[str]:
    """Return the texts of a page."""
    return [message.text for message in await store.messages.page(where, limit, newest_first=newest_first)]


async def offer(
    store: Store,
    clock: FakeClock,
    reader: Reader = READER,
    limit: int = 100,
    *,
    carrier: str = "call-1",
    channel: str = "",
    after: str = "",
    lease_seconds: float = LEASE_SECONDS,
) -> list[Offer]:
    """Hand out what waits for a reader, with the usual lease."""
    given = await store.deliveries.offer(
        reader,
        limit,
        surface="pull",
        carrier=carrier,
        lease_until=later(clock, lease_seconds),
        channel=channel,
        after=after,
    )
    return list(given.whole)


def offered_texts(offers: Sequence[Offer]) -> list[str]:
    """Return what was offered, in order."""
    return [each.message.text for each in offers]


def later(clock: FakeClock, seconds: float) -> datetime:
    """Return a moment after (or, negative, before) now."""
    return clock.now() + timedelta(seconds=seconds)


async def place(store: Store, consumer: Consumer = AGENT, mailbox: Mailbox = INBOX) -> ConsumerState:
    """Return a consumer's place in a mailbox."""
    found = [
        each for each in await store.deliveries.consumers() if (each.consumer, each.mailbox) == (consumer, mailbox)
    ]
    assert len(found) == 1
    return found[0]


async def waits_for(store: Store, message: MessageId) -> set[Consumer]:
    """Return for whom a message is queued or offered: by its row, or because the cursor has not passed it."""
    found = await store.messages.get(message)
    rows = {each.consumer: each.state for each in await store.deliveries.ledger(message)}
    return {
        each.consumer
        for each in await store.deliveries.consumers()
        if each.mailbox == found.mailbox
        and each.cursor < found.seq
        and not rows.get(each.consumer, DeliveryState.QUEUED).is_final
    }


def mentions(event: Event, value: object) -> bool:
    """Whether an event's data names a value, whatever the field is called."""
    return value in _leaves(event.data)


def _leaves(data: object) -> list[object]:
    if isinstance(data, Mapping):
        return [*data, *(leaf for part in data.values() for leaf in _leaves(part))]
    if isinstance(data, list | tuple):
        return [leaf for part in data for leaf in _leaves(part)]
    return [data]
