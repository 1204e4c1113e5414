"""One way through the chats after another: which to read now, what was found, and what can be said to be done.

It holds the place and moves it only over what was read. A chat that fails keeps the whole list open, so that it is
found again; one that goes on failing is left alone for a while (`patience.py`), and never forgotten. What takes many
pages is read over several rounds. Edits and deletions do not show in the list, so chats that were active lately are
looked at: the newest in every round, if there are many the others in turn, none after an hour. Above is `source.py`,
which asks and waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import anyio

from harken.errors import HarkenError, NeedsPerson
from harken.model import Draft, Kind
from harken.sources.graph.client import CHAT_SECONDS, GraphClient
from harken.sources.graph.failures import MissingScope
from harken.sources.graph.sent import Sent
from harken.sources.graph.settings import GraphSettings
from harken.sources.graph.teams.backlog import Backlog, Changes
from harken.sources.graph.teams.chats import list_chats, read_on
from harken.sources.graph.teams.patience import Late, Patience
from harken.sources.graph.teams.place import OVERLAP_MS, Place
from harken.sources.graph.teams.reading import Chat, Written, chat_draft, sender_of, upstream_id

MOST_BEHIND: Final = 20  # looks; a message may be older than what one may see of a chat
MOST_IN_ALL: Final = 20_000  # messages of all chats that are held before they are passed on
LOOKED_AT_SECONDS: Final = 3_600.0  # how long after something happened in a chat its edits are looked for
MOST_CLOSE: Final = 6  # chats, those that were active last, that are looked at in every round
CLOSE_LOOK_SECONDS: Final = 4.0  # rounds may follow each other quickly, when somebody tells of changes
SOONEST_LOOK_SECONDS: Final = 30.0  # for the others, the less the longer they are quiet
LATEST_LOOK_SECONDS: Final = 600.0
LOOKS_AT_ONCE: Final = 1

_AGE_PER_LOOK: Final = 8


@dataclass(slots=True)
class _Activity:
    active_at: float
    looked_at: float
    is_owed: bool = False  # one look, however long it is quiet: nobody looked while the daemon was away


def _rest(age: float) -> float:
    return min(max(age / _AGE_PER_LOOK, SOONEST_LOOK_SECONDS), LATEST_LOOK_SECONDS)


class Polling:
    """The chats of one account from one place on.

    `since` is when somebody signed in, by Microsoft's clock; `now` is the time here.
    """

    def __init__(
        self,
        settings: GraphSettings,
        client: GraphClient,
        sent: Sent,
        me: Callable[[], str],
        monotonic: Callable[[], float],
        *,
        since: Callable[[], datetime | None] = lambda: None,
        now: Callable[[], datetime],
        chat_seconds: float = CHAT_SECONDS,
    ) -> None:
        self._settings = settings
        self._client = client
        self._sent = sent
        self._me = me
        self._monotonic = monotonic
        self._since = since
        self._now = now
        self._chat_seconds = chat_seconds
        self._watched = frozenset(each.casefold() for each in settings.watched)
        self._muted = frozenset(each.casefold() for each in settings.muted)
        self._who = ""  # whose chats the last list shows
        self._shown: dict[str, Chat] = {}
        self._activity: dict[str, _Activity] = {}
        self._patience = Patience(monotonic)
        self._backlogs: dict[str, Backlog] = {}
        self._behind = Counter[str]()  # how often a chat was read and did not hold what the list had shown
        self._newest = 0
        self._is_complete = True
        self.place: Place | None = None
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
        self.place = Place.load(checkpoint)
        now, wall_ms = self._monotonic(), self._now().timestamp() * 1000
        # By the clock here, which may be wrong: then edits are looked for too long, or come with the next message.
        ages = {chat_id: max(0.0, wall_ms - known.at) / 1000 for chat_id, known in self.place.chats.items()}
        self._activity = {
            chat_id: _Activity(now - age, now - LATEST_LOOK_SECONDS, is_owed=True) for chat_id, age in ages.items()
        }
        # Without a gate a chat is not read to its end: it may have refused us, and the list does not show it again.
        self._patience.begin(chat_id for chat_id, known in self.place.chats.items() if not known.gate)

    def checkpoint(self) -> str:
        """Return the place as it is kept, empty if there is none yet."""
        return self.place.dump() if self.place else ""

    async def look(self, told: Collection[str] = ()) -> list[Chat]:
        """Return the chats to read: those that changed, those that we were told of, and a few that may hold edits."""
        who = self._me()
        if not who:
            raise NeedsPerson(
                "It is not known whose chats these are.",
                "sign in again; until then nothing is read, because your own words could not be told from others'",
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

    def _begin_with(self, listed: Sequence[Chat], who: str) -> None:
        """Begin anew: for the first time, or because of who signed in."""
        since = self._since()
        self.place = Place.beginning(listed, int(since.timestamp() * 1000) if since else 0, who)
        self._shown, self._activity, self._backlogs = {}, {}, {}
        self._patience.begin(())
        self._behind.clear()
        self._newest = 0

    def _due(self, place: Place, listed: Sequence[Chat], told: Collection[str]) -> list[Chat]:
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

    async def read(self, chats: Sequence[Chat]) -> list[Draft]:
        """Read some chats at once and return what is new in them, each chat in order."""
        place = self.place
        if place is None:
            return []
        found: dict[str, Changes | HarkenError | None] = {}

        async def read_one(chat: Chat) -> None:
            backlog = self._backlogs.get(chat.id)
            if backlog is None or not backlog.is_begun:
                backlog = self._backlogs[chat.id] = Backlog(chat, place.known(chat.id).at - OVERLAP_MS)
            found[chat.id] = Late()
            with anyio.move_on_after(self._chat_seconds):
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

    def _has_room_for(self, chat: Chat) -> bool:
        """Whether what is held of other chats leaves room: else those are read to their end first."""
        held = {chat_id: len(backlog.found) for chat_id, backlog in self._backlogs.items()}
        return sum(held.values()) <= MOST_IN_ALL or chat.id == max(held, key=held.__getitem__)

    def _is_wanted(self, chat: Chat) -> bool:
        names = {chat.id.casefold(), chat.topic.casefold()}
        return not names & self._muted and (not self._watched or bool(names & self._watched))

    def _looks(self, place: Place, others: set[str]) -> list[Chat]:
        """Return chats that may hold edits: those that were active last every time, the others in turn."""
        now = self._monotonic()
        recent = [
            (activity, self._again(place, chat_id))
            for chat_id, activity in self._activity.items()
            if activity.is_owed or now - activity.active_at <= LOOKED_AT_SECONDS
        ]
        recent = [each for each in recent if self._is_wanted(each[1]) and each[1].id not in self._patience.left]
        recent.sort(key=lambda each: each[0].active_at, reverse=True)
        close = [each for each in recent[:MOST_CLOSE] if now - each[0].looked_at >= CLOSE_LOOK_SECONDS]
        turns = [each for each in recent[MOST_CLOSE:] if now - each[0].looked_at >= _rest(now - each[0].active_at)]
        turns.sort(key=lambda each: each[0].looked_at)
        due = [chat for _, chat in (*close, *turns[:LOOKS_AT_ONCE])]
        return [chat for chat in due if chat.id not in others]

    def _again(self, place: Place, chat_id: str) -> Chat:
        """Return a chat that is to be read though the list shows nothing new in it."""
        shown = self._shown.get(chat_id) or Chat(chat_id)
        # At the gate that is known: a look must not hide that the list shows something new.
        return Chat(chat_id, shown.topic, shown.kind, place.known(chat_id).gate, shown.last_at)

    def _failed(self, place: Place, chat: Chat, error: HarkenError) -> None:
        if isinstance(error, MissingScope):
            self.missing = error
        if self._patience.failed(chat, error):
            self._backlogs.pop(chat.id, None)
            place.leave(chat.id)
        else:
            self._is_complete = False

    def _take(self, place: Place, chat: Chat, changes: Changes | HarkenError | None) -> list[Draft]:
        if isinstance(changes, HarkenError):
            self._failed(place, chat, changes)
            return []
        if changes is None:
            self._is_complete = False
            return []
        self._patience.worked(chat.id)
        backlog = self._backlogs.pop(chat.id)
        return self._taken(place, backlog, changes)

    def _taken(self, place: Place, backlog: Backlog, changes: Changes) -> list[Draft]:
        chat = backlog.chat
        found: list[tuple[tuple[int, int, str], Draft]] = []
        for written in changes.messages:
            kind = place.kind_of(chat.id, written)
            draft = self._draft(chat, written, kind) if kind else None
            if draft is not None:
                at = written.created if kind is Kind.MESSAGE else written.modified
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

    def _is_behind(self, place: Place, chat: Chat, changes: Changes) -> bool:
        """Whether what was read lacks the message that the list had shown: then it is there soon, and read again."""
        known = place.known(chat.id)
        is_there = chat.last_id in known.recent or any(each.id == chat.last_id for each in changes.messages)
        if is_there or changes.until or chat.gate == known.gate or chat.last_at <= known.at:
            self._behind.pop(chat.id, None)
            return False
        self._behind[chat.id] += 1
        return self._behind[chat.id] <= MOST_BEHIND

    def _note_activity(self, chat_id: str, *, is_active: bool) -> None:
        now = self._monotonic()
        known = self._activity.get(chat_id)
        if is_active:
            self._activity[chat_id] = _Activity(now, now)
        elif known is not None:
            known.looked_at, known.is_owed = now, False

    def _draft(self, chat: Chat, written: Written, kind: Kind) -> Draft | None:
        sender, me = sender_of(written.json), self._who
        if sender is None or sender.id.casefold() in self._muted:
            return None
        # By its id whoever is said to have written it; else only what comes from the account can be ours.
        if self._sent.has(upstream_id(chat.id, written.id)):
            return None
        if sender.id == me and (self._settings.is_agent or self._sent.is_ours({**written.json, "chatId": chat.id})):
            return None
        return chat_draft(written, source=self._settings.name, chat=chat, sender=sender, kind=kind, me=me)
