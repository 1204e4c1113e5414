"""What the daemon can be measured by: every family is declared here, and gathered when a client asks.

Labels are bounded: configured sources, surfaces, states and hosts, never senders, channels or mailboxes. Counters begin
with the daemon: they are told every event by the store's writer and asked in the event loop, under a lock, and
remember a bounded number of messages, to know how long each took. Gauges are read from the store and the parts now.
prometheus_client writes the text; the guard of HTTP decides who may ask.
"""

from __future__ import annotations

import math
import shutil
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import anyio.to_thread
import psutil

from harken import __version__
from harken.clock import Clock
from harken.daemon.supervisor import Health
from harken.hosts.registry import hosts
from harken.sessions.session import Session
from harken.sources.source import SourceReport, SourceState
from harken.store.contract import Store
from harken.store.contract.events import Event

if TYPE_CHECKING:  # imported on use: 12 MB that a daemon needs only where its numbers are asked for
    from prometheus_client.metrics_core import Metric


class MetricKind(StrEnum):
    """What a family's numbers are."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class FamilyInfo:
    """What is measured, declared once: its name, what kind of number it is, and what it says."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One number, with the values of its family's labels in their order."""

    value: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricHistogram:
    """What a histogram says: how many were at most each bound (and the last: above all), and their sum."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """A family with what was found."""

    family: FamilyInfo
    samples: Sequence[MetricSample] = ()
    spread: MetricHistogram | None = None


@dataclass(slots=True)
class Buckets:
    """Counts values by how large they are. Changes; `spread` is what it says now."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list[int])
    total: float = 0.0

    def __post_init__(self) -> None:
        """Begin at zero."""
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        place = next((at for at, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))
        self.counts[place] += 1
        self.total += value

    def spread(self) -> MetricHistogram:
        """Return what was counted until now."""
        return MetricHistogram(bounds=self.bounds, counts=tuple(self.counts), total=self.total)


INFO: Final = FamilyInfo(
    "harken_build_info", MetricKind.GAUGE, "Always 1; the label says which version runs.", ("version",)
)
RECEIVED: Final = FamilyInfo(
    "harken_messages_received_total",
    MetricKind.COUNTER,
    "Messages stored since the daemon started, by source.",
    ("source",),
)
DROPPED: Final = FamilyInfo(
    "harken_messages_dropped_total",
    MetricKind.COUNTER,
    "Drafts given up: too large, or too many while the store was away.",
)
NOT_STORED: Final = FamilyInfo(
    "harken_messages_not_stored", MetricKind.GAUGE, "Drafts held in memory because nothing can be stored."
)
DELIVERIES: Final = FamilyInfo(
    "harken_deliveries_total",
    MetricKind.COUNTER,
    "Deliveries that came into a state, by the surface that carried them; no surface where it is not known.",
    ("state", "surface"),
)
TO_OFFERED: Final = FamilyInfo(
    "harken_offered_seconds", MetricKind.HISTOGRAM, "From a message's receipt until it was first handed to anyone."
)
TO_SEEN: Final = FamilyInfo(
    "harken_seen_seconds",
    MetricKind.HISTOGRAM,
    "From a message's receipt until there was first proof that it was seen.",
)
EVENTS: Final = FamilyInfo(
    "harken_journal_events_total", MetricKind.COUNTER, "Events of the journal, by kind.", ("kind",)
)
OUTBOX: Final = FamilyInfo(
    "harken_outbox_replies", MetricKind.GAUGE, "Replies that wait to leave, or are parked.", ("state",)
)
QUESTIONS: Final = FamilyInfo("harken_questions_open", MetricKind.GAUGE, "Messages that wait for an answer.")
OLDEST: Final = FamilyInfo(
    "harken_questions_oldest_seconds", MetricKind.GAUGE, "How long the oldest of them waits; 0: none."
)
SESSIONS: Final = FamilyInfo(
    "harken_sessions",
    MetricKind.GAUGE,
    "Sessions of agents that are here, by host and what they do.",
    ("host", "presence"),
)
SOURCES: Final = FamilyInfo(
    "harken_sources", MetricKind.GAUGE, "Configured sources, by how they are doing.", ("state",)
)
LISTENING: Final = FamilyInfo(
    "harken_source_listening",
    MetricKind.GAUGE,
    "1 when what is announced by a source arrives, else 0.",
    ("source", "kind"),
)
RECONNECTS: Final = FamilyInfo(
    "harken_source_reconnects_total", MetricKind.COUNTER, "How often a source had to be connected again.", ("source",)
)
LOOPS: Final = FamilyInfo(
    "harken_loops", MetricKind.GAUGE, "Loops of the daemon; a parked one keeps failing.", ("state",)
)
STORE_PROBLEM: Final = FamilyInfo(
    "harken_store_problem", MetricKind.GAUGE, "1 when the last draft could not be stored, else 0."
)
JOURNAL_PROBLEM: Final = FamilyInfo(
    "harken_journal_problem", MetricKind.GAUGE, "1 while the journal's file cannot be written, else 0."
)
STORE_BYTES: Final = FamilyInfo(
    "harken_store_bytes", MetricKind.GAUGE, "Size of the database, and of its log of latest writes.", ("part",)
)
DISK_FREE: Final = FamilyInfo("harken_disk_free_bytes", MetricKind.GAUGE, "Free space on the disk of the home.")
CPU: Final = FamilyInfo(
    "process_cpu_seconds_total", MetricKind.COUNTER, "Processor time used by the daemon, in seconds."
)
MEMORY: Final = FamilyInfo("process_resident_memory_bytes", MetricKind.GAUGE, "Memory of the daemon, in bytes.")
FILES: Final = FamilyInfo("process_open_fds", MetricKind.GAUGE, "Open file descriptors of the daemon.")
STARTED: Final = FamilyInfo(
    "process_start_time_seconds", MetricKind.GAUGE, "When the daemon started, in seconds since 1970."
)

FAMILIES: Final = (
    *(INFO, RECEIVED, DROPPED, NOT_STORED, DELIVERIES, TO_OFFERED, TO_SEEN, EVENTS, OUTBOX, QUESTIONS, OLDEST),
    *(SESSIONS, SOURCES, LISTENING, RECONNECTS, LOOPS, STORE_PROBLEM, JOURNAL_PROBLEM, STORE_BYTES, DISK_FREE),
    *(CPU, MEMORY, FILES, STARTED),
)


_TOTAL: Final = "_total"  # the library knows counters without it, and writes it


@dataclass(frozen=True, slots=True)
class MetricCollector:
    """The families of one answer, as the library takes them."""

    families: Sequence[MetricFamily]

    def collect(self) -> Iterator[Metric]:
        """Return each family with its samples."""
        from prometheus_client.metrics_core import Metric

        for measured in self.families:
            info = measured.family
            name = info.name.removesuffix(_TOTAL) if info.kind is MetricKind.COUNTER else info.name
            metric = Metric(name, info.help, info.kind.value)
            for sample in measured.samples:
                labels = zip(info.labels, map(_sound, sample.labels), strict=True)
                metric.add_sample(info.name, dict(labels), sample.value)
            if measured.spread is not None:
                _add_spread(metric, measured.spread)
            yield metric


def exposition(found: Sequence[MetricFamily]) -> str:
    """Return everything that was measured in the text format of Prometheus, version 0.0.4."""
    from prometheus_client.exposition import generate_latest

    return generate_latest(MetricCollector(found)).decode()


def _add_spread(metric: Metric, spread: MetricHistogram) -> None:
    counts = list(accumulate(spread.counts))
    for bound, count in zip((*spread.bounds, math.inf), counts, strict=True):
        metric.add_sample(f"{metric.name}_bucket", {"le": "+Inf" if math.isinf(bound) else f"{bound:g}"}, count)
    metric.add_sample(f"{metric.name}_sum", {}, spread.total)
    metric.add_sample(f"{metric.name}_count", {}, counts[-1])


def _sound(label: str) -> str:
    # Half of a surrogate pair has no UTF-8, and the answer is UTF-8.
    return label.encode("utf-8", "replace").decode()


class HeldDrafts(Protocol):
    """The part of the intake that is measured."""

    @property
    def not_stored(self) -> Sequence[object]:
        """What waits in memory."""
        ...

    @property
    def dropped_total(self) -> int:
        """How many were given up."""
        ...

    @property
    def problem(self) -> str:
        """Why nothing can be stored."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Where the numbers come from."""

    store: Store
    database: Path
    clock: Clock
    counters: EventCounters
    intake: HeldDrafts
    sessions: Callable[[], Sequence[Session]]
    sources: Callable[[], Sequence[SourceReport]]
    loops: Callable[[], Collection[Health]]
    journal_problem: Callable[[], str]
    started_at: datetime

    async def text(self) -> str:
        """Return every number as Prometheus reads them."""
        found = {measured.family.name: measured for measured in await self._gathered()}
        return await anyio.to_thread.run_sync(exposition, [found[family.name] for family in FAMILIES])

    async def _gathered(self) -> list[MetricFamily]:
        outbox = await self.store.outbox.counts()
        return [
            *_counted(self.counters.counts()),
            *await self._questions(),
            *self._parts(),
            *await anyio.to_thread.run_sync(_machine, self.database, await self.store.health.size()),
            _one(INFO, 1, __version__),
            _many(OUTBOX, ((state, count) for state, count in outbox.items())),
            _one(STARTED, self.started_at.timestamp()),
        ]

    async def _questions(self) -> list[MetricFamily]:
        counts = await self.store.questions.counts()
        oldest = min((each.oldest for each in counts), default=None)
        waited = (self.clock.now() - oldest).total_seconds() if oldest else 0.0
        return [_one(QUESTIONS, sum(each.count for each in counts)), _one(OLDEST, max(0.0, waited))]

    def _parts(self) -> list[MetricFamily]:
        sources = self.sources()
        states = Counter({state.value: 0 for state in SourceState})
        states.update(each.health.state.value for each in sources)
        here = Counter((_host(session), session.presence.value) for session in self.sessions())
        loops = self.loops()
        parked = sum(health.is_parked for health in loops)
        return [
            _one(DROPPED, self.intake.dropped_total),
            _one(NOT_STORED, len(self.intake.not_stored)),
            MetricFamily(family=SESSIONS, samples=[MetricSample(count, pair) for pair, count in sorted(here.items())]),
            _many(SOURCES, states.items()),
            MetricFamily(
                family=LISTENING,
                samples=[
                    MetricSample(each.health.state is SourceState.LISTENING, (each.name, each.kind)) for each in sources
                ],
            ),
            _many(RECONNECTS, ((each.name, each.health.reconnects) for each in sources)),
            _many(LOOPS, (("running", len(loops) - parked), ("parked", parked))),
            _one(STORE_PROBLEM, bool(self.intake.problem)),
            _one(JOURNAL_PROBLEM, bool(self.journal_problem())),
        ]


def _counted(counts: Counts) -> list[MetricFamily]:
    pairs = sorted(counts.deliveries.items())
    return [
        _many(RECEIVED, sorted(counts.received.items())),
        MetricFamily(family=DELIVERIES, samples=[MetricSample(count, pair) for pair, count in pairs]),
        _many(EVENTS, sorted(counts.events.items())),
        MetricFamily(family=TO_OFFERED, spread=counts.to_offered),
        MetricFamily(family=TO_SEEN, spread=counts.to_seen),
    ]


def _machine(database: Path, size: int) -> list[MetricFamily]:
    """Look at files and the process: off the loop, because a disk may be slow."""
    log = database.with_name(f"{database.name}-wal")  # there is none in PostgreSQL
    process = psutil.Process()
    with process.oneshot():
        times = process.cpu_times()
        return [
            _many(STORE_BYTES, (("database", size), ("log", _size(log)))),
            _one(DISK_FREE, shutil.disk_usage(database.parent).free),
            _one(CPU, times.user + times.system),
            _one(MEMORY, process.memory_info().rss),
            _one(FILES, process.num_fds() if hasattr(process, "num_fds") else 0),
        ]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _host(session: Session) -> str:
    return session.host if session.host in hosts() else OTHER


def _one(family: FamilyInfo, value: float, *labels: str) -> MetricFamily:
    return MetricFamily(family=family, samples=[MetricSample(value, labels)])


def _many(family: FamilyInfo, values: Iterable[tuple[str, float]]) -> MetricFamily:
    return MetricFamily(family=family, samples=[MetricSample(value, (label,)) for label, value in values])


MAX_REMEMBERED: Final = 10_000
MAX_LABELS: Final = 64
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
    to_offered: MetricHistogram
    to_seen: MetricHistogram


class EventCounters:
    """One per daemon."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: frozenset[str] = frozenset()
        self._received: Counter[str] = Counter()
        self._deliveries: Counter[Pair] = Counter()
        self._events: Counter[str] = Counter()
        self._to_offered = Buckets(SECONDS)
        self._to_seen = Buckets(SECONDS)
        self._unoffered: OrderedDict[str, datetime] = OrderedDict()  # message: when it was received
        self._unseen: OrderedDict[str, datetime] = OrderedDict()
        self._surfaces: OrderedDict[str, str] = OrderedDict()  # delivery: what carried it

    def name_sources(self, names: frozenset[str]) -> None:
        """Let these sources have a name of their own in what is counted from now on."""
        self._sources = names

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
    counter[key if key in counter or len(counter) < MAX_LABELS else other] += count


def _remember(memory: OrderedDict[str, T], key: str, value: T) -> None:
    memory[key] = value
    if len(memory) > MAX_REMEMBERED:
        # A plain dict looks for its first entry among all that were taken out before.
        memory.popitem(last=False)


def _time(buckets: Buckets, waiting: dict[str, datetime], message: str, at: datetime) -> None:
    if (since := waiting.pop(message, None)) is not None:
        buckets.add(max(0.0, (at - since).total_seconds()))
