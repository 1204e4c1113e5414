"""The service that the tests of Teams and Outlook talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.graph.service import Graph
from tests.sources.microsoft.teams_rig import standing_service


@pytest.fixture
def graph() -> Iterator[Graph]:
    """A service whose clock stands until somebody moves it."""
    with standing_service() as service:
        yield service


@pytest.fixture
def unlimited(graph: Graph) -> None:
    """Let the service bear any number of requests, as tests make in which no time passes."""
    graph.limits.is_on = False


@pytest.fixture
def running(graph: Graph) -> None:
    """Let the clock of the service run with the machine's."""
    graph.clock.run()
