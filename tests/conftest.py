"""What every test shares: the event loop, and property tests that give the same result on every machine."""

from __future__ import annotations

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.contracts")

settings.register_profile("harken", derandomize=True, deadline=None, database=None)
settings.load_profile("harken")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, which the daemon runs on."""
    return "asyncio"
