"""Counts what the journal records, as it happens, for the numbers that only grow.

It is told every event in the store's writing thread and is asked in the event loop; a lock is held for either. What it
remembers is bounded: the newest messages and deliveries, to know how long each took, and so many different labels. It
starts at zero with the daemon, as counters do; what there is now is asked of the store, in `metrics.py` above.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from harken.store.contract.events import Event
from harken.surfaces.web.exposition import Buckets, Spread

MOST_REMEMBERED: Final = 10_000
MOST_LABELS: Final = 64
OTHER: Final = "other"
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 3600.0)

T = TypeVar("T")

Pair = tuple[str, str]
"""A state and a surface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What was counted until now."""

    received: Mapping[str, int]  # by source
    deliveries: Mapping[Pair, int]  # by state and surface
    events: Mapping[str, int]  # by kind
    to_offered: Spread
    to_seen: Spread


class EventCounters:
    """One per daemon. `sources` are those that have a name of their own in what is counted."""

    def __init__(self, sources: Collection[str]) -> None:
        self._lock = threading.Lock()
        self._sources = sources
        self._received: Counter[str] = Counter()
        self._deliveries: Counter[Pair] = Counter()
        self._events: Counter[str] = Counter()
        self._to_offered = Buckets(SECONDS)
        self._to_seen = Buckets(SECONDS)
        self._unoffered: OrderedDict[str, datetime] = OrderedDict()  # message: when it was received
        self._unseen: OrderedDict[str, datetime] = OrderedDict()
        self._surfaces: OrderedDict[str, str] = OrderedDict()  # delivery: what carried it

    def observe(self, events: Sequence[Event]) -> None:
        """Count the events of a commit."""
        with self._lock:
            for event in events:
                _count(self._events, event.kind, OTHER)
                self._count(event)

    def counts(self) -> Counts:
        """Return what was counted."""
        with self._lock:
            return Counts(
                received=dict(self._received),
                deliveries=dict(self._deliveries),
                events=dict(self._events),
                to_offered=self._to_offered.spread(),
                to_seen=self._to_seen.spread(),
            )

    def _count(self, event: Event) -> None:
        match event.kind:
            case "received" if event.message is not None:
                source = event.message.source
                self._received[source if source in self._sources else OTHER] += 1
                _remember(self._unoffered, event.message.id, event.at)
                _remember(self._unseen, event.message.id, event.at)
            case "offered":
                surface = str(event.data.get("surface", ""))
                for delivery, message in _deliveries(event).items():
                    self._note("offered", surface)
                    _remember(self._surfaces, delivery, surface)
                    _time(self._to_offered, self._unoffered, message, event.at)
            case "seen":
                for delivery, message in _deliveries(event).items():
                    self._note("seen", self._surfaces.get(delivery, ""))
                    _time(self._to_seen, self._unseen, message, event.at)
            case "answered":
                self._note("answered", self._surfaces.pop(str(event.data.get("delivery", "")), ""))
            case "expired" | "refused":
                count = event.data.get("count", 1)
                self._note(event.kind, "", count if isinstance(count, int) else 1)

    def _note(self, state: str, surface: str, count: int = 1) -> None:
        _count(self._deliveries, (state, surface), (state, OTHER), count)


def _deliveries(event: Event) -> Mapping[str, str]:
    found = event.data.get("deliveries")
    return found if isinstance(found, dict) else {}


def _count(counter: Counter[T], key: T, other: T, count: int = 1) -> None:
    counter[key if key in counter or len(counter) < MOST_LABELS else other] += count


def _remember(memory: OrderedDict[str, T], key: str, value: T) -> None:
    memory[key] = value
    if len(memory) > MOST_REMEMBERED:
        # A plain dict looks for its first entry among all that were taken out before.
        memory.popitem(last=False)


def _time(buckets: Buckets, waiting: dict[str, datetime], message: str, at: datetime) -> None:
    if (since := waiting.pop(message, None)) is not None:
        buckets.add(max(0.0, (at - since).total_seconds()))
