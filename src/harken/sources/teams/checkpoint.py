"""How far the chats have been read: what the checkpoint of the feed holds, and what follows from it. No I/O.

Times are the service's own, in milliseconds, so a wrong clock here loses nothing. Each chat is known up to the last
change that was read; because changes can become visible a little out of order, it is read again from a few seconds
before, and what was read there is remembered by id. Chats that are quiet for hours are forgotten: for them the `floor`
holds. Nothing written before `start` is ever yielded. A place belongs to an account. Above is `source.py`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec

from harken.errors import UserError
from harken.model import MessageKind
from harken.sources.checkpoint import checkpoint_of, read_checkpoint
from harken.sources.teams.messages import ChatMessage, TeamsChat

OVERLAP_MS: Final = 10_000
KEPT_MS: Final = 2 * 3_600_000
MOST_BACK_MS: Final = 3 * 86_400_000  # how much of what came after an old sign-in a new source begins with

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ChatCheckpoint:
    """How far one chat was read: up to when, at which gate of the list, and which changes just before that time."""

    at: int
    gate: str = ""
    recent: Mapping[str, int] = field(default_factory=dict[str, int])  # when each message was last changed, by its id


class _TeamsRecord(msgspec.Struct):
    v: int
    start: int
    listed: int
    floor: int
    chats: dict[str, tuple[int, str, dict[str, int]]]
    account: str = ""


@dataclass(slots=True)
class TeamsCheckpoint:
    """Where the feed is."""

    start: int  # what was written up to here is older than the source
    listed: int  # up to here the list of chats was seen to its end, and everything in it was read
    floor: int  # how far every chat was read that is not named
    chats: dict[str, ChatCheckpoint] = field(default_factory=dict[str, ChatCheckpoint])
    account: str = ""  # whose chats they are; empty: it was not known

    @classmethod
    def beginning(cls, chats: Iterable[TeamsChat], since: int = 0, account: str = "") -> Self:
        """Return where to begin: at the sign-in if its time is known, else behind the newest message of the list.

        Where the list shows no message either there is nothing old that could be meant: from the very beginning.
        """
        chats = list(chats)
        newest = max((chat.last_at for chat in chats), default=0)
        start = max(since, newest - MOST_BACK_MS) if since else newest
        latest = {
            chat.id: ChatCheckpoint(start, chat.gate) for chat in chats if start - OVERLAP_MS < chat.last_at <= start
        }
        return cls(start, start, start, latest, account)

    @classmethod
    def load(cls, checkpoint: str) -> Self:
        """Return the place that a checkpoint names; raises `UserError` if it is none of ours."""
        stored = read_checkpoint(checkpoint, _TeamsRecord)
        if stored is None or stored.v != _VERSION:
            raise _unreadable()
        chats = {chat_id: ChatCheckpoint(at, gate, recent) for chat_id, (at, gate, recent) in stored.chats.items()}
        return cls(stored.start, stored.listed, stored.floor, chats, stored.account)

    def dump(self) -> str:
        """Return the checkpoint."""
        chats = {chat_id: (known.at, known.gate, dict(known.recent)) for chat_id, known in self.chats.items()}
        stored = _TeamsRecord(_VERSION, self.start, self.listed, self.floor, chats, self.account)
        return checkpoint_of(stored)

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


def _unreadable() -> UserError:
    return UserError("The stored position in the chats cannot be read.", "remove the source and add it again")
