"""How far a folder was read: the checkpoint of its feed, and what follows from it. Pure.

The server numbers mails; a number means nothing once the folder's validity has changed. So a place also knows times:
`since` is the newest mail that was there before the source listened, `heard` the newest mail so far, and from these a
folder is read anew without taking what was there before. What is heard twice then, the store knows by its upstream id,
which no number is part of. All times are the server's. Above is `source.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from harken.sources.feed import checkpoint_of, read_checkpoint

# Mail can be moved into a folder after it came: what is read anew begins a while before the newest that was heard.
OVERLAP: Final = timedelta(days=7)
MAX_KNOWN: Final = 200
LAST_UID: Final = 0xFFFF_FFFF

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ImapRow:
    """One mail of a folder: its number, its size, and when it came."""

    uid: int
    size: int
    received_at: datetime
    message_id: str = ""  # only where it was asked for


class ImapCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far a folder was read."""

    version: int = _VERSION
    validity: int = msgspec.field(name="uidvalidity")
    last: int = msgspec.field(name="last_uid")  # the highest number that was heard, or was there before
    since: datetime = _BEGINNING
    heard: datetime = _BEGINNING
    known: tuple[str, ...] = ()  # ids of mails that came in the very second of `since`, before anybody listened

    def text(self) -> str:
        """Return it as a checkpoint."""
        return checkpoint_of(self)

    def is_of(self, validity: int, next_uid: int) -> bool:
        """Whether the numbers still mean the same mails."""
        return self.validity == validity and self.last < next_uid

    def after(self, rows: Iterable[ImapRow], present: datetime) -> ImapCheckpoint:
        """Return the place behind these mails. A mail that claims to be from the future moves no time."""
        every = list(rows)
        times = [row.received_at for row in every if row.received_at <= present]
        return replace(self, last=max([self.last, *(row.uid for row in every)]), heard=max([self.heard, *times]))

    def anew(self, validity: int, next_uid: int) -> ImapCheckpoint:
        """Return the place behind everything in a folder with numbers that have changed their meaning."""
        return replace(self, validity=validity, last=next_uid - 1)

    @property
    def oldest(self) -> datetime:
        """From when on mails count, if the folder is read anew."""
        return max(self.since, self.heard - OVERLAP) if self.heard > _BEGINNING + OVERLAP else self.since

    def news(self, rows: Sequence[ImapRow]) -> list[ImapRow]:
        """Return the mails that are to be heard if the folder is read anew, oldest first."""
        fresh = [row for row in rows if row.received_at >= self.oldest and not self._was_there(row)]
        return sorted(fresh, key=lambda row: row.uid)

    def _was_there(self, row: ImapRow) -> bool:
        return row.received_at == self.since and row.message_id in self.known


def first_place(
    validity: int, next_uid: int, newest: Sequence[ImapRow], *, since: datetime | None = None
) -> ImapCheckpoint:
    """Return where listening begins, told the newest mails of a folder, or from when on mails are taken."""
    if since is not None:
        return ImapCheckpoint(validity=validity, last=next_uid - 1, since=since)
    latest = max((row.received_at for row in newest), default=_BEGINNING)
    known = tuple(row.message_id for row in newest if row.received_at == latest and row.message_id)
    return ImapCheckpoint(validity=validity, last=next_uid - 1, since=latest, heard=latest, known=known[-MAX_KNOWN:])


def read_place(checkpoint: str) -> ImapCheckpoint | None:
    """Return the place that a checkpoint names, or None if it names none."""
    read = read_checkpoint(checkpoint, ImapCheckpoint)
    if read is None:
        return None
    is_dated = read.since.tzinfo is not None and read.heard.tzinfo is not None
    is_numbered = 0 <= read.validity <= LAST_UID and 0 <= read.last <= LAST_UID
    return read if read.version == _VERSION and is_dated and is_numbered else None
