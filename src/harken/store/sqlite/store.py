"""`SqliteStore`: the contract over one file. Each noun's class, with its SQL, is in the module of that noun."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from harken.clock import Clock
from harken.store.contract.events import AfterCommit, BeforeCommit
from harken.store.files import DiskReserve, OpenFiles
from harken.store.sqlite.actions import SqliteActions
from harken.store.sqlite.connection import Connect, connect, files_of, open_reader, open_writer, prepare_file
from harken.store.sqlite.conversations import SqliteConversations
from harken.store.sqlite.deliveries import SqliteDeliveries
from harken.store.sqlite.events import SqliteEvents
from harken.store.sqlite.health import SqliteHealth
from harken.store.sqlite.messages import SqliteCheckpoints, SqliteMessages
from harken.store.sqlite.offers import WaitingReaders
from harken.store.sqlite.outbox import SqliteOutbox
from harken.store.sqlite.people import SqlitePeople
from harken.store.sqlite.questions import SqliteQuestions
from harken.store.sqlite.retention import SqliteRetention
from harken.store.sqlite.rules import SqliteRules
from harken.store.sqlite.runs import SqliteRuns
from harken.store.sqlite.tasks import SqliteTasks
from harken.store.sqlite.timeline import SqliteTimeline
from harken.store.sqlite.transaction import Readers, translated
from harken.store.sqlite.writer import LocalChanges, Writer, nothing_after, nothing_before


class SqliteStore:
    """The embedded store: the contract over one file. Use `open_store`."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        writer: Writer,
        readers: Readers,
        changes: LocalChanges,
        waiting: WaitingReaders,
    ) -> None:
        self.changes = changes
        self.messages = SqliteMessages(writer, readers)
        self.checkpoints = SqliteCheckpoints(readers)
        self.deliveries = SqliteDeliveries(writer, readers, waiting, clock)
        self.people = SqlitePeople(writer, readers, clock)
        self.rules = SqliteRules(writer, readers)
        self.actions = SqliteActions(writer, readers)
        self.runs = SqliteRuns(writer, readers)
        self.outbox = SqliteOutbox(writer, readers, clock)
        self.questions = SqliteQuestions(writer, readers)
        self.conversations = SqliteConversations(writer, readers)
        self.tasks = SqliteTasks(writer, readers)
        self.events = SqliteEvents(writer, readers)
        self.timeline = SqliteTimeline(readers)
        self.retention = SqliteRetention(writer, readers, clock)
        self.health = SqliteHealth(writer, readers, path)


@asynccontextmanager
async def open_store(
    path: Path,
    clock: Clock,
    *,
    after_commit: AfterCommit = nothing_after,
    before_commit: BeforeCommit = nothing_before,
    opener: Connect = connect,
    watched: Collection[Path] = (),
    reserve: DiskReserve | None = None,
) -> AsyncIterator[SqliteStore]:
    """Open the store at `path`, creating it when there is none; close it with every write finished.

    On a full disk, what agents are given is still written into the `reserve`, if there is one, and new mail is refused.
    Nothing is written any more when one of its files, or of those that are `watched`, is not the one that was opened.
    """
    changes = LocalChanges()
    with translated():
        await anyio.to_thread.run_sync(prepare_file, path)
        connection = await anyio.to_thread.run_sync(open_writer, path, opener)
        files = OpenFiles(*files_of(path), *watched)
        files.remember()
        waiting = WaitingReaders()
        writer = Writer(
            connection,
            clock,
            waiting,
            files=files,
            reserve=reserve,
            after_commit=after_commit,
            before_commit=before_commit,
            changes=changes,
        )
        readers = Readers(partial(open_reader, path))
        readers.start()
    writer.start()
    try:
        yield SqliteStore(path, clock, writer=writer, readers=readers, changes=changes, waiting=waiting)
    finally:
        with anyio.CancelScope(shield=True):
            writer.refuse()
            await anyio.to_thread.run_sync(writer.join)
            readers.stop()
