"""SQLite keeps the contract of a store."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from harken.clock import Clock
from harken.store.contract import Store
from harken.store.contract.events import AfterCommit, BeforeCommit
from harken.store.sql.writer import nothing_before
from harken.store.sqlite import open_store as open_file
from harken.testing import FakeClock
from tests.contracts.store import ModelSuite, StoreContract
from tests.contracts.store_deliveries import LeaseSuite, ProofSuite
from tests.contracts.store_filters import BeforeCommitSuite
from tests.contracts.store_journal import JournalSuite, RestartSuite
from tests.contracts.store_messages import AppendConcurrencySuite, AppendSuite
from tests.contracts.store_suite import Backend
from tests.contracts.store_waits import WaitSuite
from tests.contracts.two_openers import OpenStore, TwoOpenersSuite


def _backend(*, may_use_loop: bool) -> Backend:
    def open_in_folder(
        folder: Path, clock: Clock, after_commit: AfterCommit, before_commit: BeforeCommit | None = None
    ) -> AbstractAsyncContextManager[Store]:
        folder.mkdir(exist_ok=True)
        return open_file(
            folder / "harken.db",
            clock,
            after_commit=after_commit,
            before_commit=before_commit or nothing_before,
            may_use_loop=may_use_loop,
        )

    return open_in_folder


@pytest.fixture
def backend() -> Backend:
    """Open a database file in the test's folder."""
    return _backend(may_use_loop=False)


class TestSqliteStore(StoreContract):
    """The whole suite, on SQLite."""


class TestSqliteInLoop:
    """What has quick jobs, where these are committed in the event loop, as in a daemon."""

    @pytest.fixture
    def backend(self) -> Backend:
        """Open a database file in the test's folder."""
        return _backend(may_use_loop=True)

    TestAppend = AppendSuite
    TestAppendConcurrency = AppendConcurrencySuite
    TestProof = ProofSuite
    TestLease = LeaseSuite
    TestBeforeCommit = BeforeCommitSuite
    TestWait = WaitSuite
    TestJournal = JournalSuite
    TestRestart = RestartSuite
    TestModel = ModelSuite


@pytest.fixture
def clock() -> FakeClock:
    """The time, as every opening of the store sees it."""
    return FakeClock()


@pytest.fixture
def open_store(tmp_path: Path, clock: FakeClock) -> OpenStore:
    """Open the same file each time."""
    return partial(open_file, tmp_path / "harken.db", clock)


@pytest.mark.skip(reason="one daemon writes a SQLite file: the lock of its home keeps every other one out")
class TestSqliteTwoOpeners(TwoOpenersSuite):
    """What SQLite is not: a store that several daemons share."""
