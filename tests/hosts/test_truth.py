"""Whether Harken tells the truth: what it calls seen against what the wire of the model of a real host carried.

Each test plays one situation on one host. The host, its home and its Harken are shared by the situations of a host;
every situation ends with nothing unseen. The journal says what Harken believes, the model's requests what is so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from harken.trial.launch import LAUNCHES
from tests.hosts.play import ObservedHost, installed, let_pass
from tests.hosts.situations import (
    CLOSED_SECONDS,
    SITUATIONS,
    Situation,
    closed_for_long,
    leave_a_session,
    started_after_long,
)

# That one is played beside the others, see `left`.
SHORT = {name: each for name, each in SITUATIONS.items() if each is not closed_for_long}


@pytest.fixture(scope="module", params=tuple(LAUNCHES))
def host_name(request: pytest.FixtureRequest) -> str:
    """Each host, all its situations before the next one's."""
    return str(request.param)


@pytest.fixture(scope="module")
def left(host_name: str) -> Iterator[tuple[ObservedHost, float]]:
    """A host whose session was left at some time; the other situations are played while time passes here."""
    with installed(host_name) as host:
        yield host, leave_a_session(host)


@pytest.fixture(scope="module")
def shared(left: tuple[ObservedHost, float]) -> Iterator[ObservedHost]:
    """The host for all other situations."""
    with installed(left[0].name) as host:
        yield host


@pytest.mark.parametrize("situation", SHORT.values(), ids=SHORT)
def test_what_is_called_seen_was_on_the_wire(shared: ObservedHost, situation: Situation) -> None:
    """Nothing is called seen before it arrived, stays unseen after it, comes twice without a mark, or gets lost."""
    shared.begin()
    situation(shared)
    shared.conclude()


def test_session_that_was_left_long_ago_gets_nothing(left: tuple[ObservedHost, float]) -> None:
    """A message must not start a turn that no terminal shows, and must reach the next session."""
    host, left_at = left
    let_pass(host, left_at + CLOSED_SECONDS - time.monotonic())
    host.begin()
    started_after_long(host)
    host.conclude()
