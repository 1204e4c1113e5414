"""A bot beside its service, for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.sources.bot.rig import Rig, bot_rig


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """A bot on loopback."""
    async with bot_rig() as made:
        yield made
