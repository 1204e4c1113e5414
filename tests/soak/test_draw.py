"""The draw of the soak: every situation, the same for the same seed."""

from __future__ import annotations

from tests.soak.draw import draw

HOSTS = ("one", "two", "three")
SITUATIONS = tuple("abcdefgh")


def test_every_situation_is_drawn_when_there_is_room() -> None:
    """A soak that never plays a situation says nothing about it."""
    for seed in range(50):
        drawn = draw(seed, HOSTS, SITUATIONS, 4)
        assert [len(each) for each in drawn.values()] == [4, 4, 4], seed
        assert {situation for each in drawn.values() for situation in each} == set(SITUATIONS), seed


def test_same_seed_draws_the_same() -> None:
    """A failure must be repeatable by its seed."""
    assert draw(7, HOSTS, SITUATIONS, 5) == draw(7, HOSTS, SITUATIONS, 5)
    assert draw(7, HOSTS, SITUATIONS, 5) != draw(8, HOSTS, SITUATIONS, 5)


def test_short_run_draws_no_situation_twice() -> None:
    """With room for a few only, each is another one."""
    drawn = [situation for each in draw(1, HOSTS, SITUATIONS, 2).values() for situation in each]
    assert len(drawn) == len(set(drawn)) == 6
