"""What is kept: pages of it for an export, what is over the limits, and the rounds that take that away.

Reading is for everyone who may look; taking away is the person's. Above are the verbs, below the store. When retention
runs by itself is the daemon's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from harken.errors import UserError
from harken.inbox.caller import Caller, bounded, printable
from harken.inbox.results import LedgerEntry, ReplyRow
from harken.model import Consumer, Delivery, DeliveryState, Message
from harken.store.contract import Store
from harken.store.contract.deliveries import ConsumerState
from harken.store.contract.messages import Filter
from harken.store.contract.retention import Limits, MailboxExcess, RetentionReport

MAX_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFilter:
    """Which messages of a mailbox to export; empty fields leave nothing out. `until` is the first moment left out."""

    mailbox: str
    channel: str = ""
    source: str = ""
    sender: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedMessage:
    """A message as it is exported: who has seen it, and, where asked for, its ledger and the replies to it."""

    message: Message
    seen_by: Sequence[Consumer]
    ledger: Sequence[LedgerEntry] | None = None
    replies: Sequence[ReplyRow] | None = None


class MailRetention:
    """Export and retention. `journaled` is the number of the last event that has its line."""

    def __init__(self, store: Store, limits: Limits, journaled: Callable[[], int]) -> None:
        self._store = store
        self.limits = limits
        self._journaled = journaled

    async def export(
        self, chosen: ExportFilter, after: int, limit: int, *, has_ledger: bool = False
    ) -> Sequence[ExportedMessage]:
        """Return the next page of a mailbox, oldest first."""
        if chosen.since and chosen.until and chosen.since >= chosen.until:
            raise UserError("The start time is not before the end time.", "Swap them.")
        where = Filter(
            mailbox=chosen.mailbox,
            channel=chosen.channel,
            source=chosen.source,
            sender=chosen.sender,
            since=chosen.since,
            until=chosen.until,
            after=after,
        )
        page = printable(await self._store.messages.page(where, bounded(limit, MAX_PAGE, "limit")))
        seen = await self._store.deliveries.seen_by([message.id for message in page])
        found = [ExportedMessage(message=message, seen_by=seen[message.id]) for message in page]
        return await self._with_ledgers(found) if has_ledger and found else found

    async def excess(self) -> Sequence[MailboxExcess]:
        """Return every mailbox, and what is over the limits in it."""
        return await self._store.retention.excess(self.limits)

    async def prune(self, caller: Caller) -> RetentionReport:
        """Do one bounded round of retention now; the person asks until nothing is left to do."""
        caller.require_owner("remove messages")
        return await self._store.retention.prune(replace(self.limits, journaled=self._journaled()))

    async def _with_ledgers(self, found: Sequence[ExportedMessage]) -> Sequence[ExportedMessage]:
        ids = [each.message.id for each in found]
        # Places before ledgers: what is seen in between has its row then, and is not taken for something else.
        places = await self._store.deliveries.consumers({each.message.mailbox for each in found})
        ledgers = await self._store.deliveries.ledgers(ids)
        replies = await self._store.outbox.to_messages(ids)
        return [
            replace(
                each,
                ledger=_ledger(each.message, ledgers[each.message.id], places),
                replies=replies[each.message.id],
            )
            for each in found
        ]


def _ledger(message: Message, deliveries: Sequence[Delivery], places: Sequence[ConsumerState]) -> Sequence[LedgerEntry]:
    given = [LedgerEntry(consumer=each.consumer, state=each.state, delivery=each) for each in deliveries]
    named = {each.consumer for each in deliveries}
    queued = [
        LedgerEntry(consumer=place.consumer, state=DeliveryState.QUEUED)
        for place in places
        if place.mailbox == message.mailbox and place.cursor < message.seq and place.consumer not in named
    ]
    return [*given, *queued]
