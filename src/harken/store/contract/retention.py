"""The part of the store's contract that is about retention: how much is stored, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harken.model import (
    Mailbox,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a mailbox keeps, and how long what expired unread stays to be seen.

    This daemon's events above `journaled` have no line yet and stay (None: all have one).
    """

    max_count: int
    max_age_seconds: float
    expired_stays_seconds: float = 0.0
    journaled: int | None = None


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What one round of retention did."""

    expired: int
    deleted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MailboxExcess:
    """A mailbox and what is over its limits: `over` of the `stored` messages.

    `to_delete` of those are final for everyone and go next; `to_expire` counts deliveries that become expired first,
    one for each consumer that has not seen a message.
    """

    mailbox: Mailbox
    stored: int
    over: int
    to_expire: int
    to_delete: int


class RetentionStore(Protocol):
    """What is over the limits, and removing it."""

    async def prune(self, limits: Limits) -> RetentionReport:
        """Apply retention to every mailbox.

        What is over the limits and still open for a consumer becomes `expired` (journaled, with its ids) and stays
        visible; what is over the limits and was final for everyone before this call is deleted, what expired not
        before `expired_stays_seconds` are over. Journals `pruned`, with the numbers of what was deleted.
        Dedup keys stay.
        """
        ...

    async def excess(self, limits: Limits) -> Sequence[MailboxExcess]:
        """Return every mailbox by name, and what a call of `prune` with these limits has to do in it now.

        One call of `prune` does a bounded part of that.
        """
        ...
