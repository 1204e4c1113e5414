"""Whether Harken tells the truth: what it calls seen against what the wire of the model of a real host carried.

Each test plays one situation on one host. The homes are shared by the situations of a host, and every situation ends
with nothing unseen. The journal says what Harken believes, the model's requests what is so. There are two homes for
each host: what takes long because time has to pass is played on both at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest

from harken.hosts.registry import host_names
from tests.hosts.play import ObservedHost, installed, let_pass
from tests.hosts.situations import (
    CLOSED_SECONDS,
    LONG_TOOL_SECONDS,
    SITUATIONS,
    Situation,
    busy_with_a_long_tool,
    closed_for_long,
    headless_with_a_long_tool,
    leave_a_session,
    long_tool,
    long_tool_without_terminal,
    started_after_long,
)

SLOW: Final = (busy_with_a_long_tool, headless_with_a_long_tool, closed_for_long)
QUICK: Final = {name: situation for name, situation in SITUATIONS.items() if situation not in SLOW}


@pytest.fixture(scope="module", params=host_names())
def host(request: pytest.FixtureRequest) -> Iterator[ObservedHost]:
    """Each host, all its situations before the next one's."""
    with installed(str(request.param)) as observed:
        yield observed


@pytest.fixture(scope="module")
def second(host: ObservedHost) -> Iterator[ObservedHost]:
    """The same host in another home, with another Harken."""
    with installed(host.name) as observed:
        yield observed


@pytest.fixture(scope="module")
def left_at(second: ObservedHost) -> float:
    """When the session in the second home was left; the other situations are played while time passes there."""
    second.begin()
    return leave_a_session(second)


def test_message_in_a_long_tool_comes_between_two_tools(host: ObservedHost, second: ObservedHost) -> None:
    """It must not be carried past the turn by somebody who cannot wait: with a terminal, and in a run without one."""
    host.begin()
    second.begin()
    with long_tool(host), long_tool_without_terminal(second):
        let_pass(host, LONG_TOOL_SECONDS)
    host.conclude(second)


@pytest.mark.usefixtures("left_at")
@pytest.mark.parametrize("situation", QUICK.values(), ids=QUICK)
def test_what_is_called_seen_was_on_the_wire(host: ObservedHost, situation: Situation) -> None:
    """Nothing is called seen before it arrived, stays unseen after it, comes twice without a mark, or gets lost."""
    host.begin()
    situation(host)
    host.conclude()


def test_session_that_was_left_long_ago_gets_nothing(second: ObservedHost, left_at: float) -> None:
    """A message must not start a turn that no terminal shows, and must reach the next session."""
    let_pass(second, left_at + CLOSED_SECONDS - time.monotonic())
    started_after_long(second)
    second.conclude()
