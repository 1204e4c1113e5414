"""Doors: where other programs post to the daemon, instead of being asked by it.

A door belongs to a source. It decides whether what was posted is genuine, makes drafts of it, and answers only after
they are stored: whoever posts may forget what got a good answer. Above is `surfaces/doors.py`, which speaks HTTP and
bounds it, and `daemon/doors.py`, which joins a door to the store; there is nothing below but the model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harken.model import Draft

Accept = Callable[[Sequence[Draft]], Awaitable[Sequence[bool]]]
"""Stores drafts durably and says of each whether it was new; raises `Unavailable` with nothing changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedRequest:
    """A request that somebody posted. `headers` have names in lower case; `body` is as it came over the wire."""

    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorAnswer:
    """What is answered. It repeats nothing of what was posted, but for what a protocol wants to hear back."""

    status: int
    body: bytes = b""
    media_type: str = "application/json"


class Door(Protocol):
    """One address that takes posts."""

    @property
    def path(self) -> str:
        """Its path, such as `/hooks/ci`."""
        ...

    @property
    def max_bytes(self) -> int:
        """How long a body may be."""
        ...

    async def take(self, posted: PostedRequest, accept: Accept) -> DoorAnswer:
        """Judge what was posted, have it stored, and answer.

        Raises `Forbidden` (not genuine), `UserError` (cannot be read) and `Unavailable` (try again); the caller turns
        them into answers that say no more than that.
        """
        ...
