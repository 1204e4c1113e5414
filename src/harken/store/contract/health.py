"""The part of the store's contract that is about its own state: what supervisors and metrics ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from harken.store.identity import StoreIdentity


class HealthStore(Protocol):
    """Whether the store works, which one it is, and how much is in it."""

    async def check_writable(self) -> None:
        """Write something that means nothing to anybody; raises `Unavailable` when nothing can be written.

        Idempotent, journals nothing and rings for nobody.
        """
        ...

    async def identity(self) -> StoreIdentity:
        """Return which store this is: the same for its life, apart from the epoch that a restore or recovery raises."""
        ...

    async def stats(self) -> Mapping[str, int]:
        """Return counts for people: messages, deliveries, mailboxes, events, actions, runs, bytes, not yet indexed."""
        ...
