"""One inbox over a real store, put together the way the daemon does it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from harken.config.home import Home, ensure
from harken.config.settings import Settings
from harken.daemon.compose import Daemon, compose
from harken.inbox.caller import Caller, Role
from harken.model import Consumer, Reader, SessionKey
from harken.testing import FakeClock

OWNER = Caller(role=Role.OWNER)


@dataclass(frozen=True)
class Tour:
    """What the tour looks at: a daemon's parts, without its sockets, and a clock that can be moved."""

    daemon: Daemon
    clock: FakeClock
    home: Home


@asynccontextmanager
async def open_tour(folder: Path) -> AsyncIterator[Tour]:
    """A fresh inbox for the time of the block."""
    home, clock = Home(folder / "home"), FakeClock()
    ensure(home)
    async with compose(home, Settings(), clock) as daemon:
        yield Tour(daemon, clock, home)


@pytest.fixture
async def tour(tmp_path: Path) -> AsyncIterator[Tour]:
    """A fresh inbox."""
    async with open_tour(tmp_path) as tour:
        yield tour


def agent(name: str, session: str = "1") -> Reader:
    """How a session of an agent reads."""
    return Reader(consumer=Consumer(name), session=SessionKey(f"{name}:{session}"))
