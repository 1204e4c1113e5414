"""The documented limits: requests per second of a chat, an app, a list of chats, a mailbox; and mailbox concurrency.

Time comes from the service's clock. What is over a limit gets 429 with the seconds to wait. A request that was turned
away does not count.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.graph.clock import ServiceClock
from tests.graph.wire import Refusal

CHAT_READS: Final = 1
CHAT_WRITES: Final = 1
APP_REQUESTS: Final = 20
CHAT_LISTS: Final = 5
MAILBOX_REQUESTS: Final = 10_000
MAILBOX_SECONDS: Final = 600
MAILBOX_CONCURRENCY: Final = 4
# A second on the way to the service is not exactly a second when it arrives.
_ALLOWANCE: Final = 0.05


class Limits:
    """Counts requests and says when one is too many."""

    def __init__(self, clock: ServiceClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._past: defaultdict[tuple[str, ...], deque[float]] = defaultdict(deque)
        self._open: defaultdict[str, int] = defaultdict(int)
        self.most_open = 0
        self.is_on = True
        self.states_wait = True

    def _refuse(self, code: str, message: str, seconds: float) -> Refusal:
        headers = {"Retry-After": str(max(1, math.ceil(seconds)))} if self.states_wait else {}
        return Refusal(429, code, message, headers)

    def pass_one(self, *key: str, count: int, seconds: float = 1.0) -> None:
        """Count a request, or refuse it when there were `count` in the last `seconds`."""
        if not self.is_on:
            return
        with self._lock:
            now, past = self._clock.now().timestamp(), self._past[key]
            while past and (now - past[0] > seconds - _ALLOWANCE or past[0] > now):
                past.popleft()
            if len(past) >= count:
                raise self._refuse("TooManyRequests", "Too many requests.", past[0] + seconds - now)
            past.append(now)

    def read_chat(self, chat_id: str, app: str) -> None:
        """A read of a chat's messages."""
        self.pass_one("read", chat_id, count=CHAT_READS)
        self.pass_one("reads", app, count=APP_REQUESTS)

    def write_chat(self, chat_id: str, app: str) -> None:
        """A message sent to a chat."""
        self.pass_one("write", chat_id, count=CHAT_WRITES)
        self.pass_one("writes", app, count=APP_REQUESTS)

    def list_chats(self, user: str) -> None:
        """A list of chats, or one chat without its messages."""
        self.pass_one("chats", user, count=CHAT_LISTS)

    @contextmanager
    def mailbox(self, user: str) -> Iterator[None]:
        """One of the few requests that a mailbox serves at a time."""
        self.pass_one("mailbox", user, count=MAILBOX_REQUESTS, seconds=MAILBOX_SECONDS)
        with self._lock:
            if self.is_on and self._open[user] >= MAILBOX_CONCURRENCY:
                raise self._refuse("ApplicationThrottled", "Application is over its MailboxConcurrency limit.", 1)
            self._open[user] += 1
            self.most_open = max(self.most_open, self._open[user])
        try:
            yield
        finally:
            with self._lock:
                self._open[user] -= 1
