"""The part of the store's contract that is about its own state: what supervisors and metrics ask."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, Self


class HealthStore(Protocol):
    """Whether the store works, which one it is, and how much is in it."""

    async def check_writable(self) -> None:
        """Write something without meaning; raises `Unavailable` when nothing can be written.

        Idempotent, journals nothing and wakes no observer.
        """
        ...

    async def identity(self) -> StoreIdentity:
        """Return which store this is: the same for its life, apart from the epoch that a restore or recovery raises."""
        ...

    async def size(self) -> int:
        """Return how many bytes the database has."""
        ...

    async def stats(self) -> Mapping[str, int]:
        """Return counts for people: messages, deliveries, mailboxes, events, actions, runs, bytes, not yet indexed."""
        ...


_TAG: Final = re.compile(r"(?P<id>[0-9a-z]{1,40})\.(?P<epoch>[0-9]{1,9})")


@dataclass(frozen=True, slots=True, order=True)
class StoreIdentity:
    """The id of a store, and how often it was restored or recovered since it began, counted from 1."""

    id: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.id}.{self.epoch}"

    @classmethod
    def parse(cls, text: object) -> Self | None:
        """Return the identity that `str` wrote; None for anything else."""
        found = _TAG.fullmatch(text) if isinstance(text, str) else None
        return cls(found["id"], int(found["epoch"])) if found else None

    def may_follow(self, other: StoreIdentity | None) -> bool:
        """Whether this is the other one, or a later epoch of it."""
        return other is None or (self.id == other.id and self.epoch >= other.epoch)
