"""One way through the chats after another: which to read now, what was found, and what can be said to be done.

It holds the place and moves it only over what was read. A chat that fails keeps the whole list open, so that it is
found again; one that goes on refusing us is left alone until something new is in it. Edits and deletions do not show
in the list, so chats that were active lately are looked at now and then, the less the longer they are quiet.
Above is `source.py`, which asks and waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from harken.errors import HarkenError, NeedsPerson, Unavailable
from harken.model import Draft, Kind
from harken.sources.graph.client import GraphClient
from harken.sources.graph.failures import MissingScope
from harken.sources.graph.sent import Sent
from harken.sources.graph.settings import GraphSettings
from harken.sources.graph.teams.chats import Changes, list_chats, read_changes
from harken.sources.graph.teams.place import OVERLAP_MS, Place
from harken.sources.graph.teams.reading import Chat, Written, chat_draft, sender_of

MOST_REFUSALS: Final = 3
LOOKED_AT_SECONDS: Final = 3_600.0  # how long after something happened in a chat its edits are looked for
SOONEST_LOOK_SECONDS: Final = 30.0
LATEST_LOOK_SECONDS: Final = 600.0
LOOKS_AT_ONCE: Final = 4

_AGE_PER_LOOK: Final = 8


@dataclass(slots=True)
class _Activity:
    active_at: float
    looked_at: float


class Polling:
    """The chats of one account from one place on."""

    def __init__(
        self,
        settings: GraphSettings,
        client: GraphClient,
        sent: Sent,
        me: Callable[[], str],
        monotonic: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._client = client
        self._sent = sent
        self._me = me
        self._monotonic = monotonic
        self._watched = frozenset(each.casefold() for each in settings.watched)
        self._muted = frozenset(each.casefold() for each in settings.muted)
        self._shown: dict[str, Chat] = {}
        self._activity: dict[str, _Activity] = {}
        self._refusals = Counter[str]()
        self._closed: dict[str, str] = {}  # the gate at which a chat went on refusing us
        self._newest = 0
        self._is_complete = True
        self.place: Place | None = None
        self.missing: NeedsPerson | None = None

    @property
    def closed(self) -> int:
        """How many chats refuse to be read."""
        return len(self._closed)

    def begin(self, checkpoint: str) -> None:
        """Go on from a checkpoint."""
        self.place = Place.load(checkpoint)
        now = self._monotonic()
        self._activity = {chat_id: _Activity(now, now - LATEST_LOOK_SECONDS) for chat_id in self.place.chats}

    def checkpoint(self) -> str:
        """Return the place as it is kept, empty if there is none yet."""
        return self.place.dump() if self.place else ""

    async def look(self, now: int) -> list[Chat]:
        """Return the chats to read: those that changed, and a few in which something may have been edited."""
        place = self.place
        if place is None:
            # From now on: only the newest message counts, and the first page has it.
            self.place = Place.beginning(await list_chats(self._client, lambda _page: False), now)
            return []
        listed = await list_chats(self._client, place.reaches_further)
        self._newest = max((chat.last_at for chat in listed), default=0)
        self._is_complete = True
        self._shown.update((chat.id, chat) for chat in listed)
        changed = [chat for chat in listed if self._is_wanted(chat) and place.is_changed(chat)]
        changed = [chat for chat in changed if self._closed.get(chat.id) != chat.gate]
        return sorted(changed, key=lambda chat: chat.last_at) + self._looks(place, {chat.id for chat in changed})

    async def read(self, chats: Sequence[Chat]) -> list[Draft]:
        """Read some chats at once and return what is new in them, each chat in order."""
        found: dict[str, Changes | HarkenError] = {}

        async def read_one(chat: Chat, after: int) -> None:
            try:
                found[chat.id] = await read_changes(self._client, chat.id, after)
            except HarkenError as error:
                found[chat.id] = error

        place = self.place
        if place is None:
            return []
        async with anyio.create_task_group() as group:
            for chat in chats:
                group.start_soon(read_one, chat, place.known(chat.id).at - OVERLAP_MS)
        drafts: list[Draft] = []
        for chat in chats:
            changes = found[chat.id]
            if isinstance(changes, HarkenError):
                self._failed(chat, changes)
            else:
                drafts += self._take(place, chat, changes)
        return drafts

    def complete(self) -> None:
        """Note that everything the list showed was read, if that is so."""
        if self._is_complete and self.place is not None:
            self.place.completed(self._newest)
            kept = self.place.chats.keys()
            self._activity = {chat_id: each for chat_id, each in self._activity.items() if chat_id in kept}
            self._shown = {chat_id: chat for chat_id, chat in self._shown.items() if chat_id in kept}

    def _is_wanted(self, chat: Chat) -> bool:
        names = {chat.id.casefold(), chat.topic.casefold()}
        return not names & self._muted and (not self._watched or bool(names & self._watched))

    def _looks(self, place: Place, others: set[str]) -> list[Chat]:
        now = self._monotonic()
        due: list[tuple[float, str]] = []
        for chat_id, activity in self._activity.items():
            age = now - activity.active_at
            rest = min(max(age / _AGE_PER_LOOK, SOONEST_LOOK_SECONDS), LATEST_LOOK_SECONDS)
            if chat_id not in others and age <= LOOKED_AT_SECONDS and now - activity.looked_at >= rest:
                due.append((activity.looked_at, chat_id))
        chats: list[Chat] = []
        for _, chat_id in sorted(due):
            # At the gate that is known: a look must not hide that the list shows something new.
            shown = self._shown.get(chat_id) or Chat(chat_id)
            gate = place.known(chat_id).gate
            if self._is_wanted(shown) and chat_id not in self._closed:
                chats.append(Chat(chat_id, shown.topic, shown.kind, gate, shown.last_at))
        return chats[:LOOKS_AT_ONCE]

    def _failed(self, chat: Chat, error: HarkenError) -> None:
        if isinstance(error, MissingScope):
            self.missing = error
        if not isinstance(error, Unavailable):
            self._refusals[chat.id] += 1
        if self._refusals[chat.id] < MOST_REFUSALS:
            self._is_complete = False
        else:
            self._closed[chat.id] = chat.gate

    def _take(self, place: Place, chat: Chat, changes: Changes) -> list[Draft]:
        self._closed.pop(chat.id, None)
        self._refusals.pop(chat.id, None)
        found: list[tuple[tuple[int, int, str], Draft]] = []
        for written in changes.messages:
            kind = place.kind_of(chat.id, written)
            draft = self._draft(chat, written, kind) if kind else None
            if draft is not None:
                at = written.created if kind is Kind.MESSAGE else written.modified
                found.append(((at, len(written.id), written.id), draft))
        place.read(chat.id, "" if changes.until else chat.gate, changes.messages, until=changes.until)
        if changes.until:
            self._is_complete = False
        self._note_activity(chat.id, is_active=bool(found))
        return [draft for _, draft in sorted(found, key=lambda pair: pair[0])]

    def _note_activity(self, chat_id: str, *, is_active: bool) -> None:
        now = self._monotonic()
        known = self._activity.get(chat_id)
        if is_active:
            self._activity[chat_id] = _Activity(now, now)
        elif known is not None:
            known.looked_at = now

    def _draft(self, chat: Chat, written: Written, kind: Kind) -> Draft | None:
        sender, me = sender_of(written.json), self._me()
        if sender is None or sender.id.casefold() in self._muted:
            return None
        if sender.id == me and (self._settings.is_agent or self._sent.is_ours({**written.json, "chatId": chat.id})):
            return None
        return chat_draft(written, source=self._settings.name, chat=chat, sender=sender, kind=kind, me=me)
