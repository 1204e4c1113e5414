"""What is left after the process was killed: everything it had promised, and no half of anything.

`crash_child.py` lives through a small story and is killed before or after each of its commits.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harken.model import DeliveryState
from harken.store.contract import Store
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.contracts.store_suite import AGENT, EVERYTHING, LEASE_SECONDS, offer, place, texts
from tests.store.conftest import Storyteller
from tests.store.crash_child import COMMITS, LARGE_COUNT, ROUNDS, live


async def check_promises(store: Store, told: Sequence[Any]) -> None:
    """Check that what was told is there, and that nothing is there by half."""
    page = await store.messages.page(EVERYTHING, 100)
    events = [event.n for event in await store.events.after(0, 1000)]
    assert [message.seq for message in page] == list(range(1, len(page) + 1))
    assert [message.text for message in page] == [f"{n}{half}" for n in range(1, len(page) // 2 + 1) for half in "ab"]
    assert await store.checkpoints.get("teams", "chat") == (str(len(page) // 2) if page else "")
    assert events == list(range(1, len(events) + 1))
    ids = {message.id for message in page}
    for kind, *values in told:
        match kind:
            case "events":
                assert set(values[0]) <= set(events)
            case "enrolled":
                assert (await place(store)).consumer == AGENT
            case "appended":
                assert set(values[1]) <= ids
            case "offered" | "seen":
                for delivery, message in values[0]:
                    [row] = [each for each in await store.deliveries.ledger(message) if each.consumer == AGENT]
                    assert row.id == delivery
                    assert row.state is DeliveryState.SEEN or kind == "offered"


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("commit", range(1, COMMITS + 1))
async def test_killed_process_keeps_its_promises(
    tmp_path: Path, storyteller: Storyteller, commit: int, side: str
) -> None:
    """Whatever a caller was told survives a kill at any commit, and the work goes on where it stopped."""
    path, clock = tmp_path / "harken.db", FakeClock()
    code, told = storyteller("mail", path, commit, side)
    assert code == -signal.SIGKILL
    results = [each for each in told if each[0] != "events"]
    assert len(results) == commit - 1
    async with open_store(path, clock) as store:
        assert bool(await store.events.last()) == (commit > 1 or side == "after"), "killed on the wrong side"
        await check_promises(store, told)
        await live(store, clock)
        assert await texts(store) == [f"{n}{half}" for n in range(1, ROUNDS + 1) for half in "ab"]
        clock.advance(LEASE_SECONDS + 1)
        rest = await offer(store, clock)
        here = await place(store)
        assert (here.head, here.unread) == (2 * ROUNDS, len(rest))
        assert len(rest) <= ROUNDS


async def test_story_has_as_many_commits_as_are_tried(tmp_path: Path, storyteller: Storyteller) -> None:
    """If the story grows, the kills must grow with it."""
    code, told = storyteller("mail", tmp_path / "harken.db", COMMITS + 1, "before")
    assert code == 0
    assert len([each for each in told if each[0] != "events"]) == COMMITS


async def test_kill_in_the_middle_of_a_checkpoint_is_no_damage(tmp_path: Path, storyteller: Storyteller) -> None:
    """The database file is shorter than it says while SQLite copies its log; the log still has everything."""
    path = tmp_path / "harken.db"
    code, told = storyteller("checkpoint", path)
    assert code == -signal.SIGXFSZ
    assert told == [["appended", LARGE_COUNT]]
    said = int.from_bytes(path.read_bytes()[28:32], "big") * 4096
    assert path.stat().st_size < said, "the kill did not hit the middle of the checkpoint"
    async with open_store(path, FakeClock()) as store:
        assert [text.split()[0] for text in await texts(store)] == [str(n) for n in range(LARGE_COUNT)]
