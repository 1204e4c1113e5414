"""Long polls: who is waiting, and which of a host's sessions gets a message first."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import anyio

from harken.inbox.sessions import Sessions
from harken.model import Consumer, Mailbox, Reader


class Bell:
    """Rings when one of some mailboxes grew. Reset before looking, so that nothing falls between."""

    def __init__(self, mailboxes: Collection[Mailbox]) -> None:
        self._mailboxes = frozenset(mailboxes)
        self._event = anyio.Event()

    def ring(self, grown: Collection[Mailbox]) -> None:
        """Ring if it concerns us."""
        if not self._mailboxes.isdisjoint(grown):
            self._event.set()

    def reset(self) -> None:
        """Be ready for the next ring."""
        if self._event.is_set():
            self._event = anyio.Event()

    async def wait(self) -> None:
        """Wait for a ring since the last reset."""
        await self._event.wait()

    def ring_again(self) -> None:
        """Ring whatever grew."""
        self._event.set()


class Waits:
    """The long polls that are open now."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._open: dict[Consumer, dict[Bell, Reader]] = {}

    @contextmanager
    def enter(self, reader: Reader, bell: Bell) -> Iterator[None]:
        """Count a long poll as waiting while the context is open."""
        session = self._sessions.get(reader.session)
        if session is not None:
            session.waiters += 1
        waiting = self._open.setdefault(reader.consumer, {})
        waiting[bell] = reader
        try:
            yield
        finally:
            if session is not None:
                session.waiters -= 1
            del waiting[bell]
            # Whoever stood back for this one must look for itself now.
            for other in waiting:
                other.ring_again()
            if not waiting:
                self._open.pop(reader.consumer, None)

    def share(self, reader: Reader) -> tuple[Mailbox, ...]:
        """Return the mailboxes this reader may take from now: not those that a more recently active session waits for.

        Sessions of one host share a cursor: a message goes to the one the person used last.
        """
        mine = self._sessions.get(reader.session)
        if mine is None:
            return reader.mailboxes
        waiting = self._open.get(reader.consumer, {}).values()
        ahead = [
            other.mailboxes
            for other in waiting
            if (session := self._sessions.get(other.session)) is not None and session.last_active > mine.last_active
        ]
        return tuple(mailbox for mailbox in reader.mailboxes if not any(mailbox in names for names in ahead))
