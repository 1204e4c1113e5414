"""Tasks as the page shows them: as cards, and one with its peers side by side. Pure.

Takes the inbox's `TaskProgress`; knows neither requests nor templates. Above are the panels' routes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from harken.inbox.results import TaskProgress
from harken.inbox.views import TimelineItem
from harken.model import Mailbox, TaskId, TaskState
from harken.surfaces.web.page.links import mailbox_href, task_href
from harken.surfaces.web.page.markdown import visible

MOST_COLUMNS: Final = 6
SHOWN_MESSAGES: Final = 20
_ABSENT: Final = "gone"
_EXPLAINED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "queued": "No agent has run in it yet; its mail waits.",
        "ended": "No agent runs in it now; its mail waits for the next one.",
        "done": "It takes no more mail.",
        "idle": "Its agent is between two turns.",
        "busy": "Its agent is in a turn.",
        "waiting": "Its agent waits for messages and gets them at once.",
        "connected": "Its agent is here; whether it works is not known.",
        "running": "Its agent is here.",
    }
)
_ORDER: Final = (TaskState.RUNNING, TaskState.QUEUED, TaskState.ENDED, TaskState.DONE)


@dataclass(frozen=True, slots=True)
class PeerLink:
    """A linked task."""

    title: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """A task. `dot` is what its session does, or where the task is while none is here."""

    id: str
    title: str
    href: str
    mailbox: Mailbox
    mailbox_href: str
    folder: str
    branch: str
    agent: str
    state: str
    dot: str
    explanation: str
    pending: int
    created_at: datetime
    started_at: datetime | None
    done_at: datetime | None
    peers: Sequence[PeerLink]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskColumn:
    """A task beside its peers: its newest messages, and what would happen to the next one, also to an urgent one."""

    line: TaskLine
    items: Sequence[TimelineItem]
    since: int  # where what is shown begins; 0: with the first
    newest: int
    outlook: str
    urgent_outlook: str
    key: str  # what is sent again with it is stored once

    @property
    def can_send(self) -> bool:
        """Whether it takes mail."""
        return self.line.state != TaskState.DONE


def task_lines(standings: Sequence[TaskProgress], every: Sequence[TaskProgress]) -> Sequence[TaskLine]:
    """Return some tasks, running ones first; titles of peers are looked up in `every`."""
    titles = {each.task.id: each.task.title for each in every}
    return [task_line(each, titles) for each in sorted(standings, key=lambda each: _ORDER.index(each.state))]


def task_line(standing: TaskProgress, titles: Mapping[TaskId, str]) -> TaskLine:
    """Return a task as the page shows it."""
    task = standing.task
    dot = standing.state.value
    if standing.state is TaskState.RUNNING and standing.presence != _ABSENT:
        dot = standing.presence
    return TaskLine(
        id=task.id,
        title=task.title,
        href=task_href(task.id),
        mailbox=task.mailbox,
        mailbox_href=mailbox_href(task.mailbox),
        folder=visible(task.dir),
        branch=visible(task.branch),
        agent=task.agent,
        state=standing.state.value,
        dot=dot,
        explanation=_EXPLAINED.get(dot, ""),
        pending=standing.pending,
        created_at=task.created_at,
        started_at=task.started_at,
        done_at=task.done_at,
        peers=[PeerLink(titles.get(peer, peer), task_href(peer)) for peer in task.peers],
    )


def side_by_side(
    own: TaskProgress, every: Sequence[TaskProgress]
) -> tuple[Sequence[TaskProgress], Sequence[TaskProgress]]:
    """Return a task and its peers as far as there is room, running ones first; and the peers that are left."""
    peers = [each for each in every if each.task.id in own.task.peers]
    together = [own, *sorted(peers, key=lambda each: _ORDER.index(each.state))]
    return together[:MOST_COLUMNS], together[MOST_COLUMNS:]


def counts_of(lines: Sequence[TaskLine]) -> str:
    """Say how many tasks there are, by where they are."""
    names = {"running": "running", "queued": "not started", "ended": "without a session", "done": "done"}
    found = [(sum(1 for line in lines if line.state == state), word) for state, word in names.items()]
    return ", ".join(f"{count} {word}" for count, word in found if count)
