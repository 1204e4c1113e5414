"""A process that works with a store until it is killed, and prints each result once it has it. Not a test.

`story` is killed before or after its n-th commit, `checkpoint` while SQLite copies its log into the database file.
`stories.py` runs them.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias

from harken.model import INBOX
from harken.store.contract import Store
from harken.store.contract.events import Event
from harken.store.contract.messages import Checkpoint
from harken.store.sqlite import open_store
from harken.store.sqlite.connection import connect
from harken.testing import FakeClock
from tests.contracts.store_suite import AGENT, READER, new_message

ROUNDS: Final = 3
COMMITS: Final = 1 + 3 * ROUNDS
LARGE_COUNT: Final = 100

Life: TypeAlias = Callable[[Store, FakeClock], Awaitable[None]]
"""What a child does with its store: it can be begun again after a crash and ends in the same state."""


class DyingConnection(sqlite3.Connection):
    """A connection that kills its process at a chosen commit."""

    commits_left = 0
    side = ""

    def execute(self, sql: str, parameters: sqlite3._Parameters = (), /) -> sqlite3.Cursor:
        """Run a statement, and die before or after the chosen commit."""
        if sql != "COMMIT":
            return super().execute(sql, parameters)
        self.commits_left -= 1
        if self.commits_left == 0 and self.side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = super().execute(sql, parameters)
        if self.commits_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def tell(kind: str, *values: object) -> None:
    """Print one line at once: what was told before a kill has been told."""
    os.write(1, json.dumps([kind, *values]).encode() + b"\n")


def observe(events: Sequence[Event]) -> None:
    """Print the numbers of the events, as the journal would."""
    tell("events", [event.n for event in events])


async def live(store: Store, clock: FakeClock) -> None:
    """Live through the story."""
    await store.deliveries.enroll(AGENT, INBOX, clock.now() - timedelta(days=1))
    tell("enrolled")
    for number in range(1, ROUNDS + 1):
        batch = [new_message(f"{number}{half}", key=f"{number}{half}".encode()) for half in "ab"]
        appended = await store.messages.append(batch, Checkpoint("teams", "chat", str(number)))
        tell("appended", number, [each.message.id for each in appended])
        until = clock.now() + timedelta(minutes=15)
        offers = (await store.deliveries.offer(READER, 1, surface="pull", carrier=str(number), lease_until=until)).whole
        tell("offered", [[each.delivery_id, each.message.id] for each in offers])
        seen = await store.deliveries.prove([each.delivery_id for each in offers], "ack")
        tell("seen", [[each.id, each.message_id] for each in seen])


async def story(live: Life, path: Path, commit: int, side: str) -> None:
    """Live until the chosen commit."""

    def opener(name: str) -> sqlite3.Connection:
        connection = sqlite3.connect(name, isolation_level=None, check_same_thread=False, factory=DyingConnection)
        connection.commits_left, connection.side = commit, side
        return connection

    clock = FakeClock()
    async with open_store(path, clock, after_commit=observe, opener=opener) as store:
        await live(store, clock)


def forbid_growth(path: Path) -> None:
    """Let the kernel end this process when a file grows beyond a little more than this one has."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = path.stat().st_size + 16 * 4096
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


async def checkpoint(path: Path) -> None:
    """Write much, then die in the middle of the checkpoint: when the database file may not grow further."""
    opened = list[sqlite3.Connection]()

    def opener(name: str) -> sqlite3.Connection:
        opened.append(connect(name))
        return opened[0]

    async with open_store(path, FakeClock(), opener=opener) as store:
        # Otherwise most of it may be in the file already, depending on how many pages an append touches.
        opened[0].execute("PRAGMA wal_autocheckpoint = 0")
        for number in range(LARGE_COUNT):
            await store.messages.append([new_message(f"{number} " + "x" * 6000)])
        tell("appended", LARGE_COUNT)
        forbid_growth(path)
        opened[0].execute("PRAGMA wal_checkpoint(TRUNCATE)")
