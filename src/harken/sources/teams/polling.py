"""Which chats of Teams are read, and what changed in them since they were last read.

`ChatPoll` decides by the list of chats which are read. `ChatBacklog` gathers what changed in one chat a few pages at a
time: pages come newest first and messages are passed on oldest first. `ChatBackoff` leaves chats alone for a while that
refuse us or do not answer, and none is given up. `TeamsCheckpoint` is how far the chats were read, in the service's own
times: each is read again from a few seconds before, because changes can become visible a little out of order. Above is
`source.py`; below is the client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, Self

import anyio
import msgspec

from harken.errors import HarkenError, NeedsPerson, Unavailable, UserError
from harken.model import Draft, MessageKind, timestamp
from harken.sources.feed import checkpoint_of, read_checkpoint
from harken.sources.http import part
from harken.sources.microsoft.client import CHAT, CHAT_SECONDS, CHATS, NEXT_LINK, GraphClient
from harken.sources.microsoft.responses import MissingScope
from harken.sources.microsoft.sent import SentMessages
from harken.sources.payload import items
from harken.sources.teams.messages import (
    ChatMessage,
    TeamsChat,
    chat_draft,
    read_chat,
    read_message,
    sender_of,
    upstream_id,
)
from harken.sources.teams.settings import TeamsSettings

MAX_HELD: Final = 6_000  # messages of a chat
MAX_DOUBLINGS: Final = 6

PAGE: Final = 50
MAX_LIST_PAGES: Final = 100
PAGES_AT_ONCE: Final = 5  # of one chat: a page takes a second, and the other chats wait meanwhile

_LIST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "$expand": "lastMessagePreview",
        "$orderby": "lastMessagePreview/createdDateTime desc",
        "$top": str(PAGE),
    }
)

MAX_REFUSALS: Final = 3
MAX_TROUBLES: Final = 5
MAX_LATE: Final = 2
# Until it is tried again, each time longer: a chat may let us in soon after it was made, or have been left for good.
REFUSED_SECONDS: Final = (60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0)
TROUBLED_SECONDS: Final = (30.0, 60.0, 120.0)

MAX_BEHIND: Final = 20  # looks; a message may be older than what one may see of a chat
MAX_IN_ALL: Final = 20_000  # messages of all chats that are held before they are passed on
LOOKED_AT_SECONDS: Final = 3_600.0  # how long after something happened in a chat its edits are looked for
MAX_CLOSE: Final = 6  # chats, those that were active last, that are looked at in every round
CLOSE_LOOK_SECONDS: Final = 4.0  # rounds may follow each other quickly, when somebody tells of changes
SOONEST_LOOK_SECONDS: Final = 30.0  # for the others, the less the longer they are quiet
LATEST_LOOK_SECONDS: Final = 600.0
LOOKS_AT_ONCE: Final = 1

_AGE_PER_LOOK: Final = 8

OVERLAP_MS: Final = 10_000
KEPT_MS: Final = 2 * 3_600_000
MAX_BACK_MS: Final = 3 * 86_400_000  # how much of what came after an old sign-in a new source begins with

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ChatChanges:
    """What changed in a chat, the oldest change first. `until` is not 0 if only changes up to that were read."""

    messages: Sequence[ChatMessage]
    until: int = 0


@dataclass(slots=True)
class ChatBacklog:
    """Changes after a time, of a chat as the list showed it when they were first asked for."""

    chat: TeamsChat
    after: int
    before: int = 0  # what changed from here on is left for later; 0: nothing is
    later: tuple[int, ...] = ()  # where the parts after this one end
    most_held: int = MAX_HELD
    is_part: bool = False  # it is known to be small enough
    found: dict[str, ChatMessage] = field(default_factory=dict[str, ChatMessage])
    oldest: int = 0  # whatever changed between this and `before` was found
    doublings: int = 0  # how often more pages had to be asked for because they led no further

    @property
    def is_begun(self) -> bool:
        """Whether it says more than where to begin."""
        return bool(self.oldest or self.before or self.later)

    @property
    def end(self) -> int:
        """Before when to ask on, 0 if that is open: changes of one instant may be on two pages."""
        return self.oldest + 1 if self.oldest else self.before

    def take(self, page: Iterable[ChatMessage]) -> None:
        """Add a page."""
        for written in page:
            if written.id not in self.found or self.found[written.id].modified < written.modified:
                self.found[written.id] = written
            self.oldest = min(self.oldest or written.modified, written.modified)
        if len(self.found) > self.most_held and self._can_be_cut:
            self.later = (self.before, *self.later)
            self.before = self.end
            self.found = {key: each for key, each in self.found.items() if each.modified < self.before}

    @property
    def _can_be_cut(self) -> bool:
        """Whether a part that ends here leads further than what was read before; one that was cut is not cut again."""
        return not self.is_part and self.end != self.before and self.oldest > self.after + OVERLAP_MS

    def leads_on(self, reached: int) -> bool:
        """Whether it is worth to ask on: it got further than before, or asks for more pages the next time."""
        if self.oldest != reached:
            self.doublings = 0
            return True
        self.doublings += 1
        return self.doublings <= MAX_DOUBLINGS

    def changes(self) -> ChatChanges:
        """Return what was found, once all of it is there."""
        ordered = sorted(self.found.values(), key=lambda each: (each.modified, each.created, each.id))
        return ChatChanges(ordered, until=self.before and self.before - 1)

    def rest(self) -> ChatBacklog | None:
        """Return what is to be read after this, if only a part was."""
        if not self.before:
            return None
        after = self.before - 1 - OVERLAP_MS
        before, *later = self.later or (0,)
        return ChatBacklog(self.chat, after, before, tuple(later), self.most_held, is_part=bool(before))


async def list_chats(client: GraphClient, reaches_further: Callable[[Sequence[TeamsChat]], bool]) -> list[TeamsChat]:
    """Return the chats with the newest messages, page after page as long as the next can hold something new."""
    found: dict[str, TeamsChat] = {}
    async with aclosing(client.pages("/me/chats", _LIST, lane=CHATS, most_pages=MAX_LIST_PAGES)) as pages:
        async for page in pages:
            shown = [chat for chat in map(read_chat, items(page)) if chat is not None]
            # What moves up while we read is on two pages: the first had the newer state.
            found = {chat.id: chat for chat in shown} | found
            if not reaches_further(shown):
                break
    return list(found.values())


async def read_on(client: GraphClient, backlog: ChatBacklog) -> ChatChanges | None:
    """Read some more of what changed in a chat; return all of it as soon as it is there, until then nothing."""
    chat_id, reached = backlog.chat.id, backlog.oldest
    bounds = f"lastModifiedDateTime gt {stamp(backlog.after)}"
    if backlog.end:
        bounds += f" and lastModifiedDateTime lt {stamp(backlog.end)}"
    params = {"$top": str(PAGE), "$orderby": "lastModifiedDateTime desc", "$filter": bounds}
    most = PAGES_AT_ONCE << backlog.doublings
    has_more = False
    path = f"/chats/{part(chat_id)}/messages"
    async with aclosing(client.pages(path, params, lane=f"{CHAT}{chat_id}", most_pages=most)) as pages:
        async for page in pages:
            backlog.take(filter(None, map(read_message, items(page))))
            has_more = NEXT_LINK in page
    return None if has_more and backlog.leads_on(reached) else backlog.changes()


def stamp(millis: int) -> str:
    """Return a time in milliseconds as Graph reads it."""
    return timestamp(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=max(0, millis)))


class ChatTimeout(Unavailable):
    """A chat did not answer for so long that the others would have to wait."""

    def __init__(self) -> None:
        super().__init__("The chat does not answer in time.", "it is read again later")


@dataclass(frozen=True, slots=True)
class _LeftChat:
    """A chat that is left alone: at which gate, how often it was, and until when."""

    gate: str
    times: int
    again_at: float
    is_refused: bool


class ChatBackoff:
    """How often chats failed, and which of them are left alone."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failures = Counter[str]()
        self._left: dict[str, _LeftChat] = {}

    @property
    def left(self) -> Collection[str]:
        """The chats that are left alone, or are to be tried at once after a restart."""
        return self._left.keys()

    @property
    def closed(self) -> int:
        """How many chats cannot be read now."""
        return sum(left.times > 0 for left in self._left.values())

    def begin(self, chat_ids: Iterable[str]) -> None:
        """Forget everything but these: they are to be tried, whether the list shows them or not."""
        self._failures.clear()
        self._left = {each: _LeftChat("", 0, self._monotonic(), is_refused=False) for each in chat_ids}

    def worked(self, chat_id: str) -> None:
        """Take note that a chat was read."""
        self._failures.pop(chat_id, None)
        self._left.pop(chat_id, None)

    def failed(self, chat: TeamsChat, error: HarkenError) -> bool:
        """Take note of a failure, and return whether the chat is left alone now."""
        is_refused = not isinstance(error, Unavailable)
        most = MAX_REFUSALS if is_refused else MAX_LATE if isinstance(error, ChatTimeout) else MAX_TROUBLES
        self._failures[chat.id] += 1
        before = self._left.get(chat.id)
        if self._failures[chat.id] < most and (before is None or not before.times):
            return False
        times = before.times if before and before.is_refused == is_refused else 0
        pauses = REFUSED_SECONDS if is_refused else TROUBLED_SECONDS
        again_at = self._monotonic() + pauses[min(times, len(pauses) - 1)]
        # One that is tried though the list does not show it comes without a gate: what the list showed last counts.
        gate = chat.gate or (before.gate if before else "")
        self._left[chat.id] = _LeftChat(gate, times + 1, again_at, is_refused)
        return True

    def can_read(self, chat: TeamsChat) -> bool:
        """Whether a chat is not left alone: something new may have changed that it refuses us, or time has passed."""
        left = self._left.get(chat.id)
        if left is None or self._monotonic() >= left.again_at:
            return True
        return left.is_refused and left.gate != chat.gate

    def due(self) -> list[str]:
        """Return the chats that are to be tried again now."""
        now = self._monotonic()
        return [chat_id for chat_id, left in self._left.items() if now >= left.again_at]


@dataclass(slots=True)
class _ChatActivity:
    active_at: float
    looked_at: float
    is_owed: bool = False  # one look, however long it is quiet: nobody looked while the daemon was away


def _rest(age: float) -> float:
    return min(max(age / _AGE_PER_LOOK, SOONEST_LOOK_SECONDS), LATEST_LOOK_SECONDS)


class ChatPoll:
    """The chats of one account from one place on.

    `since` is when the account signed in, by Microsoft's clock; `now` is the time here.
    """

    def __init__(
        self,
        settings: TeamsSettings,
        client: GraphClient,
        sent: SentMessages,
        me: Callable[[], str],
        monotonic: Callable[[], float],
        *,
        since: Callable[[], datetime | None] = lambda: None,
        now: Callable[[], datetime],
        chat_limit: Callable[[str], anyio.CancelScope] = lambda _chat: anyio.move_on_after(CHAT_SECONDS),
    ) -> None:
        self._settings = settings
        self._client = client
        self._sent = sent
        self._me = me
        self._monotonic = monotonic
        self._since = since
        self._now = now
        self._chat_limit = chat_limit
        self._watched = frozenset(each.casefold() for each in settings.watched)
        self._muted = frozenset(each.casefold() for each in settings.muted)
        self._who = ""  # whose chats the last list shows
        self._shown: dict[str, TeamsChat] = {}
        self._activity: dict[str, _ChatActivity] = {}
        self._patience = ChatBackoff(monotonic)
        self._backlogs: dict[str, ChatBacklog] = {}
        self._behind = Counter[str]()  # how often a chat was read and did not hold what the list had shown
        self._newest = 0
        self._is_complete = True
        self.place: TeamsCheckpoint | None = None
        self.missing: NeedsPerson | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything that the last list showed was read."""
        return self._is_complete

    @property
    def closed(self) -> int:
        """How many chats cannot be read."""
        return self._patience.closed

    def begin(self, checkpoint: str) -> None:
        """Go on from a checkpoint."""
        self.place = TeamsCheckpoint.load(checkpoint)
        now, wall_ms = self._monotonic(), self._now().timestamp() * 1000
        # By the clock here, which may be wrong: then edits are looked for too long, or come with the next message.
        ages = {chat_id: max(0.0, wall_ms - known.at) / 1000 for chat_id, known in self.place.chats.items()}
        self._activity = {
            chat_id: _ChatActivity(now - age, now - LATEST_LOOK_SECONDS, is_owed=True) for chat_id, age in ages.items()
        }
        # Without a gate a chat is not read to its end: it may have refused us, and the list does not show it again.
        self._patience.begin(chat_id for chat_id, known in self.place.chats.items() if not known.gate)

    def checkpoint(self) -> str:
        """Return the place as it is kept, empty if there is none yet."""
        return self.place.dump() if self.place else ""

    async def look(self, told: Collection[str] = ()) -> list[TeamsChat]:
        """Return the chats to read: those that changed, those that we were told of, and a few that may hold edits."""
        who = self._me()
        if not who:
            raise NeedsPerson(
                "Harken does not know whose chats these are.",
                "sign in again; until then Harken reads nothing, because it cannot tell your messages from others'",
                action=f"sign in again with: harken source login {self._settings.name}",
            )
        # To begin with, only the newest message counts, and the first page has it.
        listed = await list_chats(self._client, self.place.reaches_further if self.place else lambda _page: False)
        self._is_complete = self._me() == who
        if not self._is_complete:
            # Somebody else has signed in: whose list this is nobody can say.
            return []
        self._who = who
        if self.place is None or not self.place.is_of(who):
            self._begin_with(listed, who)
            return []
        self.place.account = who
        return self._due(self.place, listed, told)

    def _begin_with(self, listed: Sequence[TeamsChat], who: str) -> None:
        """Begin anew: for the first time, or because of who signed in."""
        since = self._since()
        self.place = TeamsCheckpoint.beginning(listed, int(since.timestamp() * 1000) if since else 0, who)
        self._shown, self._activity, self._backlogs = {}, {}, {}
        self._patience.begin(())
        self._behind.clear()
        self._newest = 0

    def _due(self, place: TeamsCheckpoint, listed: Sequence[TeamsChat], told: Collection[str]) -> list[TeamsChat]:
        self._newest = max((chat.last_at for chat in listed), default=0)
        self._shown.update((chat.id, chat) for chat in listed)
        due = {chat.id: chat for chat in listed if place.is_changed(chat) and self._patience.can_read(chat)}
        # The list does not show again what failed, nor to its end what is read over several rounds.
        goes_on = {*self._patience.due(), *(self._backlogs.keys() - self._patience.left)}
        due |= {chat_id: self._again(place, chat_id) for chat_id in goes_on - due.keys()}
        changed = sorted(filter(self._is_wanted, due.values()), key=lambda chat: chat.last_at)
        others = {chat.id for chat in changed}
        named = [self._again(place, chat_id) for chat_id in sorted(set(told) - others)]
        more = [chat for chat in named if self._is_wanted(chat) and chat.id not in self._patience.left]
        return [*changed, *more, *self._looks(place, others.union(told))]

    async def read(self, chats: Sequence[TeamsChat]) -> list[Draft]:
        """Read some chats at once and return what is new in them, each chat in order."""
        place = self.place
        if place is None:
            return []
        found: dict[str, ChatChanges | HarkenError | None] = {}

        async def read_one(chat: TeamsChat) -> None:
            backlog = self._backlogs.get(chat.id)
            if backlog is None or not backlog.is_begun:
                backlog = self._backlogs[chat.id] = ChatBacklog(chat, place.known(chat.id).at - OVERLAP_MS)
            found[chat.id] = ChatTimeout()
            with self._chat_limit(chat.id):
                try:
                    found[chat.id] = await read_on(self._client, backlog)
                except HarkenError as error:
                    found[chat.id] = error

        async with anyio.create_task_group() as group:
            for chat in filter(self._has_room_for, chats):
                group.start_soon(read_one, chat)
        if self._me() != self._who:
            self._is_complete = False
            self._backlogs.clear()
            return []
        drafts: list[Draft] = []
        for chat in chats:
            drafts += self._take(place, chat, found.get(chat.id))
        return drafts

    def complete(self) -> None:
        """Note that everything the list showed was read, if that is so."""
        if self._is_complete and self.place is not None:
            self.place.completed(self._newest, self._patience.left)
            kept = self.place.chats.keys()
            self._activity = {chat_id: each for chat_id, each in self._activity.items() if chat_id in kept}
            self._shown = {chat_id: chat for chat_id, chat in self._shown.items() if chat_id in kept}

    def _has_room_for(self, chat: TeamsChat) -> bool:
        """Whether what is held of other chats leaves room: else those are read to their end first."""
        held = {chat_id: len(backlog.found) for chat_id, backlog in self._backlogs.items()}
        return sum(held.values()) <= MAX_IN_ALL or chat.id == max(held, key=held.__getitem__)

    def _is_wanted(self, chat: TeamsChat) -> bool:
        names = {chat.id.casefold(), chat.topic.casefold()}
        return not names & self._muted and (not self._watched or bool(names & self._watched))

    def _looks(self, place: TeamsCheckpoint, others: set[str]) -> list[TeamsChat]:
        """Return chats that may hold edits: those that were active last every time, the others in turn."""
        now = self._monotonic()
        recent = [
            (activity, self._again(place, chat_id))
            for chat_id, activity in self._activity.items()
            if activity.is_owed or now - activity.active_at <= LOOKED_AT_SECONDS
        ]
        recent = [each for each in recent if self._is_wanted(each[1]) and each[1].id not in self._patience.left]
        recent.sort(key=lambda each: each[0].active_at, reverse=True)
        close = [each for each in recent[:MAX_CLOSE] if now - each[0].looked_at >= CLOSE_LOOK_SECONDS]
        turns = [each for each in recent[MAX_CLOSE:] if now - each[0].looked_at >= _rest(now - each[0].active_at)]
        turns.sort(key=lambda each: each[0].looked_at)
        due = [chat for _, chat in (*close, *turns[:LOOKS_AT_ONCE])]
        return [chat for chat in due if chat.id not in others]

    def _again(self, place: TeamsCheckpoint, chat_id: str) -> TeamsChat:
        """Return a chat that is to be read though the list shows nothing new in it."""
        shown = self._shown.get(chat_id) or TeamsChat(chat_id)
        # At the gate that is known: a look must not hide that the list shows something new.
        return TeamsChat(chat_id, shown.topic, shown.kind, place.known(chat_id).gate, shown.last_at)

    def _failed(self, place: TeamsCheckpoint, chat: TeamsChat, error: HarkenError) -> None:
        if isinstance(error, MissingScope):
            self.missing = error
        if self._patience.failed(chat, error):
            self._backlogs.pop(chat.id, None)
            place.leave(chat.id)
        else:
            self._is_complete = False

    def _take(self, place: TeamsCheckpoint, chat: TeamsChat, changes: ChatChanges | HarkenError | None) -> list[Draft]:
        if isinstance(changes, HarkenError):
            self._failed(place, chat, changes)
            return []
        if changes is None:
            self._is_complete = False
            return []
        self._patience.worked(chat.id)
        backlog = self._backlogs.pop(chat.id)
        return self._taken(place, backlog, changes)

    def _taken(self, place: TeamsCheckpoint, backlog: ChatBacklog, changes: ChatChanges) -> list[Draft]:
        chat = backlog.chat
        found: list[tuple[tuple[int, int, str], Draft]] = []
        for written in changes.messages:
            kind = place.kind_of(chat.id, written)
            draft = self._draft(chat, written, kind) if kind else None
            if draft is not None:
                at = written.created if kind is MessageKind.MESSAGE else written.modified
                found.append(((at, len(written.id), written.id), draft))
        is_behind = self._is_behind(place, chat, changes)
        gate = place.known(chat.id).gate if is_behind else "" if changes.until else chat.gate
        place.read(chat.id, gate, changes.messages, until=changes.until)
        if rest := backlog.rest():
            self._backlogs[chat.id] = rest
        if rest or is_behind:
            self._is_complete = False
        self._note_activity(chat.id, is_active=bool(found))
        return [draft for _, draft in sorted(found, key=lambda pair: pair[0])]

    def _is_behind(self, place: TeamsCheckpoint, chat: TeamsChat, changes: ChatChanges) -> bool:
        """Whether what was read lacks the message that the list had shown: then it is there soon, and read again."""
        known = place.known(chat.id)
        is_there = chat.last_id in known.recent or any(each.id == chat.last_id for each in changes.messages)
        if is_there or changes.until or chat.gate == known.gate or chat.last_at <= known.at:
            self._behind.pop(chat.id, None)
            return False
        self._behind[chat.id] += 1
        return self._behind[chat.id] <= MAX_BEHIND

    def _note_activity(self, chat_id: str, *, is_active: bool) -> None:
        now = self._monotonic()
        known = self._activity.get(chat_id)
        if is_active:
            self._activity[chat_id] = _ChatActivity(now, now)
        elif known is not None:
            known.looked_at, known.is_owed = now, False

    def _draft(self, chat: TeamsChat, written: ChatMessage, kind: MessageKind) -> Draft | None:
        sender, me = sender_of(written.json), self._who
        if sender is None or sender.id.casefold() in self._muted:
            return None
        # By its id whoever is said to have written it; else only what comes from the account can be ours.
        if self._sent.has(upstream_id(chat.id, written.id)):
            return None
        if sender.id == me and (self._settings.is_agent or self._sent.is_ours({**written.json, "chatId": chat.id})):
            return None
        return chat_draft(written, source=self._settings.name, chat=chat, sender=sender, kind=kind, me=me)


class ChatCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """How far one chat was read: up to when, at which gate of the list, and which changes just before that time."""

    at: int
    gate: str = ""
    recent: Mapping[str, int] = {}  # when each message was last changed, by its id


class TeamsCheckpoint(msgspec.Struct):
    """Where the feed is."""

    start: int  # what was written up to here is older than the source
    listed: int  # up to here the list of chats was seen to its end, and everything in it was read
    floor: int  # how far every chat was read that is not named
    chats: dict[str, ChatCheckpoint] = {}
    account: str = ""  # whose chats they are; empty: it was not known
    version: int = msgspec.field(name="v", default=_VERSION)

    @classmethod
    def beginning(cls, chats: Iterable[TeamsChat], since: int = 0, account: str = "") -> Self:
        """Return where to begin: at the sign-in if its time is known, else behind the newest message of the list.

        Where the list shows no message either there is nothing old that could be meant: from the very beginning.
        """
        chats = list(chats)
        newest = max((chat.last_at for chat in chats), default=0)
        start = max(since, newest - MAX_BACK_MS) if since else newest
        latest = {
            chat.id: ChatCheckpoint(start, chat.gate) for chat in chats if start - OVERLAP_MS < chat.last_at <= start
        }
        return cls(start, start, start, latest, account)

    @classmethod
    def load(cls, checkpoint: str) -> Self:
        """Return the place that a checkpoint names; raises `UserError` if it is none of ours."""
        stored = read_checkpoint(checkpoint, cls)
        if stored is None or stored.version != _VERSION:
            raise UserError("The stored position in the chats cannot be read.", "remove the source and add it again")
        return stored

    def dump(self) -> str:
        """Return the checkpoint."""
        return checkpoint_of(self)

    def is_of(self, account: str) -> bool:
        """Whether it is a place of this account, as far as both are known."""
        return not self.account or not account or self.account == account

    def known(self, chat_id: str) -> ChatCheckpoint:
        """Return how far a chat was read."""
        return self.chats.get(chat_id) or ChatCheckpoint(self.floor)

    def is_changed(self, chat: TeamsChat) -> bool:
        """Whether the list says that a chat has to be read."""
        known = self.chats.get(chat.id)
        if known is None:
            return chat.last_at > self.listed - OVERLAP_MS
        return known.gate != chat.gate

    def reaches_further(self, page: Iterable[TeamsChat]) -> bool:
        """Whether the next page of the list can hold a chat with something new: they come newest first."""
        # A chat may have no last message to show: it says nothing about those behind it.
        return min((chat.last_at for chat in page if chat.last_at), default=0) > self.listed - OVERLAP_MS

    def kind_of(self, chat_id: str, written: ChatMessage) -> MessageKind | None:
        """Return what a message says that was read: something new, a change, or nothing."""
        known = self.known(chat_id)
        read_at = known.recent.get(written.id)  # when it had last been changed as it was read
        if written.created <= self.start or read_at == written.modified:
            return None
        was_read = read_at is not None or written.created <= known.at - OVERLAP_MS
        if written.is_deleted:
            return MessageKind.DELETION if was_read else None
        # A reaction changes a message too: it counts when the text was changed, and whether that was read.
        edited = (written.edited or written.modified) if written.is_edited else 0
        if was_read and edited > (known.at - OVERLAP_MS if read_at is None else read_at):
            return MessageKind.EDIT
        # What may have become visible late is passed on: if it was read, the store knows it.
        return MessageKind.MESSAGE if read_at is None else None

    def read(self, chat_id: str, gate: str, messages: Iterable[ChatMessage], *, until: int = 0) -> None:
        """Note that a chat was read, up to what was found or, if only a part was asked for, up to `until`."""
        known = self.known(chat_id)
        changes = {**known.recent, **{each.id: each.modified for each in messages}}
        at = until or max((*changes.values(), known.at))
        recent = {message_id: modified for message_id, modified in changes.items() if modified > at - OVERLAP_MS}
        self.chats[chat_id] = ChatCheckpoint(at, gate, recent)

    def leave(self, chat_id: str) -> None:
        """Note that a chat cannot be read now: it stays where it was, and is kept to be tried again."""
        known = self.known(chat_id)
        self.chats[chat_id] = ChatCheckpoint(known.at, "", known.recent)

    def completed(self, newest: int, left: Container[str] = ()) -> None:
        """Note that everything was read that the list had shown; forget chats that have long been quiet."""
        self.listed = max(self.listed, newest)
        quiet = self.listed - KEPT_MS
        self.floor = max(self.floor, quiet)
        self.chats = {chat_id: known for chat_id, known in self.chats.items() if known.at > quiet or chat_id in left}
