"""How the sources are doing, in the words of the page. Pure.

A source that does not listen says why, and what was left out or may be missing is counted: silence must not look like
peace. The template is `panels/sources`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from harken.model import Attention, Trust
from harken.sources.source import SourceReport, SourceState
from harken.surfaces.web.page.links import channel_href

MAX_CHANNELS: Final = 20

_EXPLAINED: Final[Mapping[SourceState, str]] = MappingProxyType(
    {
        SourceState.CONNECTING: "being connected for the first time",
        SourceState.LISTENING: "what it announces arrives",
        SourceState.SILENT: "connected, but it cannot push: nothing will arrive",
        SourceState.RETRYING: "not connected now, and tried again",
        SourceState.NEEDS_PERSON: "nothing will arrive before somebody acts",
        SourceState.STOPPED: "not listened to",
    }
)
# Which of the signs for sessions fits: there are no more signs than people can tell apart.
_DOTS: Final[Mapping[SourceState, str]] = MappingProxyType(
    {
        SourceState.CONNECTING: "queued",
        SourceState.LISTENING: "idle",
        SourceState.SILENT: "ended",
        SourceState.RETRYING: "busy",
        SourceState.NEEDS_PERSON: "ended",
        SourceState.STOPPED: "done",
    }
)
_TRUSTED: Final[Mapping[Trust, str]] = MappingProxyType(
    {
        Trust.OWNER: "its word counts as yours",
        Trust.KNOWN: "its messages are requests",
        Trust.UNKNOWN: "its messages are data",
    }
)
_PUSHED: Final[Mapping[Attention, str]] = MappingProxyType(
    {
        Attention.WAKE: "wake idle agents",
        Attention.BOUNDARY: "come between tool calls",
        Attention.PROMPT: "go with prompts",
        Attention.COUNT: "are only counted",
    }
)


@dataclass(frozen=True, slots=True)
class ChannelCount:
    """How many messages of a channel there were, and where they are; no place for those that were left out."""

    channel: str
    count: int
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCard:
    """A source as the page shows it. `counts` are since the daemon started, the busiest channels first."""

    name: str
    kind: str
    address: str
    server: str
    state: str
    dot: str
    explanation: str
    reason: str
    pace: str
    since: datetime | None
    next_try: datetime | None
    last_message_at: datetime | None
    last_poll: datetime | None
    next_poll: datetime | None
    throttled_until: datetime | None
    reconnects: int
    gaps: int
    too_long: int
    known: int
    counts: Sequence[ChannelCount]
    more: int  # channels that are not shown
    dropped: Sequence[ChannelCount]
    policy: str

    @property
    def dropped_total(self) -> int:
        """How many messages the allow-list left out."""
        return sum(each.count for each in self.dropped)


def cards(reports: Sequence[SourceReport]) -> Sequence[SourceCard]:
    """Return the sources in the order of the configuration."""
    return [_card(report) for report in reports]


def summary(cards: Sequence[SourceCard]) -> str:
    """Say how many sources there are, by how they are doing."""
    found = Counter(card.state for card in cards)
    return ", ".join(f"{found[state.value]} {state.value}" for state in SourceState if found[state.value])


def _card(report: SourceReport) -> SourceCard:
    health = report.health
    counts = [ChannelCount(channel, n, channel_href(report.name, channel)) for channel, n in _busiest(health.counts)]
    return SourceCard(
        name=report.name,
        kind=report.kind,
        address=report.address,
        server=health.server,
        state=health.state.value,
        dot=_DOTS[health.state],
        explanation=_EXPLAINED[health.state],
        reason=health.reason,
        pace=health.pace if health.state is SourceState.LISTENING else "",
        since=health.since,
        next_try=health.next_try,
        last_message_at=health.last_message_at,
        last_poll=health.last_poll,
        next_poll=health.next_poll,
        throttled_until=health.throttled_until,
        reconnects=health.reconnects,
        gaps=health.gaps,
        too_long=health.too_long,
        known=health.known,
        counts=counts,
        more=max(0, len(health.counts) - MAX_CHANNELS),
        dropped=[ChannelCount(channel, n) for channel, n in _busiest(health.dropped)],
        policy=f"{_TRUSTED[report.trust]} and {_PUSHED[report.attention]}",
    )


def _busiest(counts: Mapping[str, int]) -> Sequence[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_CHANNELS]
