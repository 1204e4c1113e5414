"""The charts of the page: whatever the numbers are, nothing leaves the picture and nothing that happened is hidden."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.surfaces.web.page.pulse import MARKS, MIN_HEIGHT, bars, duration, place, scale_top, spread

HEIGHT = 160
COUNTS = st.one_of(st.integers(0, 5), st.integers(0, 10**7))
SERIES = st.integers(0, 24).flatmap(lambda n: st.lists(st.lists(COUNTS, min_size=n, max_size=n), max_size=9))
SECONDS = st.floats(min_value=0, max_value=10**7)


@given(SERIES)
def test_every_count_is_seen_and_stays_in_the_picture(series: list[list[int]]) -> None:
    """Very uneven numbers are the rule: one message beside ten thousand must neither vanish nor push others out."""
    drawn = bars(series, height=HEIGHT)
    for column, stack in zip(drawn.columns, zip(*series, strict=True), strict=True):
        assert column.total == sum(stack) <= drawn.top
        assert len(column.segments) == sum(1 for count in stack if count)
        tall = sum(segment.height for segment in column.segments)
        assert (tall >= MIN_HEIGHT - 0.1) is bool(column.total)
        assert tall <= HEIGHT + 0.1
        assert all(0 <= segment.y <= HEIGHT for segment in column.segments)
        assert 0 <= column.slot <= column.left
        assert column.left + column.width <= column.slot + column.slot_width + 0.01 <= 100.1


@given(SERIES)
def test_columns_do_not_overlap(series: list[list[int]]) -> None:
    """Two hours in one place would be read as one."""
    columns = bars(series, height=HEIGHT).columns
    for left, right in pairwise(columns):
        assert left.left + left.width <= right.left


@given(st.integers(0, 10**9))
def test_scale_ends_at_an_even_number_near_the_highest(most: int) -> None:
    """Its half is a label too, and half of a message is nothing; a scale too large would press everything flat."""
    top = scale_top(most)
    assert most <= top
    assert top % 2 == 0
    assert top <= max(2, 2 * most)


def test_counts_are_stacked_from_the_bottom() -> None:
    """The first channel stands on the ground line, the next one upon it."""
    column = bars([[1], [3]], height=100).columns[0]
    assert [(s.series, s.y, s.height) for s in column.segments] == [(0, 75.0, 25.0), (1, 0.0, 75.0)]


def test_nothing_at_all_is_an_empty_picture() -> None:
    """A new home has no channels; the page must not fail on its first day."""
    assert list(bars([], height=HEIGHT).columns) == []
    assert [column.total for column in bars([[0, 0]], height=HEIGHT).columns] == [0, 0]


def test_series_of_different_lengths_are_refused() -> None:
    """Counts would silently move to another hour."""
    with pytest.raises(ValueError, match="count per column"):
        bars([[1], [1, 2]], height=HEIGHT)


@given(SECONDS, SECONDS)
def test_longer_is_never_further_left(one: float, other: float) -> None:
    """The order of durations is all that a place on the scale says."""
    short, long = sorted((one, other))
    assert 0 <= place(short) <= place(long) <= 100


@given(SECONDS, SECONDS)
def test_band_between_median_and_p95_fits_the_scale(one: float, other: float) -> None:
    """The band is drawn from one to the other."""
    short, long = sorted((one, other))
    found = spread(short, long)
    assert found.width >= 0
    assert found.median + found.width <= 100.01


def test_marks_span_the_scale_in_order() -> None:
    """Labels at the ends must not be cut off."""
    marks = spread(1, 2).marks
    assert [mark.label for mark in marks] == ["0.1 s", "1 s", "10 s", "1 min", "10 min", "1 h", "1 d"]
    assert [marks[0].at, marks[-1].at] == [0, 100]
    assert [marks[0].anchor, marks[-1].anchor] == ["start", "end"]
    assert sorted(MARKS) == list(MARKS)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (-1, "0 s"),
        (0.04, "0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3_599.7, "1 h"),
        (3_725, "1 h 2 min"),
        (86_400, "1 d"),
        (200_000, "2 d 7 h"),
    ],
)
def test_duration_is_said_in_two_units_at_most(seconds: float, said: str) -> None:
    """People compare the first unit; what rounds up to a whole unit is said as that unit."""
    assert duration(seconds) == said
