"""The part of the store's contract that is about leases: what one daemon does for all, and how a late one is refused.

A lease has a name, the daemon that has it, a fence number, and a time by the store's clock at which it ends. A fence
belongs to one tenure: it stays while its daemon renews the lease, and the next tenure has a higher one. What a task
writes inside `under(lease)` carries the fence, every row of it: the store refuses it, in the same transaction, from the
moment on that the lease was taken over or given back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from harken.errors import Conflict
from harken.model import Mailbox

SOURCE: Final = "source "  # how the name of the lease of a source begins
LEASES: Final = Mailbox("leases")  # never holds messages: named when the change feed rings for a lease given back


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A tenure: the daemon that does something for all of them, and until when."""

    name: str
    holder: str  # the daemon, by the id of its home
    fence: int
    expires_at: datetime
    machine: str = ""  # of the daemon


class OldFence(Conflict):
    """The lease that a write was made under has ended: another daemon does this, or will."""


LEASE_OF_TASK: Final[ContextVar[Lease | None]] = ContextVar("lease", default=None)
"""The lease whose fence everything carries that this task writes; set by `under`."""


@contextmanager
def under(lease: Lease | None) -> Iterator[None]:
    """Let everything that this task writes, and the tasks that it starts, carry the fence of a lease, or none."""
    token = LEASE_OF_TASK.set(lease)
    try:
        yield
    finally:
        LEASE_OF_TASK.reset(token)


class LeaseStore(Protocol):
    """What one daemon does for all of them, and which one."""

    async def take(self, names: Collection[str], life: timedelta, held: Collection[Lease] = ()) -> Sequence[Lease]:
        """Take or renew leases for this daemon, in one transaction; return each as it is then, in the order of names.

        One of `held` that did not change hands is renewed and keeps its fence. One that is over, or that an earlier
        life of this daemon had, is taken with the next fence. One that another daemon has stays with it.
        """
        ...

    async def resign(self, leases: Collection[Lease]) -> None:
        """Give back those that are still held, with their fences. Rings for `LEASES`: another daemon takes over."""
        ...

    async def list(self) -> Sequence[Lease]:
        """Return every lease that there ever was, by name, also those that are over."""
        ...
