"""How far the chats have been read: what the checkpoint of the feed holds, and what follows from it. No I/O.

Times are the service's own, in milliseconds, so a wrong clock here loses nothing. Each chat is known up to the last
change that was read; because changes can become visible a little out of order, it is read again from a few seconds
before, and what was read there is remembered by id. Chats that are quiet for hours are forgotten: for them the `floor`
holds. Nothing written before `start` is ever yielded. Above is `source.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec

from harken.errors import UserError
from harken.model import Kind
from harken.sources.graph.teams.reading import Chat, Written

OVERLAP_MS: Final = 10_000
KEPT_MS: Final = 2 * 3_600_000

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Known:
    """How far one chat was read: up to when, at which gate of the list, and which changes just before that time."""

    at: int
    gate: str = ""
    recent: Mapping[str, int] = field(default_factory=dict[str, int])  # when each message was last changed, by its id


class _Stored(msgspec.Struct):
    v: int
    start: int
    listed: int
    floor: int
    chats: dict[str, tuple[int, str, dict[str, int]]]


@dataclass(slots=True)
class Place:
    """Where the feed is."""

    start: int  # what was written up to here is older than the source
    listed: int  # up to here the list of chats was seen to its end, and everything in it was read
    floor: int  # how far every chat was read that is not named
    chats: dict[str, Known] = field(default_factory=dict[str, Known])

    @classmethod
    def beginning(cls, chats: Iterable[Chat], now: int) -> Self:
        """Return the place of now: behind the newest message that the list shows, by our clock if there is none."""
        chats = list(chats)
        newest = max((chat.last_at for chat in chats), default=0) or now
        latest = {chat.id: Known(newest, chat.gate) for chat in chats if chat.last_at > newest - OVERLAP_MS}
        return cls(newest, newest, newest, latest)

    @classmethod
    def load(cls, checkpoint: str) -> Self:
        """Return the place that a checkpoint names; raises `UserError` if it is none of ours."""
        try:
            stored = msgspec.json.decode(checkpoint, type=_Stored)
        except msgspec.MsgspecError as exc:
            raise _unreadable() from exc
        if stored.v != _VERSION:
            raise _unreadable()
        chats = {chat_id: Known(at, gate, recent) for chat_id, (at, gate, recent) in stored.chats.items()}
        return cls(stored.start, stored.listed, stored.floor, chats)

    def dump(self) -> str:
        """Return the checkpoint."""
        chats = {chat_id: (known.at, known.gate, dict(known.recent)) for chat_id, known in self.chats.items()}
        return msgspec.json.encode(_Stored(_VERSION, self.start, self.listed, self.floor, chats)).decode()

    def known(self, chat_id: str) -> Known:
        """Return how far a chat was read."""
        return self.chats.get(chat_id) or Known(self.floor)

    def is_changed(self, chat: Chat) -> bool:
        """Whether the list says that a chat has to be read."""
        known = self.chats.get(chat.id)
        if known is None:
            return chat.last_at > self.listed - OVERLAP_MS
        return known.gate != chat.gate

    def reaches_further(self, page: Iterable[Chat]) -> bool:
        """Whether the next page of the list can hold a chat with something new: they come newest first."""
        return min((chat.last_at for chat in page), default=0) > self.listed - OVERLAP_MS

    def kind_of(self, chat_id: str, written: Written) -> Kind | None:
        """Return what a message says that was read: something new, a change, or nothing."""
        known = self.known(chat_id)
        if written.created <= self.start or known.recent.get(written.id) == written.modified:
            return None
        was_read = written.id in known.recent or written.created <= known.at - OVERLAP_MS
        if written.is_deleted:
            return Kind.DELETION if was_read else None
        if written.is_edited and was_read:
            return Kind.EDIT
        # A reaction changes a message too. What was read before is known by its id, and ends there.
        return None if written.id in known.recent else Kind.MESSAGE

    def read(self, chat_id: str, gate: str, messages: Iterable[Written], *, until: int = 0) -> None:
        """Note that a chat was read, up to what was found or, if only a part was asked for, up to `until`."""
        known = self.known(chat_id)
        changes = {**known.recent, **{each.id: each.modified for each in messages}}
        at = until or max((*changes.values(), known.at))
        recent = {message_id: modified for message_id, modified in changes.items() if modified > at - OVERLAP_MS}
        self.chats[chat_id] = Known(at, gate, recent)

    def completed(self, newest: int) -> None:
        """Note that everything was read that the list had shown; forget chats that have long been quiet."""
        self.listed = max(self.listed, newest)
        quiet = self.listed - KEPT_MS
        self.floor = max(self.floor, quiet)
        self.chats = {chat_id: known for chat_id, known in self.chats.items() if known.at > quiet}


def _unreadable() -> UserError:
    return UserError("The stored position in the chats cannot be read.", "remove the source and add it again")
