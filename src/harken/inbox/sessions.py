"""Sessions: who is connected now, through what, and who is waiting.

In memory and rebuilt from connections: after a restart the edges come back by themselves. What a session was
given is in the store; this only knows whether it is here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import PurePath
from typing import Protocol

from harken.model import INBOX, Consumer, Mailbox, Message, Reader, SessionKey
from harken.store.base import Mute


class Presence(StrEnum):
    """What a session is doing, as far as Harken can tell."""

    CONNECTED = "connected"  # here; busy or idle is not known without hooks
    WAITING = "waiting"  # in a long poll: gets a message at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A hint that something arrived: never the body."""

    message: Message
    unread: int


class Pusher(Protocol):
    """A connection that can be given a hint. It must not block: a slow one drops hints, never messages."""

    def push(self, note: Note) -> None:
        """Hand over a hint."""
        ...


@dataclass(slots=True, kw_only=True)
class Session:
    """One running conversation of an agent. Changes while it lives; only `Sessions` changes it."""

    key: SessionKey
    consumer: Consumer
    host: str
    client: str
    cwd: str
    pid: int
    mailboxes: tuple[Mailbox, ...]
    surfaces: tuple[str, ...]
    opened_at: datetime
    last_active: datetime
    connections: dict[str, Pusher] = field(default_factory=dict[str, Pusher])
    waiters: int = 0

    @property
    def presence(self) -> Presence:
        """What it is doing now."""
        return Presence.WAITING if self.waiters else Presence.CONNECTED

    @property
    def reader(self) -> Reader:
        """How it reads."""
        return Reader(consumer=self.consumer, session=self.key, mailboxes=self.mailboxes)

    def hears(self, message: Message, mutes: Collection[Mute]) -> bool:
        """Whether a message may push to this session: nothing that concerns it is muted."""
        return not is_muted(message, mutes, session=self.key, consumer=self.consumer)

    def hint(self, message: Message, unread: int) -> None:
        """Tell every connection of this session that a message arrived."""
        for pusher in tuple(self.connections.values()):
            pusher.push(Note(message=message, unread=unread))


def is_muted(message: Message, mutes: Collection[Mute], *, session: str = "", consumer: str = "") -> bool:
    """Whether a mute keeps this message from pushing, at all or to this session."""
    names = {("channel", message.channel), ("sender", message.sender.id), ("sender", message.sender.name)}
    names |= {("session", session), ("session", consumer)} if session else set()
    return any((mute.kind, mute.name) in names for mute in mutes)


def mailboxes_of(cwd: str, projects: Mapping[str, Sequence[str]]) -> tuple[Mailbox, ...]:
    """Return what a session in a folder reads: the inbox, and the mailbox of each project it is inside."""
    here = PurePath(cwd or "/")
    inside = [name for name, folders in projects.items() if any(here.is_relative_to(folder) for folder in folders)]
    return (INBOX, *(Mailbox(f"project:{name}") for name in inside))


class Sessions:
    """The registry of live sessions."""

    def __init__(self) -> None:
        self._live: dict[SessionKey, Session] = {}

    def open(self, session: Session, edge: str, pusher: Pusher) -> Session:
        """Register a connection; a second one of the same session joins it."""
        known = self._live.setdefault(session.key, session)
        known.connections[edge] = pusher
        known.last_active = max(known.last_active, session.last_active)
        return known

    def close(self, key: SessionKey, edge: str) -> bool:
        """Take a connection away; return whether the session is gone with it."""
        session = self._live.get(key)
        if session is None:
            return False
        session.connections.pop(edge, None)
        if session.connections:
            return False
        del self._live[key]
        return True

    def live(self) -> Sequence[Session]:
        """Return the live sessions, the last active first."""
        return sorted(self._live.values(), key=lambda session: session.last_active, reverse=True)

    def keys(self) -> Collection[SessionKey]:
        """Return the keys of the live sessions."""
        return tuple(self._live)

    def listeners(self, mailbox: Mailbox) -> Sequence[Session]:
        """Return the live sessions that read a mailbox."""
        return [session for session in self._live.values() if mailbox in session.mailboxes]

    def touch(self, key: SessionKey, now: datetime) -> None:
        """Note that a session did something."""
        if session := self._live.get(key):
            session.last_active = now

    def get(self, key: SessionKey) -> Session | None:
        """Return a live session."""
        return self._live.get(key)

    def last_active(self, key: SessionKey) -> float:
        """Return when a session did something last, as a number to compare; 0 for one that is not here."""
        session = self._live.get(key)
        return session.last_active.timestamp() if session else 0.0

    def waiting(self) -> Collection[SessionKey]:
        """Return the sessions that are in a long poll now."""
        return [session.key for session in self._live.values() if session.waiters]

    @contextmanager
    def in_wait(self, key: SessionKey) -> Iterator[None]:
        """Count a session as waiting while the context is open."""
        session = self._live.get(key)
        if session is None:
            yield
            return
        session.waiters += 1
        try:
            yield
        finally:
            session.waiters -= 1
