"""The part of the store's contract that is about looking: what a page shows, read in time proportional to it.

Nothing here changes anything. A position says where in a timeline a message is: in a mailbox it is its `seq`; where a
timeline is of several mailboxes, its place in the order of receipt over all of them. Trials are left out everywhere:
their mail is nobody's. What holds for every method is in `store/contract`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from harken.model import Mailbox, Message, MessageId
from harken.store.contract.deliveries import MuteFilter

MAX_UNREAD_OF_CHANNEL: Final = 100
"""What a channel has unread is counted among its newest messages, up to this many."""

MAX_MUTED_AMONG_PROMPTS: Final = 1_000
"""How many messages of a mailbox are looked at for those that go with prompts, when some are muted or cleared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineScope:
    """What a timeline is of: one mailbox; else a channel, a source, or both, over all mailboxes; else everything.

    With a source and a `thread` it is of one conversation, over all mailboxes. What the person cleared of a channel is
    in every timeline but that of the channel. Of a channel, `among` says in which mailboxes (None: in all).
    """

    mailbox: str = ""
    source: str = ""
    channel: str = ""
    thread: str = ""
    among: tuple[Mailbox, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePart:
    """Part of a timeline, oldest first, as position and message.

    An edit or deletion is no line of its own where what it refers to is stored in the same mailbox and by the same
    sender: it belongs to that line. Said by another sender it is a line of its own, so that no one can change another's
    words. `newest` is the position up to which nothing of the place is missing in this part, such edits included.
    """

    lines: Sequence[tuple[int, Message]]
    newest: int
    has_older: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MailboxState:
    """A mailbox: how many messages it ever got, and when the last one came."""

    name: Mailbox
    head: int
    last_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """A channel of a source: how many of its messages are stored, how many the person has not seen, the last one.

    Neither number has what the person cleared; `cleared` says how many of those are stored.
    """

    source: str
    channel: str
    count: int
    unread: int
    last_at: datetime
    cleared: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyCount:
    """How many messages of a channel were received in the span that begins at `begin`."""

    begin: datetime
    channel: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityCounts:
    """What happened lately: counts per span and channel, and how long the newest took from received to seen."""

    counts: Sequence[HourlyCount]
    seconds_to_seen: Sequence[float]  # by the first agent, ascending; of a bounded number of the newest


class TimelineStore(Protocol):
    """Reads for people: timelines, mailboxes, channels and activity."""

    async def part(
        self, place: TimelineScope, limit: int, *, before: int = 0, after: int | None = None
    ) -> TimelinePart:
        """Return the newest lines of a place, or (`before` a position) those that precede it.

        With `after`, the first ones that follow that position instead; 0 is before the first one.
        """
        ...

    async def unseen(self, place: TimelineScope, up_to: int, limit: int, *, since: int = 0) -> Sequence[MessageId]:
        """Return what the person has not seen of a mailbox from one position up to another, oldest first.

        Both positions count as in between. Of anything but a mailbox, only what is among the newest `limit` there.
        """
        ...

    async def mailboxes(self) -> Sequence[MailboxState]:
        """Return every mailbox, by name."""
        ...

    async def channels(self, limit: int, *, source: str = "", channel: str = "") -> Sequence[ChannelState]:
        """Return the channels that messages came through, the last active first; of a source, or of a name, if given.

        Those that only say that something was said on this machine (`cli`, `page`, `agent`, `task`) are left out.

        `unread` is counted among the newest `MAX_UNREAD_OF_CHANNEL` of each.
        """
        ...

    async def for_prompts(self, mailboxes: Collection[Mailbox], limit: int, mutes: MuteFilter) -> Sequence[Message]:
        """Return the newest messages in some mailboxes that go with prompts, seen or not, oldest first.

        Those with such an attention, and those that a rule drew attention to.

        Nothing that is muted or was cleared; of each mailbox the newest `MAX_MUTED_AMONG_PROMPTS` are looked at. What
        else a mailbox holds costs nothing.
        """
        ...

    async def activity(self, since: datetime, span: timedelta) -> ActivityCounts:
        """Return what was received since a time, counted per span; in time proportional to that."""
        ...
