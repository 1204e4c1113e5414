"""What a source is: a configured inbound connection that yields drafts, feed by feed, and says how it is doing.

A source knows nothing of what becomes of its drafts: the daemon asks each feed to `follow` from the last checkpoint,
stores every batch with its checkpoint in one transaction, and only then asks for the next. So a source may lose
nothing by being stopped at any moment. Above is `daemon/feeding.py`; there is nothing below but the model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from harken.model import Attention, Draft, Trust


class SourceState(StrEnum):
    """How a source is doing."""

    CONNECTING = "connecting"
    LISTENING = "listening"  # what is announced arrives
    SILENT = "silent"  # connected, and the other side cannot push: nothing will arrive
    RETRYING = "retrying"  # the connection was lost or refused; it is tried again at `next_try`
    NEEDS_PERSON = "needs person"  # nothing will arrive before somebody acts
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """What people are told about a source. `reason` says why it is not listening, in one sentence."""

    state: SourceState
    reason: str = ""
    server: str = ""  # what the other side calls itself
    pace: str = ""  # how soon what happens there is known here, for people
    since: datetime | None = None
    next_try: datetime | None = None
    last_message_at: datetime | None = None
    last_poll: datetime | None = None  # of a source that has to look: when it last could
    next_poll: datetime | None = None
    throttled_until: datetime | None = None  # until when the other side asked to wait
    reconnects: int = 0
    gaps: int = 0  # how often something may have been missed, because the other side cannot say what it sent
    too_long: int = 0  # announcements that were given up because nobody can read as much
    known: int = 0  # announcements that were stored before: the other side sent them again
    counts: Mapping[str, int] = field(default_factory=dict[str, int])  # stored, by channel, since the daemon started
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])  # by channel, what the allow-list left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a feed yields at a time: drafts in order, and the checkpoint that follows them (None: there is none)."""

    drafts: Sequence[Draft] = ()
    checkpoint: str | None = None
    dropped: int = 0  # drafts that had to be given up before these


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """A configured source, how it is doing, and what is decided about what it yields."""

    name: str
    kind: str
    address: str
    health: SourceHealth
    trust: Trust
    attention: Attention


class Feed(Protocol):
    """One stream of a source."""

    @property
    def name(self) -> str:
        """Its name, unique in its source; checkpoints are kept under it."""
        ...

    def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield what is new after a checkpoint (empty: from now on), for ever, reconnecting by itself.

        It ends when nothing will ever come, with the reason in the source's health; it raises `NeedsPerson` when a
        person must act. One task iterates it, inside `contextlib.aclosing`, and may be cancelled at any moment; what it
        yielded before has been stored.
        """
        ...

    def rest(self) -> Batch:
        """Return what was read and not yielded, once, after `follow` was closed."""
        ...

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of what was stored of a batch, and how many of its drafts had been stored before."""
        ...


class Source(Protocol):
    """A configured inbound connection."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        ...

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        ...

    @property
    def address(self) -> str:
        """Where the other side is, without anything secret."""
        ...

    def feeds(self) -> Sequence[Feed]:
        """Return its streams."""
        ...

    def health(self) -> SourceHealth:
        """Return how it is doing now. Quick, and safe at any moment."""
        ...
