"""Lanes: how often and how many at once, as Microsoft allows it for one chat, the list of chats, or one mailbox.

A lane has places. A request takes one, and the place rests after it has ended: counted from the end, because only then
it is certain that the service has counted it. Whoever came first goes first; nobody waits longer than the bound, and
whoever leaves while waiting takes nothing along. A lane that was throttled is held for everyone on it. This is about
politeness, not about retries; above is `client.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from harken.errors import Unavailable

CHAT: Final = "chat:"
CHATS: Final = "chats"
MAILBOX: Final = "mailbox"
MAX_WAIT_SECONDS: Final = 30.0
MAX_IDLE_LANES: Final = 256

_ALL_CHATS: Final = "every chat"  # no lane of its own that anybody names: every chat shares it


@dataclass(frozen=True, slots=True)
class LaneLimit:
    """So many places, each of which rests for a while after it was used."""

    places: int
    rest_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class GraphLimits:
    """What Microsoft documents: per chat, for all chats of a tenant together, for the list, and per mailbox."""

    chat: LaneLimit = LaneLimit(1, 1.0)
    all_chats: LaneLimit = LaneLimit(20, 1.0)
    chats: LaneLimit = LaneLimit(5, 1.0)
    mailbox: LaneLimit = LaneLimit(4)


@dataclass(slots=True)
class _Lane:
    limit: LaneLimit
    free: anyio.Semaphore
    ready: list[float] = field(default_factory=list)  # a heap: when each free place has rested
    held_until: float = 0.0
    users: int = 0  # who waits or works here


class RequestLanes:
    """The lanes of one signed-in account. `wait` and `monotonic` are the passing of time."""

    def __init__(
        self,
        limits: GraphLimits | None = None,
        *,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
        wait: Callable[[float], Awaitable[None]] = anyio.sleep,
        monotonic: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._limits = limits or GraphLimits()
        self._max_wait = max_wait_seconds
        self._wait = wait
        self._monotonic = monotonic
        self._lanes: dict[str, _Lane] = {}

    def __len__(self) -> int:
        """How many lanes are remembered."""
        return len(self._lanes)

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[None]:
        """Take a place on a lane (none for an empty name) for one request; raises `Unavailable` if that takes long."""
        taken: list[tuple[_Lane, float]] = []
        is_used = False
        try:
            with anyio.move_on_after(self._max_wait) as patience:
                # The chat first: whoever waits for it must not keep a place that other chats could use.
                for each in _lanes_of(name):
                    lane = self._lane(each)
                    taken.append((lane, await self._take(lane)))
            if patience.cancelled_caught:
                raise _busy(self._max_wait)
            is_used = True
            yield
        finally:
            for lane, ready in taken:
                # Also what was broken off counts: the service may have seen it.
                _give(lane, self._monotonic() + lane.limit.rest_seconds if is_used else ready)

    def hold(self, name: str, seconds: float) -> None:
        """Let nobody begin on a lane for so long."""
        if name:
            lane = self._lane(name)
            lane.held_until = max(lane.held_until, self._monotonic() + seconds)

    async def _take(self, lane: _Lane) -> float:
        """Wait for a place and return since when it is rested."""
        lane.users += 1
        is_taken = False
        try:
            self._check_wait(lane)
            await lane.free.acquire()
            ready = heapq.heappop(lane.ready)
            try:
                while (seconds := max(ready, lane.held_until) - self._monotonic()) > 0:
                    self._check_held(lane)
                    await self._wait(seconds)
                is_taken = True
            finally:
                if not is_taken:
                    _put_back(lane, ready)
        finally:
            lane.users -= 0 if is_taken else 1
        return ready

    def _check_wait(self, lane: _Lane) -> None:
        """Refuse at once what cannot have its turn in time, so that nobody waits in vain."""
        self._check_held(lane)
        ahead = lane.users - lane.limit.places
        seconds = lane.limit.rest_seconds * (ahead // lane.limit.places)
        if seconds > self._max_wait:
            raise _busy(seconds)

    def _check_held(self, lane: _Lane) -> None:
        seconds = lane.held_until - self._monotonic()
        if seconds > self._max_wait:
            raise Unavailable(
                "Microsoft asks us to wait.", "nothing is lost: it is read later", retry_after=round(seconds, 3)
            )

    def _lane(self, name: str) -> _Lane:
        lane = self._lanes.get(name)
        if lane is None:
            self._forget_idle()
            limit = self._limit(name)
            lane = _Lane(limit, anyio.Semaphore(limit.places), [0.0] * limit.places)
            self._lanes[name] = lane
        return lane

    def _limit(self, name: str) -> LaneLimit:
        if name.startswith(CHAT):
            return self._limits.chat
        known = {CHATS: self._limits.chats, MAILBOX: self._limits.mailbox, _ALL_CHATS: self._limits.all_chats}
        if name not in known:
            raise ValueError(f"no such lane: {name}")
        return known[name]

    def _forget_idle(self) -> None:
        """A person may have thousands of chats, and few of them are busy."""
        if len(self._lanes) < MAX_IDLE_LANES:
            return
        now = self._monotonic()
        self._lanes = {
            name: lane for name, lane in self._lanes.items() if lane.users or max(lane.held_until, *lane.ready) > now
        }


def _give(lane: _Lane, ready: float) -> None:
    _put_back(lane, ready)
    lane.users -= 1


def _put_back(lane: _Lane, ready: float) -> None:
    heapq.heappush(lane.ready, ready)
    lane.free.release()


def _lanes_of(name: str) -> tuple[str, ...]:
    if not name:
        return ()
    return (name, _ALL_CHATS) if name.startswith(CHAT) else (name,)


def _busy(seconds: float) -> Unavailable:
    return Unavailable(
        "Too many requests to Microsoft wait for their turn.",
        "nothing is lost: it is tried again",
        retry_after=max(round(seconds, 3), 1.0),
    )
