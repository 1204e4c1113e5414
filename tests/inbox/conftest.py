"""The use cases, ready to be asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harken.inbox.caller import Bounds
from tests.inbox.rig import LEASE, Bench, open_bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A new inbox with the usual bounds."""
    async with open_bench(tmp_path, Bounds(lease=LEASE)) as opened:
        yield opened
