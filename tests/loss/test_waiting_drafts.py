"""The disk is full: what a feed yielded waits in memory, is shown as not stored, and is stored once there is space."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from harken.config.home import Home, ensure
from harken.config.settings import Settings
from harken.daemon.compose import compose
from harken.ingest.intake import MAX_SHOWN
from harken.model import Draft, Sender
from harken.testing import FakeClock
from tests.loss.test_journal_file import at_most

FULL_BYTES = 4096
SECONDS = 20.0


@pytest.mark.anyio
async def test_drafts_that_wait_are_shown_and_stored_once_in_order(home: Path) -> None:
    """The source is asked for no more meanwhile; two feeds that wait together lose nothing and repeat nothing."""
    ensure(Home(home))
    # Without ids, so that nothing but care keeps them from being stored twice.
    drafts = [
        Draft(source="feed", sender=Sender("someone"), text=f"draft {number}") for number in range(MAX_SHOWN + 50)
    ]
    async with compose(Home(home), Settings(), FakeClock()) as daemon:
        intake = daemon.intake
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                with at_most(FULL_BYTES):
                    tasks.start_soon(intake.accept_at_last, drafts)
                    tasks.start_soon(intake.accept_at_last, [Draft(source="mail", sender=Sender("ann"), text="a mail")])
                    while len(intake.not_stored) < MAX_SHOWN:
                        await anyio.lowlevel.checkpoint()
                    assert intake.not_stored[-1].text == "a mail"
                    assert intake.problem
        assert (list(intake.not_stored), intake.dropped_total, intake.problem) == ([], 0, "")
        stored = [message.text for message in await daemon.inbox.list(limit=1000)]
        assert [text for text in stored if text != "a mail"] == [draft.text for draft in drafts]
        assert stored.count("a mail") == 1
