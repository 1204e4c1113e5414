"""The part of the store's contract that is about what the person decided: who is trusted, what is muted or hidden."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from harken.model import (
    SenderRule,
)


@dataclass(frozen=True, slots=True)
class Mute:
    """What may not push for a while: `kind` is `session`, `channel` or `sender`. It is stored and can be pulled."""

    kind: str
    name: str
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearedChannel:
    """A channel that was cleared, and how many messages that hid."""

    source: str
    channel: str
    count: int


class PeopleStore(Protocol):
    """Decisions about senders, and mutes."""

    async def set_sender(self, rule: SenderRule) -> None:
        """Decide about a sender; the newest decision counts. Journals `access`."""
        ...

    async def forget_sender(self, source: str, sender: str) -> None:
        """Take a decision about a sender back. Idempotent. Journals `access` without a trust."""
        ...

    async def senders(self) -> list[SenderRule]:
        """Return all decisions."""
        ...

    async def set_mute(self, mute: Mute, *, is_on: bool) -> None:
        """Begin or end a mute. Idempotent. Journals `muted` or `unmuted`."""
        ...

    async def mutes(self) -> list[Mute]:
        """Return the mutes in force now."""
        ...

    async def put_away(self, keys: Collection[str], *, is_on: bool) -> None:
        """Note that the person has put entries away, or wants them back. Idempotent. Journals `put_away`."""
        ...

    async def clear_channels(self, *, source: str = "", channel: str = "") -> Sequence[ClearedChannel]:
        """Hide what the channels hold now, of a source or of a name if given, wherever channels are shown.

        The messages stay in their mailboxes, and no delivery changes. Idempotent: only channels in which something is
        hidden by this call are returned, the last active first. Journals `cleared` for each.
        """
        ...

    async def put_away_keys(self) -> frozenset[str]:
        """Return the newest 10,000 keys that were put away."""
        ...
