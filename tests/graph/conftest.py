"""The service with its limits off, and a client that is signed in; a test about limits turns them on."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import httpx2
import pytest

from tests.graph.service import Graph, serving


@pytest.fixture
def graph() -> Iterator[Graph]:
    """A service of its own for each test."""
    with serving(seed=7) as service:
        service.limits.is_on = False
        yield service


@pytest.fixture
def trust(graph: Graph) -> ssl.SSLContext:
    """Whom a client must trust to talk to the service."""
    return ssl.create_default_context(cafile=str(graph.ca))


@pytest.fixture
def client(graph: Graph, trust: ssl.SSLContext) -> Iterator[httpx2.Client]:
    """A plain client with a token that allows everything."""
    headers = {"Authorization": f"Bearer {graph.token()}"}
    with httpx2.Client(verify=trust, base_url=graph.url, headers=headers, timeout=10) as plain:
        yield plain
