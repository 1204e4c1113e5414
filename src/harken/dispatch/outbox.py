"""Sends what is in the outbox, tries again, and parks what cannot be sent where people see it.

Each source has a lane of its own: one that is slow or away does not hold up the answers of others. A sender has it
recorded before a reply may leave, so that after a crash it is known that it may have been sent.

Placeholders tell the sender in a chat that an agent has seen it, until the answer takes that place: once for a message,
for one message of a conversation at a time, and not for what is old or answered. A place without an answer says so
after a while, and when the daemon stops. What was put there in the moment of the answer may show only after it, also
when that daemon has ended: so once everything has settled, a place that was answered is looked at again and cleared.
Best effort: nothing of it changes what becomes of a message.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio

from harken.clock import Clock, Signal
from harken.errors import Conflict, HarkenError, NeedsPerson, Unavailable, Uncertain
from harken.model import OUTBOX, RULES, WATCH, Message, MessageId, MessageKind, OutgoingReply, Trust
from harken.plugins import PluginFault, guard_awaited
from harken.sources.source import PlaceholderWriter, ReplySender
from harken.store.contract import Store
from harken.store.contract.events import Event
from harken.store.contract.leases import SOURCE, OldFence, under
from harken.store.contract.messages import Filter
from harken.store.contract.outbox import OutboxRow

_log = logging.getLogger("harken.outbox")

BATCH = 20
FIRST_RETRY = timedelta(seconds=2)
LONGEST_RETRY = timedelta(minutes=15)
LOOK_EVERY_SECONDS = 5.0
LONGEST_DELAY = timedelta(minutes=59)
ASK_AGAIN = timedelta(minutes=1)
GIVE_UP_AFTER = timedelta(days=3)
LET_GO_SECONDS = 2.0
GONE_AFTER = timedelta(minutes=10)  # without its daemon, a source is not there any more


NOBODY: Final = ""  # the lane of replies whose source is not there


def retry_delay(attempts: int, asked: float) -> timedelta:
    """Return how long to wait after a failed attempt: doubling, at least what upstream asked for, an hour at most."""
    doubled = timedelta(seconds=FIRST_RETRY.total_seconds() * (1 << min(attempts, 16)))
    return min(max(min(doubled, LONGEST_RETRY), timedelta(seconds=asked)), LONGEST_DELAY)


class _ReplyClaim:
    """Takes a reply for this daemon when its sender hands it over, and remembers when another daemon was faster."""

    def __init__(self, store: Store, row: OutboxRow) -> None:
        self._store = store
        self._row = row
        self.is_taken = False
        self.is_refused = False

    async def __call__(self) -> None:
        try:
            self.is_taken = True
            await self._store.outbox.trying(self._row.id, attempts=self._row.attempts)
        except Conflict:
            self.is_refused = True
            raise

    async def let_go(self) -> None:
        """Let other daemons look whether it was sent: this one was stopped before it knew."""
        if self.is_taken:
            with anyio.move_on_after(LET_GO_SECONDS, shield=True), suppress(HarkenError), under(None):
                await self._store.outbox.let_go([self._row.id])


class Outbox:
    """The loop that empties the outbox."""

    def __init__(
        self, store: Store, senders: Mapping[str, ReplySender], clock: Clock, *, expected: Collection[str] = ()
    ) -> None:
        self._store = store
        self._senders = senders
        self._expected = expected  # sources that are configured, also those that are not ready
        self._clock = clock

    @property
    def lanes(self) -> Sequence[str]:
        """The sources that are sent to, each by itself; the last is for replies of sources that are not there."""
        return (*self._senders, NOBODY)

    async def run(self, source: str) -> None:
        """Send what is due of a source, for ever: at once when something is added, else by looking now and then."""
        added = Signal()
        with self._store.changes.listen(added.ring, only=[OUTBOX]):
            while True:
                while await self.send_due(source):
                    pass
                await added.wait(LOOK_EVERY_SECONDS)

    async def send_due(self, source: str = NOBODY) -> int:
        """Try everything of a source that is due once; return how many were tried. Nobody's replies are parked."""
        without = [*self._senders, *await self._of_others()] if source == NOBODY else ()
        held: set[str] = set()  # conversations in which one could not be sent: none may overtake it
        rows = await self._store.outbox.due(BATCH, source=source, without=tuple(without))
        for row in rows:
            conversation = row.message.conversation
            if conversation and conversation in held:
                continue
            if not await self._send(row):
                held.add(conversation)
        return len(rows)

    async def _of_others(self) -> list[str]:
        """Return the sources that a daemon of this store has, or had a moment ago: it may be starting again."""
        since = self._clock.now() - GONE_AFTER
        leases = await self._store.leases.list()
        return [lease.name.removeprefix(SOURCE) for lease in leases if lease.expires_at > since]

    async def _send(self, row: OutboxRow) -> bool:
        """Try a reply; return whether it is out of the way."""
        sender = self._senders.get(row.message.source)
        source = row.message.source
        if sender is None and source in self._expected:
            due = self._clock.now() + ASK_AGAIN
            return await self._later(
                row, f"the source {source} is not ready", due, is_uncertain=row.tried_at is not None
            )
        if sender is None:
            # A try that was cut short when its source was removed may have been sent.
            return await self._park(
                row, f"the source {source} cannot be answered", is_uncertain=row.tried_at is not None
            )
        claim = _ReplyClaim(self._store, row)
        reply = OutgoingReply(
            key=row.id,
            to=row.message,
            body=row.body,
            author=row.author,
            created_at=row.created_at,
            tried_at=row.tried_at,
            hand_over=claim,
        )
        try:
            upstream_id = await guard_awaited(f"The source {source}", sender.send(reply))
        except anyio.get_cancelled_exc_class():
            await claim.let_go()
            raise
        except OldFence:
            raise  # nothing has left: the daemon that leads the source now sends it
        except Unavailable as exc:
            due = self._clock.now() + retry_delay(row.attempts, exc.retry_after)
            # That this try was not sent says nothing about an earlier one.
            is_uncertain = isinstance(exc, Uncertain) or row.tried_at is not None
            return await self._later(row, exc.message, due, is_uncertain=is_uncertain)
        except NeedsPerson as exc:
            # A sign-in that has ended is somebody's to renew: the answer waits for that, visibly.
            is_uncertain = row.tried_at is not None
            return await self._later(row, exc.message, self._clock.now() + ASK_AGAIN, is_uncertain=is_uncertain)
        except HarkenError as exc:
            is_uncertain = isinstance(exc, Conflict | PluginFault) or row.tried_at is not None
            # One that another daemon was faster to claim is that daemon's.
            return not claim.is_refused and await self._park(row, exc.message, is_uncertain=is_uncertain)
        # A fact, whichever daemon leads the source by now; the row is this daemon's by its claim.
        with under(None):
            await self._store.outbox.sent(row.id, upstream_id)
        return True

    async def _later(self, row: OutboxRow, reason: str, due: datetime, *, is_uncertain: bool) -> bool:
        """Try again then; an answer must not go out weeks later by itself."""
        if self._clock.now() - row.created_at > GIVE_UP_AFTER:
            return await self._park(row, reason, is_uncertain=is_uncertain)
        with under(None):
            await self._store.outbox.failed(row.id, reason, due_at=due, is_uncertain=is_uncertain)
        return False

    async def _park(self, row: OutboxRow, reason: str, *, is_uncertain: bool) -> bool:
        _log.warning("reply %s is parked: %s", row.id, reason)
        with under(None):
            await self._store.outbox.failed(row.id, reason, due_at=None, is_uncertain=is_uncertain)
        return True


PLACEHOLDER_LOOK_SECONDS: Final = 2.0
HOLD_SECONDS: Final = 20.0
LAST_SECONDS: Final = 3.0  # for all places, when the daemon stops
OLDEST: Final = timedelta(minutes=10)
PATIENCE: Final = timedelta(minutes=30)
SETTLED: Final = timedelta(seconds=75)  # by then what was put into a place is there, or will never be
RECALLED: Final = timedelta(hours=2)  # how far back an earlier daemon may have left places that say too much
MAX_RECALLED: Final = 20
PLACEHOLDER_BATCH: Final = 200

_PEOPLE_AND_RULES: Final = frozenset({WATCH, RULES})
_TRUSTED: Final = frozenset({Trust.OWNER, Trust.KNOWN})

_log = logging.getLogger("harken.placeholder")


@dataclass(frozen=True, slots=True)
class _OpenPlaceholder:
    message: Message
    until: datetime  # then it is looked at again
    end: datetime  # then nobody waits for it any longer
    is_answered: bool = False


class Placeholders:
    """The loop that has places held, for the sources that can."""

    def __init__(self, store: Store, clock: Clock, holders: Mapping[str, PlaceholderWriter]) -> None:
        self._store = store
        self._clock = clock
        self._holders = holders
        self._places: dict[MessageId, _OpenPlaceholder] = {}
        self._after: int | None = None

    async def run(self) -> None:
        """Hold places from now on, for ever."""
        try:
            while True:
                await self.look()
                await anyio.sleep(PLACEHOLDER_LOOK_SECONDS)
        finally:
            with anyio.move_on_after(LAST_SECONDS, shield=True):
                # First what says too much; a place that was answered the next daemon clears too.
                await self._leave(sorted(self._places, key=lambda each: self._places[each].is_answered), is_last=True)

    async def look(self) -> None:
        """Hold the places of what agents have seen since the last look, and leave those that waited too long."""
        if self._after is None:
            self._after = await self._store.events.last()
            await self._recall()
        while events := await self._store.events.after(self._after, PLACEHOLDER_BATCH):
            self._after = events[-1].n
            self._note_answers(events)
            for message in await self._messages(_seen_in(events)):
                await self._hold(message)
        now = self._clock.now()
        await self._leave([message for message, place in self._places.items() if place.until <= now])

    async def _messages(self, ids: Sequence[MessageId]) -> list[Message]:
        """Return messages in their order; of very many the newest, because the others are old."""
        found = await self._store.messages.get_many(ids[-PLACEHOLDER_BATCH:])
        return [found[message] for message in ids if message in found]

    async def _recall(self) -> None:
        """Take over what an earlier daemon may have left, if it did not end by itself."""
        since = self._clock.now() - RECALLED
        for source in tuple(self._holders):
            page = await self._store.messages.page(Filter(source=source, since=since), MAX_RECALLED, newest_first=True)
            seen = await self._store.deliveries.seen_by([message.id for message in page])
            for message in page:
                is_seen = any(consumer not in _PEOPLE_AND_RULES for consumer in seen.get(message.id, ()))
                if is_seen and _is_meant(message):
                    await self._take_over(message)

    async def _take_over(self, message: Message) -> None:
        now = self._clock.now()
        if await self._store.outbox.to_message(message.id):
            # What the earlier daemon put there may be on its way still.
            self._places[message.id] = _OpenPlaceholder(message, now + SETTLED, now + PATIENCE, is_answered=True)
        else:
            end = _said_at(message) + PATIENCE
            self._places[message.id] = _OpenPlaceholder(message, end, end)

    def _note_answers(self, events: Collection[Event]) -> None:
        for event in events:
            message = MessageId(str(event.data.get("message_id", "")))
            place = self._places.get(message)
            if event.kind == "answered" and place is not None and not place.is_answered:
                until = min(place.until, self._clock.now() + SETTLED)
                self._places[message] = replace(place, until=until, is_answered=True)

    async def _hold(self, message: Message) -> None:
        if message.source not in self._holders or not _is_meant(message) or message.id in self._places:
            return
        now = self._clock.now()
        if (
            now - _said_at(message) > OLDEST
            or self._is_held(message)
            or await self._store.outbox.to_message(message.id)
        ):
            return
        self._places[message.id] = _OpenPlaceholder(message, now + PATIENCE, now + PATIENCE)
        await self._try(self._holders[message.source].hold_place, message)

    def _is_held(self, message: Message) -> bool:
        """Whether the conversation was told already that an agent works."""
        return any(
            not place.is_answered
            and (place.message.source, place.message.conversation) == (message.source, message.conversation)
            for place in self._places.values()
        )

    async def _leave(self, messages: Collection[MessageId], *, is_last: bool = False) -> None:
        for message_id in messages:
            place = self._places[message_id]
            can_wait = not is_last and self._clock.now() < place.end
            if await self._is_over(place, can_wait=can_wait) or not can_wait:
                del self._places[message_id]
            else:
                self._places[message_id] = replace(place, until=self._clock.now() + SETTLED)

    async def _is_over(self, place: _OpenPlaceholder, *, can_wait: bool) -> bool:
        """Say what is to be said in a place, and return whether that is all."""
        message, holder = place.message, self._holders.get(place.message.source)
        if holder is None:
            return True  # its source is gone, and nobody else can write there
        replies = await self._store.outbox.to_message(message.id)
        sent = [reply.upstream_id for reply in replies if reply.state == "sent"]
        # One that is on its way may be taking the place just now.
        is_on_its_way = any(reply.state == "queued" for reply in replies)
        if can_wait and (is_on_its_way or (place.is_answered and not sent)):
            return False
        if not sent:
            return await self._try(holder.leave_place, message)
        return is_on_its_way or await self._try(partial(holder.clear_place, answers=sent), message)

    async def _try(self, act: Callable[[Message], Awaitable[None]], message: Message) -> bool:
        """Do something to a place, and return whether there is no use in doing it again."""
        with anyio.move_on_after(HOLD_SECONDS):
            try:
                await act(message)
            except HarkenError as exc:
                _log.info("the place of an answer to %s is left as it is: %s", message.id, exc.message)
                return not isinstance(exc, Conflict | Unavailable)
            return True
        return False


def _seen_in(events: Collection[Event]) -> list[MessageId]:
    """Return what agents have seen, in order."""
    seen: dict[MessageId, None] = {}
    for event in events:
        deliveries = event.data.get("deliveries")
        if event.kind == "seen" and event.data.get("consumer") not in _PEOPLE_AND_RULES:
            found = deliveries.values() if isinstance(deliveries, Mapping) else ()
            seen.update((MessageId(str(message)), None) for message in found)
    return list(seen)


def _is_meant(message: Message) -> bool:
    """Whether a trusted sender asked for something: strangers are not told whether they are read."""
    return message.kind is MessageKind.MESSAGE and message.trust in _TRUSTED


def _said_at(message: Message) -> datetime:
    return min(message.sent_at or message.received_at, message.received_at)
