"""Standing offers: readers that wait, served in the transaction that has something for them.

A reader that found nothing leaves its offer here. When a later transaction lets a mailbox grow, the offer is made
inside it, so a waiting agent costs no second commit and no second trip through the writer. The registry belongs to
the writing thread: beginning and ending a wait are jobs like any other, and therefore in order with every commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import anyio

from harken.model import Mailbox, Offer, Reader
from harken.store.sqlite import deliveries
from harken.store.sqlite.transaction import Transaction

MOST_AT_ONCE = 16
"""How many are served with the commit that accepts a message; the rest follow, so that the sender need not wait."""


@dataclass(slots=True, kw_only=True, eq=False)
class Standing:
    """One reader that waits. `ready` is set in the event loop once `offers` are committed."""

    reader: Reader
    limit: int
    surface: str
    carrier: str
    lease: timedelta
    rank: Callable[[], float]  # asked when there is something: the person may have used another session meanwhile
    offers: list[Offer] = field(default_factory=list[Offer])
    ready: anyio.Event = field(default_factory=anyio.Event)

    def make(self, tx: Transaction) -> bool:
        """Offer what is eligible now; return whether there was something."""
        self.offers = deliveries.offer(
            tx,
            self.reader,
            self.limit,
            surface=self.surface,
            carrier=self.carrier,
            lease_until=tx.now + self.lease,
            channel="",
            after="",
        )
        return bool(self.offers)


class StandingOffers:
    """The readers that wait."""

    def __init__(self) -> None:
        self._waiting: list[Standing] = []
        self._unserved: set[Mailbox] = set()

    @property
    def unserved(self) -> Collection[Mailbox]:
        """Mailboxes that grew and whose waiting readers were not all served yet."""
        return self._unserved

    def begin(self, tx: Transaction, standing: Standing) -> list[Offer]:
        """Offer at once what there is; with nothing there, keep the reader waiting."""
        if not standing.make(tx):
            self._waiting.append(standing)
        return standing.offers

    def end(self, standing: Standing) -> list[Offer]:
        """Wait no longer; return what was offered at the last moment."""
        self._drop(standing)
        return standing.offers

    def abandon(self, tx: Transaction, standing: Standing) -> None:
        """Undo the wait of a caller that has gone."""
        self._drop(standing)
        if standing.offers:
            deliveries.withdraw(tx, standing.reader.session, standing.carrier)

    def serve(self, tx: Transaction) -> Sequence[Standing]:
        """Make the offers that a transaction has something for; return who was served."""
        grown = tx.grown | self._unserved
        self._unserved.clear()
        served: list[Standing] = []
        exhausted: set[tuple[str, tuple[Mailbox, ...]]] = set()
        concerned = [standing for standing in self._waiting if not grown.isdisjoint(standing.reader.mailboxes)]
        for standing in sorted(concerned, key=lambda each: -each.rank()):
            key = standing.reader.consumer, standing.reader.mailboxes
            if key in exhausted:
                continue
            if len(served) == MOST_AT_ONCE:
                self._unserved |= grown
                break
            if standing.make(tx):
                served.append(standing)
            if len(standing.offers) < standing.limit:
                # Sessions of one consumer share a cursor: nothing is left for the others.
                exhausted.add(key)
        for standing in served:
            self._waiting.remove(standing)
        return served

    def undo(self, served: Sequence[Standing]) -> None:
        """The transaction failed: whoever it served waits on."""
        for standing in served:
            standing.offers = []
        self._waiting += served

    def _drop(self, standing: Standing) -> None:
        if standing in self._waiting:
            self._waiting.remove(standing)
