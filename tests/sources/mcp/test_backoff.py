"""How long a listener waits: never so short that a broken server is hammered, never so long that it is given up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harken.sources.feed import FIRST_SECONDS, MAX_ASKED_BACK_SECONDS, MOST_SECONDS, REFUSED_SECONDS, Backoff


def almost_one() -> float:
    """Return the upper end of chance."""
    return 1.0


def test_waits_double_from_half_a_second_to_half_a_minute() -> None:
    """The ceilings of full jitter, without end."""
    backoff = Backoff(almost_one)
    assert [backoff.next_wait() for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    for _ in range(10_000):
        backoff.next_wait()
    assert backoff.next_wait() == MOST_SECONDS


def test_chance_spreads_the_whole_wait() -> None:
    """Full jitter: fifty listeners of one server that restarts do not come back at once."""
    backoff = Backoff(iter([0.0, 0.5, 0.25]).__next__)
    assert [backoff.next_wait() for _ in range(3)] == [0.0, 0.5, 0.5]


def test_a_good_connection_begins_anew() -> None:
    """A server that was down for an hour last week does not make us wait today."""
    backoff = Backoff(almost_one)
    for _ in range(6):
        backoff.next_wait()
    backoff.was_good()
    assert backoff.next_wait() == 0.5


def test_what_the_server_asks_is_respected_up_to_a_limit() -> None:
    """It knows when it will be back, but it may not switch us off."""
    backoff = Backoff(lambda: 0.0)
    assert backoff.next_wait(7.0) == 7.0
    assert backoff.next_wait(1e9) == MAX_ASKED_BACK_SECONDS


def test_a_server_that_asks_us_back_at_once_still_gets_a_pause() -> None:
    """`retry: 0` after each word, with chance on its side, would be a busy loop."""
    backoff = Backoff(lambda: 0.0)
    waits = []
    for asked in (0.0, 0.001, -5.0):
        backoff.was_good()
        waits.append(backoff.next_wait(asked))
    assert waits == [FIRST_SECONDS] * 3


def test_a_server_that_refuses_us_is_asked_slowly_and_a_person_is_needed() -> None:
    """A wrong token does not become right by asking often; a short hiccup of a sign-in service passes."""
    backoff = Backoff(lambda: 0.0)
    waits = [(backoff.next_wait(is_refused=each), backoff.needs_person) for each in (True, True, True, False, True)]
    assert waits == [(0.0, False), (0.0, False), (REFUSED_SECONDS, True), (0.0, False), (0.0, False)]


@given(st.lists(st.tuples(st.floats(0, 1), st.none() | st.floats(0, 1e6), st.booleans()), max_size=50))
def test_every_wait_is_within_its_bounds(tries: list[tuple[float, float | None, bool]]) -> None:
    """Whatever a server says and chance brings."""
    for chance, asked, is_refused in tries:
        wait = Backoff(iter([chance]).__next__).next_wait(asked, is_refused=is_refused)
        assert 0 <= wait <= max(MOST_SECONDS + REFUSED_SECONDS, MAX_ASKED_BACK_SECONDS)
