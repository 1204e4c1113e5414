"""A house with a real store, in which sessions come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.dispatch.rig import House, open_house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """Nobody is here, nothing waits."""
    async with open_house(tmp_path) as opened:
        yield opened
