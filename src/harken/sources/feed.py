"""What every feed needs: how long to wait before the next try, its checkpoint as text, and how it is doing.

What a service asks for is respected, never shortened, up to a limit that keeps one strange answer from switching a
source off. Without a word from it, waits double. Chance only ever adds to what was asked, so that many who were told
the same second do not come back in the same instant. `Backoff` is for connections that are kept: one that is accepted
and dropped at once was not good. A checkpoint is a record as JSON: what is stored may be older than this code, so what
does not fit is no record. `HealthRecorder` keeps what people are told; it decides nothing.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

import anyio
import msgspec

from harken.clock import Clock
from harken.errors import NeedsPerson
from harken.memory import json_bytes
from harken.model import Draft
from harken.sources.source import Batch, SourceHealth, SourceState

FIRST_SECONDS: Final = 0.5
MAX_SECONDS: Final = 30.0
MAX_ASKED_SECONDS: Final = 900.0
MAX_ADDED_SECONDS: Final = 0.5
MAX_ASKED_BACK_SECONDS: Final = 300.0  # of a connection that the other side has ended
REFUSED_SECONDS: Final = 60.0  # between tries after the other side has refused us more than twice
REFUSALS_BEFORE_SLOW: Final = 2

_MAX_DOUBLINGS: Final = 60
_SECONDS: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")

_Record = TypeVar("_Record", bound=msgspec.Struct)

MAX_COUNTED: Final = 200  # the other side may invent channels without end
MAX_NAME: Final = 128  # as ingest cuts it: a name is the other side's word, and people are shown all of these
OTHERS: Final = "(others)"

# The first of these that a feed is in, is how the source is.
_WORST_FIRST: Final = (
    SourceState.NEEDS_PERSON,
    SourceState.RETRYING,
    SourceState.CONNECTING,
    SourceState.LISTENING,
    SourceState.SILENT,
    SourceState.STOPPED,
)


@dataclass(frozen=True, slots=True)
class FeedTiming:
    """Where the waits of a feed come from: chance, a way to wait, and a clock that is never set."""

    chance: Callable[[], float] = random.random
    wait: Callable[[float], Awaitable[None]] = anyio.sleep
    monotonic: Callable[[], float] = anyio.current_time


def doubled(first: float, failures: int, most: float) -> float:
    """Return the first wait, doubled for every failure, and at most so long."""
    return min(most, first * 2.0 ** min(max(failures, 0), _MAX_DOUBLINGS))


class Backoff:
    """Counts the tries in a row that failed and says how long to wait. `chance` returns a number from 0 up to 1."""

    def __init__(self, chance: Callable[[], float], *, most_seconds: float = MAX_SECONDS) -> None:
        self._chance = chance
        self._most = most_seconds
        self._failures = 0
        self._refusals = 0

    @property
    def needs_person(self) -> bool:
        """Whether the other side refused us so often that only a person can help."""
        return self._refusals > REFUSALS_BEFORE_SLOW

    def was_good(self) -> None:
        """Begin again at the shortest wait."""
        self._failures = 0
        self._refusals = 0

    def next_wait(self, asked: float | None = None, *, is_refused: bool = False) -> float:
        """Return the seconds to wait after one more failure; `asked` is what the other side said."""
        wait = doubled(FIRST_SECONDS, self._failures, self._most) * self._chance()
        self._failures += 1
        self._refusals = self._refusals + 1 if is_refused else 0
        if self.needs_person:
            wait += REFUSED_SECONDS
        if asked is None:
            return wait
        return max(wait, min(max(asked, FIRST_SECONDS), MAX_ASKED_BACK_SECONDS))


def asked_seconds(headers: Mapping[str, str], present: datetime, most: float = MAX_ASKED_SECONDS) -> float | None:
    """Return what `Retry-After` asks for, capped, or None. A date counts by the service's own clock if it tells it."""
    said = _header(headers, "retry-after")
    if _SECONDS.fullmatch(said):
        return min(float(said), most)
    until = http_date(said)
    if until is None:
        return None
    seconds = (until - (http_date(_header(headers, "date")) or present)).total_seconds()
    return min(max(seconds, 0.0), most)


def wait_seconds(failures: int, asked: float | None, chance: Callable[[], float]) -> float:
    """Return the seconds to wait after so many failures in a row (from 1 on). It is never nothing."""
    ceiling = doubled(FIRST_SECONDS, failures - 1, MAX_SECONDS)
    if asked is None or not math.isfinite(asked):
        return ceiling * (0.5 + chance() / 2)
    return max(min(asked, MAX_ASKED_SECONDS), FIRST_SECONDS / 2) + MAX_ADDED_SECONDS * chance()


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((value.strip() for key, value in headers.items() if key.lower() == name), "")


def http_date(text: str) -> datetime | None:
    """Return the time that a header says; None if it says none."""
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def checkpoint_of(record: msgspec.Struct) -> str:
    """Return a record as a checkpoint."""
    return json_bytes(record).decode()


def read_checkpoint(checkpoint: str, kind: type[_Record]) -> _Record | None:
    """Return the record that a checkpoint is, or None if it is none of that kind."""
    try:
        return msgspec.json.decode(checkpoint.encode("utf-8", "replace"), type=kind)
    except msgspec.MsgspecError:
        return None


class ChannelCounts:
    """How many there were of each channel: at most so many different ones, the rest together."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, channel: str) -> None:
        """Count one more."""
        shown = channel[:MAX_NAME]
        name = shown if shown in self._counts or len(self._counts) < MAX_COUNTED else OTHERS
        self._counts[name] = self._counts.get(name, 0) + 1

    def read(self) -> Mapping[str, int]:
        """Return what was counted."""
        return dict(self._counts)


class HealthRecorder:
    """The state and the counts of one feed or door."""

    def __init__(self, clock: Clock, *, state: SourceState = SourceState.CONNECTING, pace: str = "") -> None:
        self._clock = clock
        self._state = state
        self._pace = pace
        self._reason = ""
        self._server = ""
        self._since = clock.now()
        self._next_try: datetime | None = None
        self._last_message_at: datetime | None = None
        self._last_poll: datetime | None = None
        self._next_poll: datetime | None = None
        self._reconnects = 0
        self._gaps = 0
        self._too_long = 0
        self._known = 0
        self._counts = ChannelCounts()
        self._dropped = ChannelCounts()

    @property
    def state(self) -> SourceState:
        """The state it is in."""
        return self._state

    def begins(self) -> None:
        """Note that the feed is followed from now on, or is connected anew."""
        self._enter(SourceState.CONNECTING)

    def connects(self, reason: str) -> None:
        """Take note why nothing arrives yet."""
        self._enter(SourceState.CONNECTING, reason)

    def meets(self, server: str) -> None:
        """Take note of what the other side calls itself."""
        self._server = server

    def listens(self, reason: str = "", *, pace: str | None = None) -> None:
        """Take note that what is new arrives from now on; `reason` says what is not as it should be."""
        self._reconnects += self._state is SourceState.RETRYING
        self._pace = self._pace if pace is None else pace
        self._enter(SourceState.LISTENING, reason)

    def looked(self, next_seconds: float | None = None) -> None:
        """Take note of a look that succeeded, and in how many seconds the next one is due."""
        self._last_poll = self._clock.now()
        self.due_in(next_seconds)

    def due_in(self, seconds: float | None) -> None:
        """Take note of when the next look is due."""
        self._next_poll = None if seconds is None else self._clock.now() + timedelta(seconds=seconds)

    def reconnected(self) -> None:
        """Take note that it was connected again after the other side had ended it."""
        self._reconnects += 1

    def retries(self, reason: str, seconds: float, *, needs_person: bool = False) -> None:
        """Take note why nothing arrives, and when it is tried again; `needs_person` if that alone will not help."""
        state = SourceState.NEEDS_PERSON if needs_person else SourceState.RETRYING
        self._enter(state, reason, self._clock.now() + timedelta(seconds=seconds))

    def needs_person(self, error: NeedsPerson) -> None:
        """Take note what a person must do first."""
        todo = error.action or error.hint
        self._enter(SourceState.NEEDS_PERSON, f"{error.message} To do: {todo}." if todo else error.message)

    def waits_for(self, reason: str) -> None:
        """Take note what a person must do, in these words."""
        self._enter(SourceState.NEEDS_PERSON, reason)

    def is_silent(self, reason: str) -> None:
        """Take note that the other side will never push."""
        self._enter(SourceState.SILENT, reason)

    def stops(self) -> None:
        """Note that the feed is not followed any more; what was to be done, and what never comes, is still so."""
        if self._state not in (SourceState.NEEDS_PERSON, SourceState.SILENT):
            self._enter(SourceState.STOPPED)

    def lost(self) -> None:
        """Take note that it is not known what came meanwhile, such as after a checkpoint that could not be read."""
        self._gaps += 1

    def gave_up(self, count: int) -> None:
        """Note a message that was too long to read."""
        self._too_long += count

    def heard(self) -> None:
        """Take note that a message came just now."""
        self._last_message_at = self._clock.now()

    def stored(self, channels: Sequence[str], *, known: int = 0) -> None:
        """Take note of what was stored, by channel, and of how much of it had been stored before."""
        for channel in channels:
            self._counts.add(channel)
        if channels:
            self.heard()
        self._known += known

    def dropped(self, channel: str) -> None:
        """Take note of what the person does not want to hear of."""
        self._dropped.add(channel)

    def read(self) -> SourceHealth:
        """Return how it is doing now."""
        return SourceHealth(
            state=self._state,
            reason=self._reason,
            server=self._server,
            pace=self._pace,
            since=self._since,
            next_try=self._next_try,
            last_message_at=self._last_message_at,
            last_poll=self._last_poll,
            next_poll=self._next_poll,
            reconnects=self._reconnects,
            gaps=self._gaps,
            too_long=self._too_long,
            known=self._known,
            counts=self._counts.read(),
            dropped=self._dropped.read(),
        )

    def _enter(self, state: SourceState, reason: str = "", next_try: datetime | None = None) -> None:
        if state is not self._state:
            self._since = self._clock.now()
        self._state, self._reason, self._next_try, self._next_poll = state, reason, next_try, None


class RecordedFeed:
    """What feeds are alike in that keep nothing back: what was not stored is read again."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._health = HealthRecorder(clock)

    @property
    def name(self) -> str:
        """Its name, under which checkpoints are kept."""
        return self._name

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return self._health.read()

    def rest(self) -> Batch:
        """Return nothing: what was not handed over is read again."""
        return Batch()

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of what was stored of a batch."""
        self._health.stored([draft.channel for draft in drafts], known=known)


class RefusalCount:
    """Posts that a door did not take: how many, and why the last one."""

    def __init__(self) -> None:
        self.count = 0
        self.why = ""
        self.at: datetime | None = None

    def add(self, why: str, at: datetime) -> None:
        """Count one more."""
        self.count, self.why, self.at = self.count + 1, why, at


def worst_of(healths: Sequence[SourceHealth]) -> SourceHealth:
    """Return the health of a source from that of its feeds: that of the worst, with the counts of all."""
    worst = min(healths, key=lambda health: _WORST_FIRST.index(health.state))
    reasons = [health.reason for health in healths if health.state is worst.state and health.reason]
    polls = [each.last_poll for each in healths if each.last_poll]
    return SourceHealth(
        state=worst.state,
        reason=" ".join(dict.fromkeys(reasons)),
        server=worst.server,
        pace=worst.pace,
        since=worst.since,
        next_try=worst.next_try,
        last_message_at=max((each.last_message_at for each in healths if each.last_message_at), default=None),
        # The feed that nobody has looked at for longest, and the one that is looked at first.
        last_poll=min(polls) if len(polls) == len(healths) else None,
        next_poll=min((each.next_poll for each in healths if each.next_poll), default=None),
        reconnects=sum(health.reconnects for health in healths),
        gaps=sum(health.gaps for health in healths),
        too_long=sum(health.too_long for health in healths),
        known=sum(health.known for health in healths),
        counts=_summed(health.counts for health in healths),
        dropped=_summed(health.dropped for health in healths),
    )


def _summed(counted: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for counts in counted:
        for channel, count in counts.items():
            total[channel] = total.get(channel, 0) + count
    return total
