"""The part of the store's contract that is about its own state: what supervisors and metrics ask."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol, Self

from harken.model import Mailbox


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


DAEMONS: Final = Mailbox("daemons")
"""Never holds messages: named when the change feed rings for what a daemon says of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonReport:
    """A daemon that has the store open, by the id of its home, and when it was last heard of, by the store's clock."""

    id: str
    machine: str
    version: str
    started_at: datetime
    seen_at: datetime
    sessions: str  # what it says of its sessions, in words of its own; empty: it is gone

    @property
    def is_here(self) -> bool:
        """Whether it has neither left nor been silent for too long."""
        return bool(self.sessions)


class DaemonStore(Protocol):
    """Which daemons have the store open."""

    async def report(
        self, *, machine: str, version: str, started_at: datetime, sessions: str, gone_after: timedelta | None
    ) -> None:
        """Note that this daemon is here, and what it says. Rings for `DAEMONS` when that is news.

        Others that were not heard of for `gone_after` (None: there are none) are gone: what their sessions were given
        and did not prove is offered again.
        """
        ...

    async def leave(self) -> None:
        """Note that this daemon ends.

        Its sessions may come back with it: their leases end when it has not come back after `gone_after`.
        """
        ...

    async def list(self) -> Sequence[DaemonReport]:
        """Return every daemon that is here, this one too, and those that were in the last months."""
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
