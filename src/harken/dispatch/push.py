"""Tells connected sessions that something arrived: hints, after the commit and after the journal's line.

A hint carries no body and may be lost; the message is in the store. What may push is decided by attention and mutes.
"""

from __future__ import annotations

from collections.abc import Collection

import anyio

from harken.model import OUTBOX, Attention, Mailbox, SessionKey
from harken.sessions.registry import Sessions
from harken.store.contract import Store
from harken.store.contract.messages import Filter

BURST = 20


class Push:
    """The loop that turns growth into hints."""

    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions
        self._heads: dict[Mailbox, int] = {}

    async def run(self) -> None:
        """Hint at everything that arrives from now on, for ever."""
        grown: set[Mailbox] = set()
        served: set[SessionKey] = set()
        ring = anyio.Event()

        def wake(names: Collection[Mailbox]) -> None:
            grown.update(name for name in names if name != OUTBOX)
            # Whoever waits has the message itself in this moment, and needs no hint that would slow it down.
            served.update(self._sessions.waiting())
            ring.set()

        self._heads = {place.mailbox: place.head for place in await self._store.deliveries.consumers()}
        with self._store.changes.listen(wake):
            while True:
                ring = anyio.Event()
                mailboxes, besides = tuple(grown), frozenset(served)
                grown.clear()
                served.clear()
                for mailbox in mailboxes:
                    await self.announce(mailbox, besides)
                if not grown:
                    await ring.wait()

    async def announce(self, mailbox: Mailbox, besides: Collection[SessionKey] = ()) -> None:
        """Hint at what a mailbox received since the last time; of a burst, at its newest."""
        listeners = [each for each in self._sessions.listeners(mailbox) if each.reader.session not in besides]
        after = self._heads.pop(mailbox, None)
        if not listeners:
            return
        # Where nobody listened before, only the newest is new: who came later is not told of what came before.
        most = 1 if after is None else BURST
        fresh = await self._store.messages.page(Filter(mailbox=mailbox, after=after or 0), most, newest_first=True)
        if not fresh:
            return
        self._heads[mailbox] = fresh[0].seq
        mutes = await self._store.people.mutes()
        for listener in listeners:
            audible = [m for m in reversed(fresh) if m.attention is not Attention.COUNT and listener.hears(m, mutes)]
            if audible:
                unread = (await self._store.deliveries.unread(listener.reader)).count
                for message in audible:
                    listener.hint(message, unread)
