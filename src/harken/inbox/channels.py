"""`Channels`: the use cases of channels: list, show, acknowledge, clear, and inject into an agent's session.

A channel is where in its source a message came from. The verbs are above; below are the views, which know what the
person has seen, and the inbox, which accepts an injected text like any other message. Agents read the channels of their
own mailboxes. The surfaces word the text for agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harken.errors import NotFound, UserError
from harken.inbox.caller import CHANNELS_ID, Caller, bounded, printable
from harken.inbox.inbox import Inbox, mark_seen
from harken.inbox.results import ChannelCard, ChannelLine, SendResult
from harken.model import INBOX, LOCAL, WATCH, Attention, Draft, Mailbox, Message, MessageId, Reader, Sender, fresh_id
from harken.store.contract import Store
from harken.store.contract.deliveries import MuteFilter, OfferFilter
from harken.store.contract.people import ClearedChannel
from harken.store.contract.timeline import TimelineScope

MAX_LISTED: Final = 200
MAX_SHOWN: Final = 200
MAX_SEEN: Final = 2_000  # the most channels that one acknowledgement of all covers
MAX_FOR_AGENTS: Final = 50  # the newest messages that an agent is shown and can acknowledge
INJECTED: Final = 10
_HINT: Final = "See them: harken channel names"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelsSeen:
    """How many unseen messages were marked, and in which channels."""

    count: int
    channels: Sequence[ChannelLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelMail:
    """The newest channel messages of an agent's mailboxes, oldest first, and which of them it has not seen."""

    messages: Sequence[Message]
    unread: frozenset[MessageId]


class Channels:
    """The use cases of channels. One per daemon."""

    def __init__(self, store: Store, inbox: Inbox) -> None:
        self._store = store
        self._inbox = inbox

    async def list(self, limit: int = 20) -> Sequence[ChannelCard]:
        """Return the channels, the last active first."""
        lines = await self._lines(bounded(limit, MAX_LISTED, "limit"))
        return [ChannelCard(line=line, newest=await self._newest(line)) for line in lines]

    async def show(
        self, channel: str, source: str = "", limit: int = 20, *, among: Sequence[Mailbox] | None = None
    ) -> Sequence[Message]:
        """Return the newest messages of a channel, of every source that has it or of one, or of all; oldest first.

        Cleared messages are left out. `among` limits an agent to its mailboxes.
        """
        most = bounded(limit, MAX_SHOWN, "limit")
        only = None if among is None else tuple(among)
        if not channel and not source:
            return await self._newest_of_all(most, only)
        part = await self._store.timeline.part(TimelineScope(channel=channel, source=source, among=only), most)
        if not part.lines and not await self._lines(1, channel, source):
            of = f" of {source[:80]!r}" if source else ""
            raise NotFound(f"There is no channel {channel[:80]!r}{of}.", _HINT)
        # What does not fit is left out at the start: the newest messages matter.
        return printable([message for _, message in reversed(part.lines)])[::-1]

    async def cleared_count(self, channel: str = "", source: str = "") -> int:
        """Return how many stored messages of a channel, or of all, were cleared."""
        return sum(line.cleared for line in await self._lines(MAX_SEEN, channel, source))

    async def _newest_of_all(self, limit: int, among: tuple[Mailbox, ...] | None) -> Sequence[Message]:
        # The newest messages are in the most recently active channels.
        lines = await self._lines(limit if among is None else MAX_LISTED)
        places = [TimelineScope(channel=each.channel, source=each.source, among=among) for each in lines]
        parts = [await self._store.timeline.part(place, limit) for place in places]
        newest = sorted((line for part in parts for line in part.lines), key=lambda line: line[0])[-limit:]
        return printable([message for _, message in reversed(newest)])[::-1]

    async def mail_of(self, reader: Reader, channel: str = "") -> ChannelMail:
        """Return the newest 50 messages of a channel, or of all, in an agent's mailboxes; change nothing."""
        await self._inbox.count(reader)  # creates the reader's cursors, which the count needs
        found = await self.show(channel, limit=MAX_FOR_AGENTS, among=reader.mailboxes)
        where = OfferFilter(attentions=frozenset(Attention), only=frozenset(message.id for message in found))
        waiting = await self._store.deliveries.peek(reader, len(found), where=where) if found else []
        return ChannelMail(messages=found, unread=frozenset(message.id for message in waiting))

    async def acknowledge(self, reader: Reader, messages: Sequence[MessageId]) -> None:
        """Mark channel messages as seen by an agent that was given them. Idempotent."""
        if messages:
            await self._store.deliveries.acknowledge(reader, messages, "ack")

    async def have_seen(self, caller: Caller, channel: str = "", source: str = "") -> ChannelsSeen:
        """Mark the messages of a channel, or of all, as seen by the person. Idempotent.

        For all channels: the 2,000 most recently active ones.
        """
        caller.require_owner("say what the person has seen")
        lines = await self._lines(MAX_SEEN, channel, source)
        if (channel or source) and not lines:
            raise NotFound(f"There is no channel {(channel or source)[:80]!r}.", _HINT)
        marked = [
            await mark_seen(
                self._store, TimelineScope(channel=line.channel, source=line.source), evidence="channel ack"
            )
            for line in lines
        ]
        touched = [line for line, count in zip(lines, marked, strict=True) if count]
        return ChannelsSeen(count=sum(marked), channels=touched)

    async def clear(
        self, caller: Caller, channel: str = "", source: str = "", *, is_all: bool = False
    ) -> Sequence[ClearedChannel]:
        """Hide the current messages of a channel, or of all, wherever channels are shown. Idempotent.

        The messages stay in their mailboxes, and unread messages stay unread.
        """
        caller.require_owner("clear channels")
        if bool(channel or source) == is_all:
            raise UserError("Which channel?", "Name one, or clear all of them: harken channel clear --all")
        if not is_all and not await self._lines(1, channel, source):
            raise NotFound(f"There is no channel {(channel or source)[:80]!r}.", _HINT)
        return await self._store.people.clear_channels(source=source, channel=channel)

    async def to_inject(self, channel: str = "", source: str = "") -> Sequence[Message]:
        """Return the messages for `inject`, oldest first: of the named channel, or those that go with prompts."""
        if channel or source:
            return await self.show(channel, source, INJECTED)
        names = [state.name for state in await self._store.timeline.mailboxes()]
        found = await self._store.timeline.for_prompts(names, INJECTED, MuteFilter())
        if not found:
            raise UserError(
                "There are no channel messages to inject.", "Name a channel, or see what there is: harken channel names"
            )
        return found

    async def inject(self, caller: Caller, text: str, *, to: str = "", key: str = "") -> SendResult:
        """Send channel messages to an agent as one message: data, between tool calls or with a prompt.

        `text` is the result of `to_inject`, as the surface words it. With the same key it is stored once.
        """
        caller.require_owner("inject channel messages")
        draft = Draft(
            source=LOCAL,
            sender=Sender(CHANNELS_ID, CHANNELS_ID),
            text=text,
            upstream_id=f"inject/{key or fresh_id('', 20)}",
            mailbox=Mailbox(to) if to else INBOX,
            author=WATCH,
        )
        return await self._inbox.accept(draft)

    async def _lines(self, limit: int, channel: str = "", source: str = "") -> Sequence[ChannelLine]:
        found = await self._store.timeline.channels(limit, source=source, channel=channel)
        return [
            ChannelLine(
                source=c.source,
                channel=c.channel,
                count=c.count,
                unread=c.unread,
                last_at=c.last_at,
                cleared=c.cleared,
            )
            for c in found
        ]

    async def _newest(self, line: ChannelLine) -> Message | None:
        if not line.channel:
            # A place without a channel means the whole source.
            return None
        part = await self._store.timeline.part(TimelineScope(channel=line.channel, source=line.source), 1)
        return part.lines[-1][1] if part.lines else None
