"""Whatever story a store has lived through, its journal tells it: a rebuilt database has the same mail and ledgers."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from harken.store.journal import line
from harken.store.sqlite import open_store
from tests.contracts.store_model import Machine
from tests.store.test_rebuild import rebuilt, rows

TABLES = ("messages", "mailboxes", "dedup", "cursors", "outbox", "channels", "events")


class RebuiltMachine(Machine):
    """The story, and at its end the database that its journal makes."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        super().__init__(lambda clock, journal: open_store(self.folder / "harken.db", clock, observer=journal))

    def teardown(self) -> None:
        """Compare what lived with what is told."""
        super().teardown()
        lines = [json.loads(line(event, store="abc.1")) for event in self.journal.events]
        target, report = rebuilt(self.folder, lines)
        own = self.folder / "harken.db"
        assert (report.strange_lines, report.missing_lines, report.lost_messages) == (0, 0, 0)
        assert {name: rows(target, name) for name in TABLES} == {name: rows(own, name) for name in TABLES}
        assert rows(target, "deliveries") == rows(own, "deliveries")
        shutil.rmtree(self.folder)


def test_the_journal_tells_every_story() -> None:
    """Recovery is needed once in years: it may not depend on which path a message took."""
    run_state_machine_as_test(RebuiltMachine, settings=settings(max_examples=40, stateful_step_count=25))
