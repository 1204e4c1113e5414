"""The door: drafts of a source become messages of the store, or are shown as not stored.

Above are the daemon's source loops and the inbox; below the store. While the store is away, the drafts that a feed has
yielded wait in memory and are shown as not stored; the feed is asked for no more, and its checkpoint is not advanced. A
caller that can be told instead (`send`, a webhook) gets `Unavailable` and keeps its message, so nothing has to be held.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import anyio
import anyio.lowlevel
import anyio.to_thread

from harken.errors import Unavailable
from harken.ingest.pairing import Pairings, RefusedPairing
from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import LOCAL, PROGRAM, Draft, NewMessage, Schedule, SenderRule, Trust
from harken.store.contract import Store
from harken.store.contract.messages import AppendResult, Checkpoint
from harken.store.contract.people import Mute, PeopleStore
from harken.store.contract.tokens import TokenStore

_log = logging.getLogger("harken.ingest")

MAX_SHOWN = 200
AT_ONCE = 100
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
LARGE_CHARS = 16_000


class Intake:
    """Accepts drafts. One per daemon."""

    def __init__(self, store: Store, policies: PolicyBook, pairings: Pairings) -> None:
        self._store = store
        self._policies = policies
        self._pairings = pairings
        self._dropped_total = 0
        self._problem = ""
        self._waiting: list[Sequence[Draft]] = []

    @property
    def not_stored(self) -> Sequence[Draft]:
        """Drafts that wait in memory because the store is away, oldest first."""
        waiting = [draft for drafts in self._waiting for draft in drafts[-MAX_SHOWN:]] if self._problem else []
        return waiting[-MAX_SHOWN:]

    @property
    def dropped_total(self) -> int:
        """How many drafts their sources had to give up since the start, because they were too large."""
        return self._dropped_total

    @property
    def refused_pairings(self) -> Sequence[RefusedPairing]:
        """Who sent an open pairing code and was not admitted, the newest last."""
        return self._pairings.refused

    @property
    def problem(self) -> str:
        """Why the last draft could not be stored, empty when it could."""
        return self._problem

    async def accept(
        self, drafts: Sequence[Draft], checkpoint: Checkpoint | None = None, *, dropped: int = 0
    ) -> list[AppendResult]:
        """Store drafts; raises `Unavailable` when they could not be stored, with nothing changed."""
        try:
            appended = await self._store.messages.append(await self._prepare(drafts), checkpoint, dropped=dropped)
        except Unavailable as exc:
            self._report(exc)
            raise
        self._problem = ""
        self._dropped_total += dropped
        return appended

    async def schedule(self, draft: Draft, schedule: Schedule) -> AppendResult:
        """Store a draft that enters its mailbox later; raises `Unavailable` when that could not be done."""
        try:
            [new] = await self._prepare([draft])
            return await self._store.schedule.add(new, schedule)
        except Unavailable as exc:
            self._report(exc)
            raise

    async def accept_at_last(
        self, drafts: Sequence[Draft], checkpoint: Checkpoint | None = None, *, dropped: int = 0
    ) -> list[AppendResult]:
        """Store drafts, however long the store is away; meanwhile they are shown as not stored.

        For sources that can be held back: nothing more is taken from them before this returns.
        """
        self._waiting.append(drafts)
        try:
            while True:
                try:
                    # Shielded: it may be stored although nobody waits for that any more, and must not be stored again.
                    with anyio.CancelScope(shield=True):
                        return await self.accept(drafts, checkpoint, dropped=dropped)
                except Unavailable as exc:
                    await anyio.sleep(min(max(exc.retry_after, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS))
        finally:
            # By identity: two feeds may yield the same.
            self._waiting = [other for other in self._waiting if other is not drafts]

    async def give_up(self, source: str, count: int) -> None:
        """Record that a source had to give up drafts."""
        await self._store.events.record("dropped", {"source": source, "count": count})
        self._dropped_total += count

    async def _prepare(self, drafts: Sequence[Draft]) -> list[NewMessage]:
        """Return what may be stored, admitting a sender who gave a pairing code first."""
        ready = []
        for number, draft in enumerate(drafts, start=1):
            if number % AT_ONCE == 0:
                # A burst must not hold up whoever waits for the loop.
                await anyio.lowlevel.checkpoint()
            message = self._cleaned(draft) if len(draft.text) < LARGE_CHARS else await self._cleaned_apart(draft)
            if message.trust is Trust.UNKNOWN and (rule := self._pairings.redeem(message)):
                await self._admit(rule)
                message = await self._cleaned_apart(draft)
            ready.append(message)
        return ready

    async def _admit(self, rule: SenderRule) -> None:
        try:
            await self._store.people.set_sender(rule)
        except Unavailable:
            # The draft comes again, and its code has to be open then.
            self._pairings.settle(rule, is_stored=False)
            raise
        self._pairings.settle(rule, is_stored=True)
        await self._policies.refresh()

    def _cleaned(self, draft: Draft) -> NewMessage:
        return prepare(draft, self._policies.current())

    async def _cleaned_apart(self, draft: Draft) -> NewMessage:
        # A large text takes long enough to parse that others would notice; a short one is done before a thread began.
        return await anyio.to_thread.run_sync(self._cleaned, draft)

    def _report(self, reason: Unavailable) -> None:
        if not self._problem:
            _log.warning("nothing can be stored: %s", reason.message)
        self._problem = reason.message


class PolicyBook:
    """Holds the policy that ingest uses; `refresh` after the person decided something."""

    def __init__(self, people: PeopleStore, tokens: TokenStore, configured: IngestPolicy) -> None:
        self._people = people
        self._tokens = tokens
        self._configured = configured
        self._current = configured
        self._mutes: tuple[Mute, ...] = ()

    def current(self) -> IngestPolicy:
        """Return the policy in force."""
        return self._current

    def mutes(self, now: datetime) -> Sequence[Mute]:
        """Return the mutes in force."""
        return [mute for mute in self._mutes if mute.until is None or mute.until > now]

    async def configure(self, configured: IngestPolicy) -> None:
        """Let the configuration's part be this from now on."""
        self._configured = configured
        await self.refresh()

    async def refresh(self) -> None:
        """Read the person's decisions; they come before what the configuration says."""
        self._mutes = tuple(await self._people.mutes())
        # How far a token's sender is trusted was said when it was made; of two with one name the newer counts.
        rules = {
            each.name: SenderRule(LOCAL, f"{PROGRAM}{each.name}", each.scope.trust)
            for each in await self._tokens.list()
            if each.scope is not None and each.scope.trust is not None
        }
        self._current = replace(
            self._configured,
            decisions=tuple(await self._people.senders()),
            sender_rules=(*rules.values(), *self._configured.sender_rules),
        )
