"""The part of the store's contract that is about its own state: what supervisors and metrics ask.

What holds for every method is in `store/contract`.
"""

from __future__ import annotations

from typing import Protocol

from harken.store.identity import StoreIdentity


class Vitals(Protocol):
    """Whether the store works, and how much waits in it."""

    async def check_writable(self) -> None:
        """Write something that means nothing to anybody; raises `Unavailable` when nothing can be written.

        Idempotent, journals nothing and rings for nobody.
        """
        ...

    async def identity(self) -> StoreIdentity:
        """Return which store this is: the same for its life, apart from the epoch that a restore or recovery raises."""
        ...
