"""Says on stderr, to a person who waits, how far something long has got. Programs and pipes hear nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from time import monotonic
from typing import TypeVar

from harken.control.slow_notice import QUIET_SECONDS

Item = TypeVar("Item")
LOOK_EVERY = 64


class Progress:
    """A line on stderr that is written over, from the first second on."""

    def __init__(self) -> None:
        self._is_watched = sys.stderr.isatty()
        self._said_at = monotonic()
        self._has_spoken = False

    def say(self, text: str) -> None:
        """Say it, if it is time to."""
        if self._is_watched and monotonic() - self._said_at > QUIET_SECONDS:
            self._said_at, self._has_spoken = monotonic(), True
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        """Say how it ended, if anything was said before."""
        if self._has_spoken:
            print(f"\r\x1b[K{text}", file=sys.stderr, flush=True)


def with_progress(items: Iterator[Item], noun: str) -> Iterator[Item]:
    """Pass things on, and say now and then how many there were."""
    progress, count = Progress(), 0
    for count, item in enumerate(items, start=1):
        if count % LOOK_EVERY == 0:
            progress.say(f"{count} {noun}")
        yield item
    progress.end(f"{count} {noun}")
