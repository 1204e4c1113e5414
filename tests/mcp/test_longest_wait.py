"""The real cap on waiting, which takes as long as it says."""

from __future__ import annotations

import time

import pytest

from tests.mcp.rig import Connect


@pytest.mark.slow
def test_a_wait_of_an_hour_returns_within_fifty_six_seconds(connect: Connect) -> None:
    """Hosts give up a call after a minute: the answer, even an empty one, has to be there before."""
    agent = connect()
    begun = time.monotonic()
    assert agent.result(agent.ask_tool("wait_for_inbound_message", timeout_s=3600)) == []
    assert 55.0 <= time.monotonic() - begun < 56.0
