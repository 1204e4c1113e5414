"""The disk is full: drafts of sources that cannot wait are held, bounded, and stored once when there is space."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from harken.config.home import Home, ensure
from harken.config.settings import Settings
from harken.daemon.compose import compose
from harken.errors import Unavailable
from harken.ingest.intake import RING_SIZE
from harken.model import Draft, Sender
from harken.testing import FakeClock
from tests.loss.test_journal_file import at_most

FULL_BYTES = 4096


def draft(number: int) -> Draft:
    """A draft of a source that gives no ids, so that nothing but care keeps it from being stored twice."""
    return Draft(source="feed", sender=Sender("someone"), text=f"draft {number}")


@pytest.mark.anyio
async def test_held_drafts_are_stored_once_and_in_order(home: Path) -> None:
    """Two loops that find the store back at the same moment must not store what was held twice, or drop the rest."""
    ensure(Home(home))
    total = RING_SIZE + 50
    async with compose(Home(home), Settings(), FakeClock()) as daemon:
        intake = daemon.intake
        with at_most(FULL_BYTES):
            for number in range(0, total, 10):
                assert not await intake.accept_or_hold([draft(number + n) for n in range(10)])
            with pytest.raises(Unavailable):
                await intake.accept([draft(total)])
        assert [held.text for held in intake.not_stored] == [f"draft {n}" for n in range(50, total)]
        assert (intake.dropped_total, bool(intake.problem)) == (50, True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(intake.flush)
            tasks.start_soon(intake.flush)
        assert (intake.not_stored, intake.dropped_total, intake.problem) == ((), 50, "")
        assert await intake.accept_or_hold([draft(total)])
        stored = await daemon.inbox.list(limit=1000)
        assert [message.text for message in stored] == [f"draft {n}" for n in range(50, total + 1)]
        events = await daemon.store.events.after(0, 1000)
        assert [event.data["count"] for event in events if event.kind == "dropped"] == [50]


@pytest.mark.anyio
async def test_drafts_yielded_again_push_nothing_out(home: Path) -> None:
    """A source whose checkpoint does not move yields the same at every poll; what others gave is held only here."""
    ensure(Home(home))
    once = [draft(number) for number in range(30)]
    again = [replace(draft(number), source="mail", upstream_id=f"u{number}") for number in range(50)]
    async with compose(Home(home), Settings(), FakeClock()) as daemon:
        intake = daemon.intake
        with at_most(FULL_BYTES):
            assert not await intake.accept_or_hold(once)
            for _ in range(10):
                assert not await intake.accept_or_hold(again)
        assert (list(intake.not_stored), intake.dropped_total) == (once + again, 0)
        assert await intake.flush() == 80
        stored = await daemon.inbox.list(limit=1000)
        assert [message.text for message in stored] == [held.text for held in once + again]
