"""Who is here and how each can be reached, in the words of the page. Pure.

What can reach a session is what its host told us; that it does is another matter: only deliveries that were proven
show it. Both are put side by side here, so that people see what is only hoped for. The template is `panels/sessions`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from harken.hosts.registry import host_title, hosts
from harken.inbox.results import Omission, SurfaceRecord, TaskProgress
from harken.model import TRIAL, WATCH, Consumer, Mailbox, SessionKey
from harken.sessions.session import Presence, Session
from harken.surfaces.web.page.links import mailbox_href

PULL: Final = "tool"
HINTS: Final = frozenset({"log ping", "resource"})  # they say that something waits, never what

_WAYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hook: prompt": "with each prompt",
        "hook: tool": "between tool calls",
        "hook: stop": "at the end of a turn",
        "wake: bell": "woken by its bell",
        "wake: app server": "woken through the app server",
        "wake: peer inbox": "woken through its peer inbox",
        "wake: input file": "woken through its input file",
        PULL: "when it asks",
        "inbox_pull": "when it asks",
        "check_inbox": "when it asks",
        "wait_for_inbound_message": "while it waits",
        "log ping": "hint in the log",
        "resource": "hint on a resource",
    }
)
_PULLED: Final = frozenset({"inbox_pull", "check_inbox", "wait_for_inbound_message"})
_PRESENCES: Final[Mapping[Presence, str]] = MappingProxyType(
    {
        Presence.IDLE: "between two turns",
        Presence.BUSY: "in a turn",
        Presence.WAITING: "gets a message at once",
        Presence.CONNECTED: "here; without hooks nobody knows whether it works",
    }
)


class ProofRecord(StrEnum):
    """How sure it is that a way works."""

    PROVEN = "proven"
    OPEN = "not proven"
    UNUSED = "not used yet"
    HINT = "only a hint"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWay:
    """A surface of a session; `at` is when it was proven last, or else when something was offered through it."""

    surface: str
    label: str
    proof: ProofRecord
    at: datetime | None = None
    evidence: str = ""
    offered: int = 0
    seen: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OmissionNote:
    """What an agent was not given of a mailbox when it began; `href` leads to the newest of it."""

    mailbox: str
    reasons: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCard:
    """A live session as the page shows it."""

    key: str
    title: str
    consumer: str
    client: str
    folder: str
    pid: int
    presence: str
    explanation: str
    opened_at: datetime
    last_active: datetime
    can_wake: bool
    hindrance: str
    ways: Sequence[SessionWay]
    task: TaskProgress | None = None
    omissions: Sequence[OmissionNote] = ()
    problem: str = ""  # why it reads nothing

    @property
    def hints(self) -> Sequence[SessionWay]:
        """What only says that something waits."""
        return [way for way in self.ways if way.proof is ProofRecord.HINT]

    @property
    def proven(self) -> SessionWay | None:
        """The way that was proven last."""
        sure = [way for way in self.ways if way.proof is ProofRecord.PROVEN and way.at is not None]
        return max(sure, key=lambda way: way.at or self.opened_at, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentAgent:
    """A consumer that was reached lately and has no session here now."""

    consumer: str
    title: str
    offered: int
    seen: int
    last_at: datetime
    last_seen_at: datetime | None


def cards(
    sessions: Sequence[Session],
    records: Sequence[SurfaceRecord],
    tasks: Sequence[TaskProgress],
    omissions: Mapping[SessionKey, Mapping[Mailbox, Omission]],
) -> Sequence[SessionCard]:
    """Return the live sessions, those of trials left out."""
    standing = {item.task.mailbox: item for item in tasks}
    return [
        _card(
            session,
            records,
            next((standing[name] for name in session.mailboxes if name in standing), None),
            omissions.get(session.key, {}),
        )
        for session in sessions
        if not any(name.startswith(TRIAL) for name in session.mailboxes)
    ]


def absent(sessions: Sequence[Session], records: Sequence[SurfaceRecord]) -> Sequence[AbsentAgent]:
    """Return the agents that were reached lately and are not here, the last reached first."""
    here: Collection[Consumer] = {session.consumer for session in sessions} | {WATCH}
    gone: dict[Consumer, list[SurfaceRecord]] = {}
    for record in records:
        if record.consumer not in here:
            gone.setdefault(record.consumer, []).append(record)
    found = [
        AbsentAgent(
            consumer=consumer,
            title=host_title(consumer),
            offered=sum(record.offered for record in mine),
            seen=sum(record.seen for record in mine),
            last_at=max(record.last_offered_at for record in mine),
            last_seen_at=max((r.last_seen_at for r in mine if r.last_seen_at is not None), default=None),
        )
        for consumer, mine in gone.items()
    ]
    return sorted(found, key=lambda each: each.last_at, reverse=True)


def summary(cards: Sequence[SessionCard]) -> str:
    """Say how many sessions are here, by what they do."""
    found = [(sum(1 for card in cards if card.presence == each.value), each.value) for each in Presence]
    return ", ".join(f"{count} {word}" for count, word in found if count)


def way_label(surface: str) -> str:
    """Say how a surface reaches an agent."""
    return _WAYS.get(surface, surface)


def _card(
    session: Session,
    records: Sequence[SurfaceRecord],
    task: TaskProgress | None,
    omissions: Mapping[Mailbox, Omission],
) -> SessionCard:
    mine = [record for record in records if record.consumer == session.consumer]
    return SessionCard(
        key=session.key,
        title=host_title(session.host) if session.host in hosts() else session.client or session.agent,
        consumer=session.consumer,
        client=session.client,
        folder=session.cwd,
        pid=session.pid,
        presence=session.presence.value,
        explanation=_PRESENCES[session.presence],
        opened_at=session.opened_at,
        last_active=session.last_active,
        can_wake=session.can_be_woken,
        hindrance=session.hindrance,
        problem="" if session.problem is None else f"{session.problem.message} {session.problem.hint}",
        ways=[_way(surface, mine) for surface in session.ways],
        task=task,
        omissions=[_omission(mailbox, each) for mailbox, each in omissions.items()],
    )


def _omission(mailbox: Mailbox, omission: Omission) -> OmissionNote:
    reasons = ((omission.surplus, "too many"), (omission.older, "older"))
    return OmissionNote(
        mailbox=mailbox,
        reasons=", ".join(f"{count} {reason}" for count, reason in reasons if count),
        href=f"{mailbox_href(mailbox)}?at={omission.up_to}",
    )


def _way(surface: str, records: Sequence[SurfaceRecord]) -> SessionWay:
    names = _PULLED if surface == PULL else {surface}
    mine = [record for record in records if record.surface in names]
    seen = [record for record in mine if record.last_seen_at is not None]
    last = max(seen, key=lambda record: record.last_seen_at or record.last_offered_at, default=None)
    if surface in HINTS:
        proof, at = ProofRecord.HINT, None
    elif last is not None:
        proof, at = ProofRecord.PROVEN, last.last_seen_at
    elif mine:
        proof, at = ProofRecord.OPEN, max(record.last_offered_at for record in mine)
    else:
        proof, at = ProofRecord.UNUSED, None
    return SessionWay(
        surface=surface,
        label=way_label(surface),
        proof=proof,
        at=at,
        evidence=last.evidence if last is not None else "",
        offered=sum(record.offered for record in mine),
        seen=sum(record.seen for record in mine),
    )
