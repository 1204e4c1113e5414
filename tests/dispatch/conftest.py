"""A rig with a real store, in which sessions come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.dispatch.rig import DispatchFixture, open_dispatch_fixture


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[DispatchFixture]:
    """Nobody is here, nothing waits."""
    async with open_dispatch_fixture(tmp_path) as opened:
        yield opened
