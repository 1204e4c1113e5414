"""What people look at: the list of mailboxes, a timeline with its ledgers, what happened lately.

Each in time proportional to what is shown. The one thing that changes by looking is what the person has seen. Above is
the page; below the store's `Looking`. What people and agents *do* is in `inbox.py` and `tasks.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from harken.clock import Clock
from harken.errors import Forbidden, NotFound, UserError
from harken.inbox.caller import Caller, Role, as_priority, bounded, fitting
from harken.inbox.inbox import FARTHEST, SEEN_AT_ONCE, Inbox, mark_seen
from harken.inbox.results import ChannelLine, Forecast, LedgerEntry, Outlook, ReplyRow, TaskProgress
from harken.inbox.taskbook import TASK_CHANNEL
from harken.model import (
    INBOX,
    LOCAL,
    NOT_AGENTS,
    TASK,
    TRIAL,
    WATCH,
    Delivery,
    DeliveryState,
    Draft,
    Mailbox,
    Message,
    MessageKind,
    Reader,
    TaskState,
)
from harken.store.contract import Store
from harken.store.contract.conversations import ConversationKey
from harken.store.contract.deliveries import ConsumerState, Omission
from harken.store.contract.timeline import HourlyCount, MailboxState, TimelinePart, TimelineScope

MAX_LINES: Final = 200
MAX_CHANNELS: Final = 50
MAX_HOURS: Final = 24 * 31
BUSIEST: Final = 8
OTHER: Final = "other"
_HOUR: Final = timedelta(hours=1)


ListTasks = Callable[[], Awaitable[Sequence[TaskProgress]]]
"""Returns the open tasks, with how each stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailboxLine:
    """A mailbox in the list. `unread`: the person has not seen it; `waiting`: no agent that reads it was given it.

    `waiting` is 0 where no agent reads; of a task it is what its sessions were not given.
    """

    name: Mailbox
    unread: int
    waiting: int
    head: int
    last_at: datetime | None
    task: TaskProgress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MailOverview:
    """The left side of the page: `inbox` first, then other mailboxes; channels; open tasks, running ones first."""

    mailboxes: Sequence[MailboxLine]
    channels: Sequence[ChannelLine]
    tasks: Sequence[MailboxLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineItem:
    """A message as a timeline shows it.

    `ledger` has a line per consumer that reads the mailbox, the person's own left out; `quoted` is what it refers to,
    if that is stored; `edits` are later wordings, oldest first; `answers` later messages that refer to it; `is_open`:
    its sender waits for an answer to it.
    """

    message: Message
    ledger: Sequence[LedgerEntry]
    replies: Sequence[ReplyRow]
    quoted: Message | None = None
    edits: Sequence[Message] = ()
    answers: Sequence[Message] = ()
    is_deleted: bool = False
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Part of a mailbox or channel, oldest first; with `older`, ask again with `before` = that for what precedes.

    `newest` is what to ask `after` for what comes next, and what everything up to here is marked as seen with. It
    counts edits too, which have no item of their own.
    """

    items: Sequence[TimelineItem]
    older: int = 0
    newest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PulseRow:
    """One channel over the last hours: a count per hour, oldest first. The last may be `other`: the less busy ones."""

    channel: str
    counts: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PulseView:
    """What happened lately. `median` and `p95` are seconds from received to seen by an agent; None: nothing was."""

    begins: Sequence[datetime]
    rows: Sequence[PulseRow]
    seen: int
    median: float | None
    p95: float | None


class Views:
    """What the page asks. One per daemon."""

    def __init__(self, store: Store, list_tasks: ListTasks, inbox: Inbox, clock: Clock) -> None:
        self._store = store
        self._list_tasks = list_tasks
        self._inbox = inbox
        self._clock = clock

    async def overview(self) -> MailOverview:
        """Return every mailbox, channel and open task, with what is new in each."""
        standings = {each.task.mailbox: each for each in await self._list_tasks()}
        places = await self._store.deliveries.consumers()
        unread = {place.mailbox: place.unread for place in places if place.consumer == WATCH}
        waiting = _waiting(places)
        states = {state.name: state for state in await self._store.timeline.mailboxes()}
        empty = [MailboxState(name=name, head=0, last_at=None) for name in (INBOX, *standings) if name not in states]
        lines = [
            MailboxLine(
                name=state.name,
                unread=unread.get(state.name, 0),
                waiting=standings[state.name].pending if state.name in standings else waiting.get(state.name, 0),
                head=state.head,
                last_at=state.last_at,
                task=standings.get(state.name),
            )
            for state in (*states.values(), *empty)
        ]
        order = {name: index for index, name in enumerate(standings)}
        channels = await self._store.timeline.channels(MAX_CHANNELS)
        return MailOverview(
            mailboxes=sorted(
                (line for line in lines if _is_listed(line)), key=lambda line: (line.name != INBOX, line.name)
            ),
            channels=[
                ChannelLine(source=c.source, channel=c.channel, count=c.count, unread=c.unread, last_at=c.last_at)
                for c in channels
            ],
            tasks=sorted((line for line in lines if line.task), key=lambda line: (not _runs(line), order[line.name])),
        )

    async def timeline(
        self,
        *,
        mailbox: str = "",
        channel: str = "",
        source: str = "",
        thread: str = "",
        before: int = 0,
        after: int | None = None,
        limit: int = 50,
    ) -> Timeline:
        """Return the newest of a mailbox, of a channel, or of everything; what precedes, or what follows a position.

        Positions are those of `Timeline.older` and `Timeline.newest`; in a mailbox that is a message's `seq`. Edits and
        deletions are part of the item they refer to, unless another sender said them or it is not stored any more.
        """
        place = _place(mailbox, channel, source, thread)
        asked = bounded(limit, MAX_LINES, "limit")
        follows = None if after is None else _near(after)
        found = await self._store.timeline.part(place, asked, before=_near(before), after=follows)
        part = _fitting(found, is_forward=after is not None)
        items = await self._items([message for _, message in part.lines])
        older = part.lines[0][0] if part.has_older and part.lines else 0
        return Timeline(items=items, older=older, newest=part.newest)

    async def item(self, ref: str) -> TimelineItem:
        """Return one message as a timeline shows it."""
        message = await self._store.messages.get(ref)
        if message.mailbox.startswith(TRIAL):
            raise NotFound(f"There is no message {ref[:80]!r}.", "Search for it, or look into its mailbox.")
        return (await self._items([message]))[0]

    async def open_items(self, limit: int) -> Sequence[TimelineItem]:
        """Return what waits for an answer, the oldest first."""
        found = await self._store.questions.open(bounded(limit, MAX_LINES, "limit"))
        return await self._items([each.message for each in found if not each.message.mailbox.startswith(TRIAL)])

    async def search(
        self, text: str, *, mailbox: str = "", channel: str = "", sender: str = "", limit: int = 20
    ) -> Sequence[TimelineItem]:
        """Return messages that contain all the words, newest first."""
        found = await self._inbox.search(text, mailbox=mailbox, channel=channel, sender=sender, limit=limit)
        return await self._items([message for message in found if not message.mailbox.startswith(TRIAL)])

    async def forecast(self, mailbox: str, priority: str = "normal") -> Forecast:
        """Say what would happen to a message that the person sends to a mailbox now."""
        draft = Draft(
            source=LOCAL,
            sender=Caller(role=Role.OWNER).sender,
            text="-",
            channel=TASK_CHANNEL if mailbox.startswith(TASK) else "cli",
            priority=as_priority(priority),
            mailbox=Mailbox(mailbox),
        )
        try:
            return self._inbox.foresee(draft)
        except (NotFound, Forbidden) as exc:
            why = exc.message.rstrip(".")
            return Forecast(Outlook.NO_READER, f"cannot be sent: {why[:1].lower()}{why[1:]}")

    async def mark_seen(
        self,
        *,
        mailbox: str = "",
        channel: str = "",
        source: str = "",
        thread: str = "",
        since: int = 0,
        up_to: int,
    ) -> int:
        """Let everything from one position up to another be seen for the person; return how much was not. Idempotent.

        `since` is `Timeline.older` of the oldest part that was shown: what is before it was not looked at. Of a
        mailbox, the oldest 10,000 in one call; of a channel, what is among its newest 500.
        """
        place = _place(mailbox, channel, source, thread)
        if place == TimelineScope():
            raise UserError("Seen where?", "Name a mailbox or a channel.")
        if place.thread:
            key = ConversationKey(source=place.source, thread=place.thread)
            since, up_to = _near(since), _near(up_to)
            return await self._store.conversations.see(key, since=since, up_to=up_to, evidence="page")
        return await mark_seen(self._store, place, since=_near(since), up_to=_near(up_to), evidence="page")

    async def has_unseen(
        self,
        *,
        mailbox: str = "",
        channel: str = "",
        source: str = "",
        thread: str = "",
        since: int = 0,
        up_to: int = FARTHEST,
    ) -> bool:
        """Whether the person has something left to see between two positions; of a channel, among its newest 500."""
        place = _place(mailbox, channel, source, thread)
        limit = 1 if place.mailbox else SEEN_AT_ONCE
        return bool(await self._store.timeline.unseen(place, _near(up_to), limit, since=_near(since)))

    async def omissions(self, reader: Reader) -> Mapping[Mailbox, Omission]:
        """Return what a reader was not given when it began, by mailbox."""
        return await self._store.deliveries.omissions(reader)

    async def pulse(self, hours: int = 24) -> PulseView:
        """Return what happened in the last hours, counted by whole hours; the current one is the last."""
        now = self._clock.now()
        last = now.replace(minute=0, second=0, microsecond=0)
        begins = [last - _HOUR * ago for ago in reversed(range(bounded(hours, MAX_HOURS, "hours")))]
        pulse = await self._store.timeline.activity(begins[0], _HOUR)
        seconds = pulse.seconds_to_seen
        return PulseView(
            begins=begins,
            rows=_rows(pulse.counts, begins),
            seen=len(seconds),
            median=nearest_rank(seconds, 50),
            p95=nearest_rank(seconds, 95),
        )

    async def _items(self, messages: Sequence[Message]) -> Sequence[TimelineItem]:
        """Put to each message what belongs to it."""
        if not messages:
            return []
        ids = [message.id for message in messages]
        # Places before ledgers: what is seen in between has its row then, and is not taken for something else.
        readers = _readers(await self._store.deliveries.consumers({message.mailbox for message in messages}))
        ledgers = await self._store.deliveries.ledgers(ids)
        replies = await self._store.outbox.to_messages(ids)
        later = await self._store.messages.referring(ids)
        asked = {each.message.id for each in await self._store.questions.open(len(ids), messages=ids)}
        quoted = await self._store.messages.get_many([m.refers_to for m in messages if m.refers_to is not None])
        return [
            _item(
                message,
                ledger=_ledger(message, ledgers[message.id], readers.get(message.mailbox, ())),
                replies=replies[message.id],
                later=later.get(message.id, ()),
                quoted=quoted.get(message.refers_to) if message.refers_to else None,
                is_open=message.id in asked,
            )
            for message in messages
        ]


def nearest_rank(ascending: Sequence[float], percent: int) -> float | None:
    """Return the smallest value that so many percent do not exceed; None of nothing."""
    return ascending[max(0, -(-percent * len(ascending) // 100) - 1)] if ascending else None


def is_folded(message: Message, into: Message) -> bool:
    """Whether an edit or deletion belongs to the message it refers to: by the same sender, in the same mailbox."""
    return (
        message.kind is not MessageKind.MESSAGE
        and into.kind is MessageKind.MESSAGE
        and (message.mailbox, message.source, message.sender.id) == (into.mailbox, into.source, into.sender.id)
    )


def _item(
    message: Message,
    *,
    ledger: Sequence[LedgerEntry],
    replies: Sequence[ReplyRow],
    later: Sequence[Message],
    quoted: Message | None,
    is_open: bool,
) -> TimelineItem:
    folded = [each for each in later if is_folded(each, message)]
    return TimelineItem(
        message=message,
        ledger=ledger,
        replies=replies,
        quoted=None if quoted is None or quoted.mailbox.startswith(TRIAL) else quoted,
        edits=[each for each in folded if each.kind is MessageKind.EDIT],
        answers=[each for each in later if each.kind is MessageKind.MESSAGE and not each.mailbox.startswith(TRIAL)],
        is_deleted=any(each.kind is MessageKind.DELETION for each in folded),
        is_open=is_open,
    )


def _readers(places: Collection[ConsumerState]) -> Mapping[Mailbox, Sequence[ConsumerState]]:
    readers: dict[Mailbox, list[ConsumerState]] = {}
    for place in places:
        if place.consumer != WATCH:
            readers.setdefault(place.mailbox, []).append(place)
    return readers


def _ledger(
    message: Message, deliveries: Sequence[Delivery], readers: Sequence[ConsumerState]
) -> Sequence[LedgerEntry]:
    given = {delivery.consumer: delivery for delivery in deliveries if delivery.consumer != WATCH}
    entries = [LedgerEntry(consumer=name, state=delivery.state, delivery=delivery) for name, delivery in given.items()]
    return entries + [
        LedgerEntry(consumer=place.consumer, state=DeliveryState.QUEUED)
        for place in readers
        if place.cursor < message.seq and place.consumer not in given
    ]


def _waiting(places: Collection[ConsumerState]) -> Mapping[Mailbox, int]:
    """Return what no agent that reads a mailbox has seen: as much as the one that is farthest has left."""
    waiting: dict[Mailbox, int] = {}
    for place in places:
        if place.consumer not in NOT_AGENTS:
            left = place.unread - place.leased
            waiting[place.mailbox] = min(left, waiting.get(place.mailbox, left))
    return waiting


def _is_listed(line: MailboxLine) -> bool:
    """Whether a mailbox is shown beside the tasks. That of a task which is over: only while something in it is new."""
    return line.task is None and (not line.name.startswith(TASK) or line.unread > 0)


def _runs(line: MailboxLine) -> bool:
    return line.task is not None and line.task.state is TaskState.RUNNING


def _place(mailbox: str, channel: str, source: str, thread: str) -> TimelineScope:
    if mailbox and (channel or source):
        raise UserError("A timeline is of one mailbox or of one channel.", "Name one of them.")
    if mailbox.startswith(TRIAL):
        raise NotFound(f"There is no mailbox {mailbox[:80]!r} to look at.", "Trials are shown by: harken doctor")
    return TimelineScope(mailbox=mailbox, channel=channel, source=source, thread=thread)


def _near(position: int) -> int:
    return min(max(0, position), FARTHEST)


def _fitting(part: TimelinePart, *, is_forward: bool) -> TimelinePart:
    """Return as much of a part as one answer can carry: of what follows a position the first, else the newest."""
    sizes = [len(message.text) for _, message in part.lines]
    if is_forward:
        fits = fitting(sizes)
        kept = part.lines[:fits]
        return part if fits == len(sizes) else TimelinePart(lines=kept, newest=kept[-1][0])
    fits = fitting(sizes[::-1])
    return part if fits == len(sizes) else TimelinePart(lines=part.lines[-fits:], newest=part.newest, has_older=True)


def _rows(counts: Sequence[HourlyCount], begins: Sequence[datetime]) -> Sequence[PulseRow]:
    """Return a row for each of the busiest channels, the busiest first, and one for the others together."""
    totals = Counter[str]()
    for each in counts:
        totals[each.channel] += each.count
    busiest = sorted(totals.keys() - {OTHER}, key=lambda channel: (-totals[channel], channel))[:BUSIEST]
    columns = {begin: index for index, begin in enumerate(begins)}
    rows = {name: [0] * len(begins) for name in busiest}
    others = [0] * len(begins)
    for each in counts:
        if each.begin in columns:
            rows.get(each.channel, others)[columns[each.begin]] += each.count
    named = [PulseRow(channel=channel, counts=numbers) for channel, numbers in rows.items()]
    return [*named, PulseRow(channel=OTHER, counts=others)] if any(others) else named
