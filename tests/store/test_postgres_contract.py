"""PostgreSQL keeps the contract of a store, and of one that several daemons share."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path

import pytest

from harken.clock import Clock
from harken.store.contract import Store
from harken.store.contract.events import AfterCommit, BeforeCommit
from harken.store.postgres.store import open_store as open_schema
from harken.store.sql.writer import nothing_before
from harken.testing import FakeClock
from tests.contracts.store import StoreContract
from tests.contracts.store_suite import Backend
from tests.contracts.two_openers import OpenStore, TwoOpenersSuite
from tests.store.postgres_server import SchemaPool, fresh, schemas

__all__ = ["fresh", "schemas"]  # fixtures


@pytest.fixture
def backend(fresh: SchemaPool) -> Backend:
    """Open a schema for each folder; the folder is the daemon's home."""

    def open_for_folder(
        folder: Path, clock: Clock, after_commit: AfterCommit, before_commit: BeforeCommit | None = None
    ) -> AbstractAsyncContextManager[Store]:
        return open_schema(
            fresh.target_of(folder),
            clock,
            daemon=f"{folder}",
            after_commit=after_commit,
            before_commit=before_commit or nothing_before,
        )

    return open_for_folder


class TestPostgresStore(StoreContract):
    """The whole suite, on PostgreSQL."""


@pytest.fixture
def clock() -> FakeClock:
    """The time, as every opening of the store sees it."""
    return FakeClock()


@pytest.fixture
def open_store(fresh: SchemaPool, tmp_path: Path, clock: FakeClock) -> OpenStore:
    """Open the same schema each time, as another daemon."""
    daemons = count()

    def open_as_another() -> AbstractAsyncContextManager[Store]:
        number = next(daemons)
        return open_schema(fresh.target_of(tmp_path), clock, daemon=f"{number}", machine=f"machine {number}")

    return open_as_another


class TestPostgresTwoOpeners(TwoOpenersSuite):
    """Two daemons on one schema."""
