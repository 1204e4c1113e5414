"""Whether the home is still this daemon's: its lock and its socket are there as it made them.

When somebody removes `run/`, nothing keeps a second daemon from starting. So the first one looks, and leaves. Its store
looks at the lock too, before each commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio

from harken.store.files import OpenFiles

LOOK_SECONDS: Final = 1.0


class Ownership:
    """Knows the files by which others find this daemon, and are kept out."""

    def __init__(self, *paths: Path) -> None:
        self._files = OpenFiles(*paths)
        self._files.remember()

    @property
    def is_lost(self) -> bool:
        """Whether one of them is gone or another's."""
        return self._files.missing() is not None

    async def until_lost(self) -> Path:
        """Return which one, as soon as it is so."""
        while True:
            if (lost := self._files.missing()) is not None:
                return lost
            await anyio.sleep(LOOK_SECONDS)
