"""Chance that can be repeated: every draw follows from the seed and from what it is for, not from the order of draws.

Requests of one test overlap, so a shared generator would give another run each time. It is not for secrets.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


class Dice:
    """Draws by name."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._made = 0

    def _digest(self, *name: object) -> bytes:
        return hashlib.sha256(repr((self._seed, *name)).encode()).digest()

    def new_id(self) -> str:
        """The next id; the same order of calls gives the same ids."""
        self._made += 1
        return str(uuid.UUID(bytes=self._digest("id", self._made)[:16], version=4))

    def fraction(self, *name: object) -> float:
        """A number from 0 up to 1 for this name."""
        return int.from_bytes(self._digest(*name)[:8]) / 2**64

    def shuffled(self, items: Sequence[_Item], *name: object) -> list[_Item]:
        """The items in an order that follows from this name."""
        return [item for _, item in sorted(enumerate(items), key=lambda pair: self._digest(*name, pair[0]))]
