"""Hostile bytes at every door, a few hundred cases of each with every run; `make fuzz` tries many more."""

from __future__ import annotations

from typing import Final

import pytest

from tests.fuzz.campaign import search
from tests.fuzz.mutating import Mutator
from tests.fuzz.registry import TARGETS
from tests.fuzz.target import CORPUS, Judge, Target, plain

MAX_SECONDS: Final = 60.0


@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_break_a_promise(name: str) -> None:
    """Whoever can send something must not be able to stop, confuse or get past what reads it."""
    target = TARGETS[name]
    outcome = search(target, target.small_cases, MAX_SECONDS)
    assert outcome.finding is None, str(outcome.finding)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_come_as_far_as_they_should(name: str) -> None:
    """A target whose input is always refused at the first step finds nothing and proves nothing."""
    target = TARGETS[name]
    outcome = search(target, len(target.seeds()), MAX_SECONDS)
    assert outcome.finding is None, str(outcome.finding)
    assert target.reaches <= set(outcome.ends)


def test_every_target_has_seeds_and_every_seed_a_target() -> None:
    """A folder that nobody reads would look like cases that are tried."""
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert all(target.seeds() for target in TARGETS.values())


def test_search_finds_a_mistake_and_makes_it_small() -> None:
    """A search that misses what is there would be worse than none."""

    def judge(data: bytes) -> str:
        if b"<s" in data:
            raise KeyError(data)
        return "read"

    outcome = search(planted(judge), 5_000, MAX_SECONDS)
    assert outcome.finding is not None
    assert (outcome.finding.kind, outcome.finding.data) == ("KeyError", b"<s")


def test_search_ends_in_time() -> None:
    """It runs with every test, and a machine may be slow."""
    assert search(planted(lambda _data: "read"), 1_000_000, 0.0).cases == 1


def test_same_number_is_the_same_case() -> None:
    """What was found once can be looked at again."""
    seeds = TARGETS["webhook"].seeds()
    first, second = (Mutator(seeds, (b"x",), 4_096) for _ in range(2))
    cases = [first.case(number) for number in range(200)]
    assert cases == [second.case(number) for number in range(200)]
    assert len(set(cases)) > 150


def planted(judge: Judge) -> Target:
    """Return a target of our own over seeds that are there."""
    return Target(name="sanitise", opened=plain(judge), reaches=frozenset())
