"""A small pool of read-only connections, used from worker threads."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import anyio
import anyio.to_thread

from harken.memory import out_of_memory
from harken.store.sqlite.connection import open_reader
from harken.store.sqlite.errors import translated

T = TypeVar("T")

POOL_SIZE = 4
_NO_THREAD = "can't start new thread"


class Readers:
    """Runs reading functions, at most `POOL_SIZE` at a time, each in one consistent snapshot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        self._limiter = anyio.CapacityLimiter(POOL_SIZE)

    def start(self) -> None:
        """Open the connections."""
        for _ in range(POOL_SIZE):
            self._idle.put(open_reader(self._path))

    def stop(self) -> None:
        """Close the connections. Nothing may be reading any more."""
        while not self._idle.empty():
            self._idle.get().close()

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a reading function in a worker thread."""
        try:
            return await anyio.to_thread.run_sync(self._read, job, limiter=self._limiter)
        except RuntimeError as exc:
            if _NO_THREAD not in str(exc):
                raise
            raise out_of_memory() from exc

    def _read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._idle.get()
        try:
            with translated():
                connection.execute("BEGIN")
                try:
                    return job(connection)
                finally:
                    connection.execute("COMMIT")
        finally:
            self._idle.put(connection)
