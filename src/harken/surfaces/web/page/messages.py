"""A message as the page shows it: its sender and what became of it, in words. Pure.

`sender_of` gives a name, a sign of trust that is not only a colour, and the source. A name is the sender's own choice:
for an unknown sender the id that the source vouches for is shown beside it. `ledger_of` gives one line beside the
message, and every step on demand: the best that happened to it for an agent, and what is still open for others. Times
are left as they are; the template writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from harken.display import passes_for_you
from harken.inbox.results import LedgerEntry
from harken.inbox.views import TimelineItem
from harken.ingest.sanitise import bare
from harken.model import LOCAL, OWNER_ID, REPLIES, RUN, TASK, WATCH, Attention, Delivery, DeliveryState, Message, Trust
from harken.sources.registry import kinds
from harken.sources.source import SourceReport, Speakers
from harken.surfaces.web.page.links import OWN_CHANNELS

# From the best to the worst: the first that anyone is in is what the line says.
_ORDER: Final = (
    DeliveryState.ANSWERED,
    DeliveryState.SEEN,
    DeliveryState.OFFERED,
    DeliveryState.QUEUED,
    DeliveryState.FAILED,
    DeliveryState.REFUSED,
    DeliveryState.EXPIRED,
)
_SAID: Final[Mapping[DeliveryState, str]] = MappingProxyType(
    {
        DeliveryState.ANSWERED: "answered by",
        DeliveryState.SEEN: "seen by",
        DeliveryState.OFFERED: "offered to",
        DeliveryState.QUEUED: "waiting for",
        DeliveryState.FAILED: "failed for",
        DeliveryState.REFUSED: "refused by",
        DeliveryState.EXPIRED: "expired for",
    }
)
_SURFACES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hook: tool": "between tool calls",
        "hook: prompt": "with a prompt",
        "hook: stop": "at the end of a turn",
        "inbox_pull": "it asked",
        "check_inbox": "it asked",
        "wait_for_inbound_message": "while it waited",
        "wait": "while it waited",
        "pull": "it asked",
    }
)
_WOKEN: Final = "wake: "
MAX_NAMED: Final = 2
MAX_LETTERS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStep:
    """One thing that happened, when, and how."""

    text: str
    at: datetime | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryCourse:
    """What happened for one consumer, in order."""

    consumer: str
    state: str
    steps: Sequence[LedgerStep]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """The line, what follows it, and the courses behind it."""

    state: str
    line: LedgerStep
    rest: str
    courses: Sequence[DeliveryCourse]


def ledger_of(item: TimelineItem) -> LedgerView | None:
    """Return what to show beside a message; None where only people read."""
    if not item.ledger:
        return None if item.message.mailbox == REPLIES else _UNREAD
    state = next(state for state in _ORDER if any(entry.state is state for entry in item.ledger))
    here = [entry for entry in item.ledger if entry.state is state]
    others = [entry for entry in item.ledger if entry.state is not state]
    return LedgerView(
        state=state.value,
        line=_line(here),
        rest=_rest(others),
        courses=[_course(entry) for entry in item.ledger],
    )


def surface_words(surface: str) -> str:
    """Return how a message came to a session, in a few words."""
    if surface.startswith(_WOKEN):
        return "woken for it"
    return _SURFACES.get(surface, surface)


def reader_name(consumer: str) -> str:
    """Return what people call a consumer."""
    return "you" if consumer == WATCH else consumer.removeprefix(TASK)


def _line(entries: Sequence[LedgerEntry]) -> LedgerStep:
    first = entries[0]
    delivery = first.delivery
    text = f"{_SAID[first.state]} {_names(entries)}"
    if delivery is None:
        return LedgerStep(text=text)
    match first.state:
        case DeliveryState.ANSWERED:
            return LedgerStep(text=text, at=delivery.answered_at)
        case DeliveryState.SEEN:
            return LedgerStep(text=text, at=delivery.seen_at, note=surface_words(delivery.surface))
        case DeliveryState.OFFERED:
            return LedgerStep(text=text, at=delivery.offered_at, note="not proven yet")
        case _:
            return LedgerStep(text=text, note=delivery.reason)


def _rest(others: Sequence[LedgerEntry]) -> str:
    open_for = [entry for entry in others if not entry.state.is_final]
    lost_for = [
        entry for entry in others if entry.state in (DeliveryState.FAILED, DeliveryState.REFUSED, DeliveryState.EXPIRED)
    ]
    said = [f"not yet by {_names(open_for)}"] if open_for else []
    said += [f"{entry.state.value} for {_short(reader_name(entry.consumer))}" for entry in lost_for[:MAX_NAMED]]
    return ", ".join(said)


def _names(entries: Sequence[LedgerEntry]) -> str:
    names = [_short(reader_name(entry.consumer)) for entry in entries]
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _short(name: str) -> str:
    # A program chooses its own name; the whole of it is in the courses.
    return name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…"


def _course(entry: LedgerEntry) -> DeliveryCourse:
    delivery = entry.delivery
    steps = [LedgerStep(text="waits: nobody was given it yet")] if delivery is None else _steps(delivery)
    return DeliveryCourse(consumer=reader_name(entry.consumer), state=entry.state.value, steps=steps)


def _steps(delivery: Delivery) -> list[LedgerStep]:
    steps: list[LedgerStep] = []
    if delivery.surface:
        way = surface_words(delivery.surface) + (f" on {delivery.machine}" if delivery.machine else "")
        times = f", {delivery.offers} times" if delivery.offers > 1 else ""
        steps.append(LedgerStep(text="offered", at=delivery.offered_at, note=f"{way}{times}"))
    if delivery.seen_at:
        steps.append(LedgerStep(text="seen", at=delivery.seen_at, note=f"proof: {delivery.evidence}"))
    if delivery.answered_at:
        steps.append(LedgerStep(text="answered", at=delivery.answered_at))
    if delivery.state in (DeliveryState.FAILED, DeliveryState.REFUSED, DeliveryState.EXPIRED):
        steps.append(LedgerStep(text=delivery.state.value, note=delivery.reason))
    if delivery.state is DeliveryState.OFFERED:
        steps.append(LedgerStep(text="no proof yet that it was read", note="it is offered again"))
    return steps


_UNREAD: Final = LedgerView(state="queued", line=LedgerStep(text="no agent has read here yet"), rest="", courses=())


_PUSHED: Final[Mapping[Attention, str]] = MappingProxyType(
    {
        Attention.WAKE: "pushed: wakes an idle agent",
        Attention.BOUNDARY: "pushed between two tool calls",
        Attention.PROMPT: "goes with the next prompt",
        Attention.COUNT: "not pushed: only counted",
    }
)
AGENT = "agent:"


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderView:
    """A sender. `look` is `owner`, `known` or `unknown`; `id` is shown where the name may mislead.

    `run` is the run that said it, by itself.
    """

    name: str
    id: str
    initial: str
    look: str
    is_agent: bool
    is_you: bool
    trust: str
    origin: str
    run: str = ""


def sender_of(message: Message) -> SenderView:
    """Return how to show who said a message."""
    sender = message.sender
    is_agent = sender.id.startswith((AGENT, TASK, RUN))
    is_you = sender.id == OWNER_ID and message.source == LOCAL and message.trust is Trust.OWNER
    short = sender.id.removeprefix(AGENT)
    name = sender.label.removeprefix(TASK) if is_agent else sender.label
    is_doubtful = message.trust is Trust.UNKNOWN or (passes_for_you(bare(name)) and not is_you)
    letter = next((char for char in name if char.isalnum()), "?")
    return SenderView(
        name="You" if is_you else name,
        id=sender.id if is_doubtful and sender.label not in (sender.id, short) else "",
        initial="?" if message.trust is Trust.UNKNOWN else "Y" if is_you else letter.upper(),
        look=message.trust.value,
        is_agent=is_agent,
        is_you=is_you,
        trust=_trust(message, is_agent=is_agent),
        origin=_origin(message),
        run=sender.id.removeprefix(RUN) if message.source == LOCAL and sender.id.startswith(RUN) else "",
    )


def speaker_of(message: Message, sources: Mapping[str, Speakers]) -> str:
    """Return who speaks: a person, a machine, an agent, or you."""
    view = sender_of(message)
    if view.is_you:
        return "you"
    if view.is_agent:
        return "agent"
    # What people write wakes: of a source that is configured no more that is all there is to go by.
    usual = Speakers.PEOPLE if message.attention is Attention.WAKE and message.source != LOCAL else Speakers.MACHINES
    return "person" if sources.get(message.source, usual) is Speakers.PEOPLE else "machine"


def speakers(reports: Sequence[SourceReport]) -> Mapping[str, Speakers]:
    """Return who speaks through each source."""
    known = kinds().by_name
    return {each.name: known[each.kind].speakers for each in reports if each.kind in known}


def push_words(message: Message, *, is_allowed_since: bool = False) -> str:
    """Return how far a message may push, in words."""
    if message.trust is Trust.UNKNOWN:
        return "not pushed: allowed since then" if is_allowed_since else "not pushed: unknown sender"
    return _PUSHED[message.attention]


def author_name(author: str) -> str:
    """Return what people call the author of a reply."""
    if author.startswith(RUN):
        return f"run {author.removeprefix(RUN)}"
    return "You" if author == OWNER_ID else author.removeprefix(AGENT).removeprefix(TASK)


def _trust(message: Message, *, is_agent: bool) -> str:
    if message.trust is Trust.OWNER:
        return "your own word"
    if message.trust is Trust.UNKNOWN:
        return "unknown sender"
    return ("task" if message.sender.id.startswith(TASK) else "agent") if is_agent else "known sender"


def _origin(message: Message) -> str:
    """Return source and channel, once where they are the same."""
    if message.source == LOCAL:
        return "" if message.channel in OWN_CHANNELS else message.channel
    return message.source if message.channel in ("", message.source) else f"{message.source} · {message.channel}"
