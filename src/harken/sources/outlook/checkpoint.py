"""How far a folder was read: the checkpoint of its feed, and what follows from it. Pure.

A place is a link to the next changes and enough about time to begin again without that link: `since` is the newest mail
that was there before the source listened, `heard` the newest mail so far. All times are the service's, except that
nothing counts as old that came after our own start. A place belongs to an account. Above is `source.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from harken.sources.feed import checkpoint_of, read_checkpoint

# Mail can be moved into a folder after it came: what begins again reads a while that it knows already.
OVERLAP: Final = timedelta(days=7)
MAX_KNOWN: Final = 200

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class OutlookRow:
    """One entry in a list of changes: a mail that came, and when."""

    id: str
    received_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlookCheckpoint:
    """How far a folder was read. Without a link it is read anew, from `since` on."""

    link: str = ""
    since: datetime = _BEGINNING
    heard: datetime = _BEGINNING
    known: tuple[str, ...] = ()  # ids of mails that came in the very second of `since`, before anybody listened
    account: str = ""  # whose folder it is; empty: it was not known

    def text(self) -> str:
        """Return it as a checkpoint."""
        written = _OutlookRecord(_VERSION, self.link, self.since, self.heard, self.known, self.account)
        return checkpoint_of(written)

    def is_of(self, account: str) -> bool:
        """Whether it is a place of this account, as far as both are known."""
        return not self.account or not account or self.account == account

    def news(self, rows: Sequence[OutlookRow]) -> list[OutlookRow]:
        """Return the mails that are to be heard, each once, oldest first."""
        oldest = self.since if self.link else max(self.since, _before(self.heard))
        once = {row.id: row for row in rows if row.id not in self.known}
        news = [row for row in once.values() if row.received_at is None or row.received_at >= oldest]
        return sorted(news, key=lambda row: (row.received_at or oldest, row.id))

    def after(self, rows: Iterable[OutlookRow], link: str, present: datetime) -> OutlookCheckpoint:
        """Return the place behind these changes. A mail that claims to be from the future moves nothing."""
        times = [row.received_at for row in rows if row.received_at is not None and row.received_at <= present]
        return replace(self, link=link, heard=max([self.heard, *times]))

    def begin_again(self) -> OutlookCheckpoint:
        """Return the place without its link, which the service does not know any more."""
        return replace(self, link="")


def first_place(rows: Sequence[OutlookRow], started: datetime) -> OutlookCheckpoint:
    """Return where listening begins, told everything that a folder held and when we began to ask."""
    old = [row for row in rows if row.received_at is not None and row.received_at < started]
    newest = max((row.received_at for row in old if row.received_at is not None), default=_BEGINNING)
    known = tuple(row.id for row in old if row.received_at == newest)[:MAX_KNOWN]
    return OutlookCheckpoint(since=newest, heard=newest, known=known)


def read_place(checkpoint: str) -> OutlookCheckpoint | None:
    """Return the place that a checkpoint names, or None if it names none."""
    read = read_checkpoint(checkpoint, _OutlookRecord)
    if read is None:
        return None
    if read.version != _VERSION or read.since.tzinfo is None or read.heard.tzinfo is None:
        return None
    return OutlookCheckpoint(link=read.link, since=read.since, heard=read.heard, known=read.known, account=read.account)


class _OutlookRecord(msgspec.Struct, array_like=True):
    version: int
    link: str
    since: datetime
    heard: datetime
    known: tuple[str, ...] = ()
    account: str = ""


def _before(moment: datetime) -> datetime:
    return max(_BEGINNING, moment - OVERLAP) if moment > _BEGINNING else _BEGINNING
