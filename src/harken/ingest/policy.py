"""The policy in force: the configuration's part, and the person's decisions from the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from harken.ingest.prepare import IngestPolicy
from harken.store.contract import Store
from harken.store.contract.people import Mute


class PolicyBook:
    """Holds the policy that ingest uses; `refresh` after the person decided something."""

    def __init__(self, store: Store, configured: IngestPolicy) -> None:
        self._store = store
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
        self._mutes = tuple(await self._store.people.mutes())
        self._current = replace(self._configured, decisions=tuple(await self._store.people.senders()))
