"""The bounds of the use cases: how long, how many, how much at once. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from harken.errors import UserError
from harken.ingest.lengths import MAX_SAID_CHARS
from harken.model import INBOX, Mailbox, Message

MAX_PAGE_CHARS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of the use cases, from the configuration."""

    max_wait_seconds: float = 55.0
    lease: timedelta = timedelta(minutes=15)
    new_consumer_window: timedelta = timedelta(hours=24)
    new_consumer_most: int = 10_000
    max_said_chars: int = MAX_SAID_CHARS  # in a message, a reply or a prompt
    agents_read: frozenset[Mailbox] = frozenset({INBOX})  # the inbox, and the mailbox of each project
    announcers: Collection[str] = frozenset()  # sources that only announce: what they say cannot be answered


def printable(messages: Sequence[Message]) -> Sequence[Message]:
    """Return as many of the first messages as fit into one answer."""
    return messages[: fitting([len(message.text) for message in messages])]


def fitting(sizes: Sequence[int]) -> int:
    """Return how many of the first fit into one answer: at least one."""
    characters = 0
    for index, size in enumerate(sizes):
        characters += size
        if characters > MAX_PAGE_CHARS:
            return max(1, index)
    return len(sizes)


def bounded(value: int, most: int, name: str) -> int:
    """Return what was asked for, at most so many; refuses what makes no sense."""
    if value < 1:
        raise UserError(f"{name} must be at least 1.", f"Give 1 or more; you get {most} at once at most.")
    return min(value, most)
