"""Whatever story a store has lived through, its journal tells it: a rebuilt database has the same mail and ledgers."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from harken.model import SenderRule, Trust
from harken.store.contract.messages import Checkpoint
from harken.store.contract.people import Mute
from harken.store.journal import line
from harken.store.sqlite import open_store
from tests.contracts.store_model import Machine
from tests.contracts.store_suite import new_message
from tests.examples import examples
from tests.store.test_rebuild import rebuilt, rows

TABLES = (
    *("messages", "mailboxes", "dedup", "checkpoints", "cursors", "outbox", "channels", "events"),
    *("senders", "mutes", "questions"),
)


class RebuiltMachine(Machine):
    """The story, and at its end the database that its journal makes."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        super().__init__(lambda clock, journal: open_store(self.folder / "harken.db", clock, after_commit=journal))

    @rule(
        feed=st.sampled_from(["chat", "mail"]),
        position=st.sampled_from(["p1", "p2", "p3"]),
        key=st.sampled_from([b"d", b"e"]),
        is_question=st.booleans(),
    )
    def read_on(self, feed: str, position: str, key: bytes, *, is_question: bool) -> None:
        """Let a source yield something that may be known, something new, and how far it was read.

        Without anything new the journal does not tell how far: what is yielded again then is known.
        """
        new = [new_message(key=key), replace(new_message(), is_question=is_question)]
        for appended in self.do(partial(self.store.messages.append, new, Checkpoint("teams", feed, position))):
            if appended.is_new:
                self.model.add(appended.message)

    @rule(data=st.data(), fate=st.sampled_from(["sent", "parked", "retried"]))
    def send(self, data: st.DataObject, fate: str) -> None:
        """Let a reply leave, be parked, or be tried again; of a try that failed the journal tells nothing."""
        queued = self.do(partial(self.store.outbox.list, state="parked" if fate == "retried" else "queued"))
        if not queued:
            return
        row = data.draw(st.sampled_from([each.id for each in queued]), label="reply")
        if fate == "retried":
            self.do(partial(self.store.outbox.retry, [row]))
        elif fate == "sent":
            self.do(partial(self.store.outbox.sent, row, f"up-{row}"))
        else:
            self.do(partial(self.store.outbox.failed, row, "no answer", due_at=None))

    @rule(who=st.sampled_from(["ann", "bob"]), trust=st.sampled_from(Trust), is_muted=st.booleans())
    def decide(self, who: str, trust: Trust, *, is_muted: bool) -> None:
        """Let the person decide about a sender."""
        self.do(partial(self.store.people.set_sender, SenderRule("teams", who, trust)))
        self.do(partial(self.store.people.set_mute, Mute("sender", who, None), is_on=is_muted))

    def teardown(self) -> None:
        """Compare what lived with what is told."""
        super().teardown()
        lines = [json.loads(line(event, store="abc.1")) for event in self.journal.events]
        target, report = rebuilt(self.folder, lines)
        own = self.folder / "harken.db"
        assert (report.strange_lines, report.missing_lines, report.lost_messages) == (0, 0, 0)
        for name in TABLES:
            assert rows(target, name) == rows(own, name), name
        assert rows(target, "deliveries") == rows(own, "deliveries")
        shutil.rmtree(self.folder)


@pytest.mark.hypothesis
def test_the_journal_tells_every_story() -> None:
    """Recovery is needed once in years: it may not depend on which path a message took."""
    run_state_machine_as_test(RebuiltMachine, settings=settings(max_examples=examples(40), stateful_step_count=25))
