"""SQLite keeps the contract of a store."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from harken.clock import Clock
from harken.store.contract import Store
from harken.store.contract.events import AfterCommit, BeforeCommit
from harken.store.sqlite import open_store
from harken.store.sqlite.writer import nothing_before
from tests.contracts.store import StoreContract
from tests.contracts.store_suite import Backend


@pytest.fixture
def backend() -> Backend:
    """Open a database file in the test's folder."""

    def open_in_folder(
        folder: Path, clock: Clock, after_commit: AfterCommit, before_commit: BeforeCommit | None = None
    ) -> AbstractAsyncContextManager[Store]:
        folder.mkdir(exist_ok=True)
        return open_store(
            folder / "harken.db", clock, after_commit=after_commit, before_commit=before_commit or nothing_before
        )

    return open_in_folder


class TestSqliteStore(StoreContract):
    """The whole suite, on SQLite."""
