"""Says on stderr, to a person who waits, what takes so long and how far it has got. Programs and pipes hear nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final, TypeVar

from harken.display import visible

Item = TypeVar("Item")
LOOK_EVERY = 64
QUIET_SECONDS: Final = 1.0


class SlowNotice:
    """One remark about one wait, if it is a long one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began_at = monotonic()
        self._is_due = sys.stderr.isatty()

    def check(self) -> None:
        """Say it when it is time."""
        self.after(monotonic() - self._began_at)

    def after(self, seconds: float) -> None:
        """Say it if the wait has taken so many seconds that it is time."""
        if self._is_due and seconds > QUIET_SECONDS:
            self._is_due = False
            sys.stdout.flush()
            print(visible(self._text), file=sys.stderr, flush=True)


def start_notice() -> Callable[[float], None]:
    """Return what tells a person that the daemon is being started."""
    return SlowNotice("Starting the daemon …").after


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
