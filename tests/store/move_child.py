"""Moves a store and is killed on the way. Not a test: `stories.py` lets it live."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from harken.config.home import Home
from harken.config.settings import StoreSettings
from harken.setup.store import StoreMove, move
from harken.store.postgres.connection import PostgresTarget


def moving(home: Path, target: PostgresTarget, *, is_to_file: bool, end: str = "") -> StoreMove:
    """Return a move between a home and a schema; the process is killed at this step, table, or row of a table."""

    def reached(name: str, row: int = 0, _rows: int = 0) -> None:
        if end in {name, f"{name} {row}"}:
            os.kill(os.getpid(), signal.SIGKILL)

    ends = StoreSettings(url="postgresql:///elsewhere", schema=target.schema), StoreSettings()
    current, wanted = ends if is_to_file else reversed(ends)
    return StoreMove(home=Home(home), target=target, current=current, wanted=wanted, told=reached, done=reached)


def live(home: Path, url: str, schema: str, direction: str, end: str) -> None:
    """Be the process."""
    move(moving(home, PostgresTarget(url, schema), is_to_file=direction == "file", end=end))
