"""What the listeners are tested against."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.graph.certificate import write_loopback_pair
from tests.sources.mcp.rig import Server, serving


@pytest.fixture
async def untrusted(tmp_path: Path) -> AsyncIterator[Server]:
    """A server with a certificate of an authority that nobody trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_loopback_pair(tmp_path)[1])
    async with serving(Server(), context) as server:
        yield server
