"""Standing offers: readers that wait, served in the transaction that has something for them.

A reader that found nothing leaves its offer here. When a later transaction lets a mailbox grow, the offer is made
inside it, so a waiting agent costs no second commit and no second trip through the writer. The registry belongs to
the writing thread, and follows its transactions: what was begun or served in one that fails is as it was before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import anyio

from harken.model import Choose, Mailbox, Reader, Selection
from harken.store.contract import Hush, Reach
from harken.store.sqlite import offers as offer_rows
from harken.store.sqlite.transaction import Transaction

NOTHING = Selection()
MOST_WITH_A_MESSAGE, MOST_ALONE = 16, 100
"""How many are served with the commit that accepts a message; the rest follow, so that the sender need not wait."""


@dataclass(slots=True, kw_only=True, eq=False)
class Standing:
    """One reader that waits. `made` is the writer's; `given` and `ready` are set in the loop once it is committed."""

    reader: Reader
    limit: int
    surface: str
    carrier: str
    lease: timedelta
    rank: Callable[[], float]  # asked when there is something: the person may have used another session meanwhile
    reach: Callable[[], Reach]
    is_over: bool = False  # set in the loop: from then on nothing is offered any more
    made: Selection = NOTHING
    given: Selection = NOTHING
    ready: anyio.Event = field(default_factory=anyio.Event)

    def make(self, tx: Transaction, reach: Reach) -> None:
        """Offer what is eligible now."""
        self.made = offer_rows.offer(
            tx,
            self.reader,
            offer_rows.Wanted(self.limit, reach=reach),
            surface=self.surface,
            carrier=self.carrier,
            lease_until=tx.now + self.lease,
        )

    def hand_over(self) -> None:
        """Let the one who waits have what was made. Runs in the event loop, after the commit."""
        self.given = self.made
        self.ready.set()


def has_something(selection: Selection) -> bool:
    """Whether there is anything to tell in it, whole or cut."""
    return bool(selection.whole or selection.cut)


class StandingOffers:
    """The readers that wait."""

    def __init__(self) -> None:
        self._waiting: list[Standing] = []
        self._unserved: set[Mailbox] = set()
        self._begun: list[Standing] = []
        self._served: list[Standing] = []
        self._before: set[Mailbox] = set()

    @property
    def unserved(self) -> Collection[Mailbox]:
        """Mailboxes that grew and whose waiting readers were not all served yet."""
        return self._unserved

    def begin(self, tx: Transaction, standing: Standing) -> Selection:
        """Offer at once what there is; with nothing there, keep the reader waiting."""
        standing.make(tx, standing.reach())
        if not has_something(standing.made):
            self._begun.append(standing)
        return standing.made

    def end(self, standing: Standing) -> Selection:
        """Wait no longer; return what was offered at the last moment."""
        self._waiting = [other for other in self._waiting if other is not standing]
        return standing.made

    def serve(self, tx: Transaction, most: int) -> None:
        """Make the offers that a transaction has something for, for so many readers at most."""
        grown = tx.grown | self._unserved
        self._before, self._unserved = self._unserved, set()
        exhausted: set[tuple[str, tuple[Mailbox, ...], Hush, Choose | None]] = set()
        # Also those that began in this very transaction, before what they wait for was stored in it.
        here = [standing for standing in (*self._waiting, *self._begun) if not standing.is_over]
        concerned = [standing for standing in here if not grown.isdisjoint(standing.reader.mailboxes)]
        for standing in sorted(concerned, key=lambda each: -each.rank()):
            reach = standing.reach()
            key = standing.reader.consumer, standing.reader.mailboxes, reach.hush, reach.choose
            if key in exhausted:
                continue
            if len(self._served) == most:
                self._unserved = grown
                break
            standing.make(tx, reach)
            if has_something(standing.made):
                self._served.append(standing)
            if len(standing.made.whole) < standing.limit and not standing.made.is_full:
                # Sessions of one consumer share a cursor: nothing is left for those that may hear the same. What the
                # first of them has only heard of, because it is long, is for that one to read.
                exhausted.add(key)

    def commit(self) -> Sequence[Standing]:
        """The transaction is committed: return whom it served; whoever it left with nothing waits from now on."""
        served, self._served = self._served, []
        self._waiting = [
            each for each in (*self._waiting, *self._begun) if not (has_something(each.made) or each.is_over)
        ]
        self._begun = []
        return served

    def roll_back(self) -> None:
        """The transaction failed: nobody was served by it, and whoever began to wait in it is told so."""
        for standing in self._served:
            standing.made = NOTHING
        self._unserved |= self._before
        self._begun, self._served = [], []
