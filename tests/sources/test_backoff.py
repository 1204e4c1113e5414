"""How long clients and listeners wait: never shorter than asked, never nothing, never without an end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.sources.feed import (
    FIRST_SECONDS,
    MAX_ADDED_SECONDS,
    MAX_ASKED_BACK_SECONDS,
    MAX_ASKED_SECONDS,
    MAX_SECONDS,
    REFUSED_SECONDS,
    Backoff,
    asked_seconds,
    wait_seconds,
)

NOW: Final = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


@given(st.integers(0, 10**11))
def test_seconds_are_read_as_they_are_up_to_the_limit(seconds: int) -> None:
    """The usual form."""
    assert asked_seconds({"Retry-After": f" {seconds} "}, NOW) == min(seconds, MAX_ASKED_SECONDS)


@given(st.integers(-100_000, 100_000), st.none() | st.integers(-1_000, 1_000))
def test_a_date_counts_from_the_services_own_clock(seconds: int, hours_off: int | None) -> None:
    """The machine's clock may be wrong by hours; the service says what time it thinks it is."""
    theirs = NOW + timedelta(hours=hours_off or 0)
    headers = {"retry-after": format_datetime(theirs + timedelta(seconds=seconds), usegmt=True)}
    if hours_off is not None:
        headers["date"] = format_datetime(theirs, usegmt=True)
    assert asked_seconds(headers, NOW) == min(max(seconds, 0), MAX_ASKED_SECONDS)


@given(st.text() | st.from_regex(r"[-+0-9eE.infa ]{1,20}"), st.text())
def test_whatever_a_header_says_the_wait_is_bounded(said: str, date: str) -> None:
    """Headers come from outside."""
    seconds = asked_seconds({"retry-after": said, "date": date}, NOW)
    assert seconds is None or 0 <= seconds <= MAX_ASKED_SECONDS


@pytest.mark.parametrize("said", ["", "soon", "-1", "1e3", "inf", "nan", "٣", "Mon, 99 Jan 2026 00:00:00 GMT"])
def test_what_is_no_time_is_not_asked(said: str) -> None:
    """Then the usual back-off applies."""
    assert asked_seconds({"retry-after": said}, NOW) is None


@given(st.integers(1, 10_000), st.none() | st.floats(), st.floats(0, 1))
def test_every_wait_is_within_its_bounds(failures: int, asked: float | None, chance: float) -> None:
    """No wait is so short that a loop is busy, and none so long that a source is forgotten."""
    wait = wait_seconds(failures, asked, lambda: chance)
    assert FIRST_SECONDS / 2 <= wait <= max(MAX_SECONDS, MAX_ASKED_SECONDS + MAX_ADDED_SECONDS)


@given(st.integers(1, 20), st.floats(0, MAX_ASKED_SECONDS), st.floats(0, 1))
def test_what_is_asked_is_never_shortened(failures: int, asked: float, chance: float) -> None:
    """Chance only spreads those who were told the same second."""
    assert asked <= wait_seconds(failures, asked, lambda: chance)


def test_waits_double_until_the_longest() -> None:
    """A service that is down is asked ever more rarely."""
    assert [wait_seconds(failures, None, lambda: 1.0) for failures in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert [wait_seconds(failures, None, lambda: 0.0) for failures in (1, 2, 3)] == [0.25, 0.5, 1]


def test_chance_spreads_the_whole_wait() -> None:
    """Full jitter: fifty listeners of one server that restarts do not come back at once."""
    backoff = Backoff(iter([0.0, 0.5, 0.25]).__next__)
    assert [backoff.next_wait() for _ in range(3)] == [0.0, 0.5, 0.5]


def test_a_server_that_asks_us_back_at_once_still_gets_a_pause() -> None:
    """`retry: 0` after each word, with chance on its side, would be a busy loop."""
    backoff = Backoff(lambda: 0.0)
    waits = []
    for asked in (0.0, 0.001, -5.0):
        backoff.was_good()
        waits.append(backoff.next_wait(asked))
    assert waits == [FIRST_SECONDS] * 3


@given(st.lists(st.tuples(st.floats(0, 1), st.none() | st.floats(0, 1e6), st.booleans()), max_size=50))
def test_every_wait_of_a_listener_is_within_its_bounds(tries: list[tuple[float, float | None, bool]]) -> None:
    """Whatever a server says and chance brings."""
    for chance, asked, is_refused in tries:
        wait = Backoff(iter([chance]).__next__).next_wait(asked, is_refused=is_refused)
        assert 0 <= wait <= max(MAX_SECONDS + REFUSED_SECONDS, MAX_ASKED_BACK_SECONDS)
