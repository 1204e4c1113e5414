"""Hundreds of kills while files are moved, cut off and deleted, disks fill up and locks go: nothing accepted is lost.

After each kill a person comes: says `harken up`, and does what it says, to the letter. Then everything that was ever
accepted must be there, in order and once, and what was acknowledged must not be unread again. `SOAK_KILLS` says how
many kills there are, `SOAK_SEED` which: a failure names both. When threads send and what a kill meets is the machine's.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from tests.loss.rig import Chance, DaemonStarter
from tests.soak.killing import Life, Tally
from tests.soak.mishaps import MISHAPS, Mishap, Touched

KILLS: Final = 300
KILLS_OF_A_HOME: Final = 50  # then another one begins: what is kept grows, and so does the time to look at it
HIGHEST_SEED: Final = 1_000_000
SHORT_SEED: Final = 20_261_117


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Say how far it is, also when all is well: it takes a quarter of an hour."""

    def say(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    return say


def drawn(seed: int) -> Iterator[Mishap]:
    """Yield mishaps for ever, each of them before one comes twice; the same for the same seed."""
    chance = Chance(seed)
    while True:
        yield from chance.sample(MISHAPS, len(MISHAPS))


SHORT: Final = (
    "database deleted, while it runs",
    "journal cut off, while it runs",
    "run folder removed, while it runs",
    "disk full, while it runs",
)


def test_nothing_accepted_is_lost_when_each_kind_of_thing_happens_once(home: Path, starter: DaemonStarter) -> None:
    """The same in little: the database, the journal, the lock and the room on the disk go, one after another."""
    by_name = {mishap.name: mishap for mishap in MISHAPS}
    tally = Tally()
    with Life(home.parent / "short", starter, SHORT_SEED, tally, lambda _text: None) as life:
        for name in SHORT:
            life.be_killed(by_name[name])
        life.conclude()
    assert tally.kills >= len(SHORT)


def test_no_mishap_takes_both_halves_of_what_is_kept() -> None:
    """Without the database and the journal nothing could be brought back, and a loss would say nothing."""
    assert {mishap.touches for mishap in MISHAPS} == set(Touched)
    assert len({mishap.name for mishap in MISHAPS}) == len(MISHAPS)


def test_draw_has_every_mishap_before_one_comes_twice() -> None:
    """A soak that never plays a mishap says nothing about it; and a failure must be repeatable by its seed."""
    first = list(islice(drawn(1), len(MISHAPS)))
    assert {each.name for each in first} == {each.name for each in MISHAPS}
    assert [each.name for each in islice(drawn(1), 100)] == [each.name for each in islice(drawn(1), 100)]


@pytest.mark.soak
def test_nothing_accepted_is_lost_whatever_happens_to_the_files(
    home: Path, starter: DaemonStarter, tell: Callable[[str], None]
) -> None:
    """The one promise, under everything that can happen to a folder: what was accepted is there, or brought back."""
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(HIGHEST_SEED))
    kills = int(os.environ.get("SOAK_KILLS") or KILLS)
    tell(f"\nSOAK_SEED={seed} SOAK_KILLS={kills}")
    tally, began = Tally(), time.monotonic()
    mishaps = drawn(seed)
    while tally.kills < kills:
        end = min(kills, tally.kills + KILLS_OF_A_HOME)
        with Life(home.parent / f"home{end}", starter, seed + end, tally, tell) as life:
            while tally.kills < end:
                life.be_killed(next(mishaps))
            life.conclude()
    tell(f"{tally} in {time.monotonic() - began:.0f} s")
    assert tally.kills >= kills
