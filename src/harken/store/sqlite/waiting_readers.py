"""Readers that wait, served in the transaction that has something for them.

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
from harken.store.contract.deliveries import MuteFilter, OfferFilter
from harken.store.sqlite import offers as offer_rows
from harken.store.sqlite.transaction import Transaction

NOTHING = Selection()
MOST_WITH_A_MESSAGE, MOST_ALONE = 16, 100
"""How many are served with the commit that accepts a message; the rest follow, so that the sender need not wait."""


@dataclass(slots=True, kw_only=True, eq=False)
class WaitingReader:
    """One reader that waits. `made` is the writer's; `given` and `ready` are set in the loop once it is committed."""

    reader: Reader
    limit: int
    surface: str
    carrier: str
    lease: timedelta
    rank: Callable[[], float]  # asked when there is something: the person may have used another session meanwhile
    where: Callable[[], OfferFilter]
    is_over: bool = False  # set in the loop: from then on nothing is offered any more
    made: Selection = NOTHING
    given: Selection = NOTHING
    ready: anyio.Event = field(default_factory=anyio.Event)

    def make(self, tx: Transaction, where: OfferFilter) -> None:
        """Offer what is eligible now."""
        self.made = offer_rows.offer(
            tx,
            self.reader,
            offer_rows.OfferQuery(self.limit, where=where),
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


class WaitingReaders:
    """The readers that wait."""

    def __init__(self) -> None:
        self._waiting: list[WaitingReader] = []
        self._unserved: set[Mailbox] = set()
        self._begun: list[WaitingReader] = []
        self._served: list[WaitingReader] = []
        self._before: set[Mailbox] = set()

    @property
    def unserved(self) -> Collection[Mailbox]:
        """Mailboxes that grew and whose waiting readers were not all served yet."""
        return self._unserved

    def begin(self, tx: Transaction, waiting: WaitingReader) -> Selection:
        """Offer at once what there is; with nothing there, keep the reader waiting."""
        waiting.make(tx, waiting.where())
        if not has_something(waiting.made):
            self._begun.append(waiting)
        return waiting.made

    def end(self, waiting: WaitingReader) -> Selection:
        """Wait no longer; return what was offered at the last moment."""
        self._waiting = [other for other in self._waiting if other is not waiting]
        return waiting.made

    def serve(self, tx: Transaction, *, is_alone: bool) -> None:
        """Make the offers that a transaction has something for, for so many readers at most."""
        most = MOST_ALONE if is_alone else MOST_WITH_A_MESSAGE
        grown = tx.grown | self._unserved
        self._before, self._unserved = self._unserved, set()
        exhausted: set[tuple[str, tuple[Mailbox, ...], MuteFilter, Choose | None]] = set()
        # Also those that began in this very transaction, before what they wait for was stored in it.
        here = [waiting for waiting in (*self._waiting, *self._begun) if not waiting.is_over]
        concerned = [waiting for waiting in here if not grown.isdisjoint(waiting.reader.mailboxes)]
        for waiting in sorted(concerned, key=lambda each: -each.rank()):
            where = waiting.where()
            key = waiting.reader.consumer, waiting.reader.mailboxes, where.mutes, where.choose
            if key in exhausted:
                continue
            if len(self._served) == most:
                self._unserved = grown
                break
            waiting.make(tx, where)
            if has_something(waiting.made):
                self._served.append(waiting)
            if len(waiting.made.whole) < waiting.limit and not waiting.made.is_full:
                # Sessions of one consumer share a cursor: nothing is left for those that may hear the same. What the
                # first of them has only heard of, because it is long, is for that one to read.
                exhausted.add(key)

    def commit(self) -> Sequence[Callable[[], None]]:
        """The transaction is committed: return whom it served; whoever it left with nothing waits from now on."""
        served, self._served = self._served, []
        self._waiting = [
            each for each in (*self._waiting, *self._begun) if not (has_something(each.made) or each.is_over)
        ]
        self._begun = []
        return [each.hand_over for each in served]

    def roll_back(self) -> None:
        """The transaction failed: nobody was served by it, and whoever began to wait in it is told so."""
        for waiting in self._served:
            waiting.made = NOTHING
        self._unserved |= self._before
        self._begun, self._served = [], []
