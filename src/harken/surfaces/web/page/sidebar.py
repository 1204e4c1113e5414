"""What the list of places says: which, in which order, what is bold, what is counted, in words too. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from harken.inbox.automation import AutomationSummary
from harken.inbox.results import ChannelLine
from harken.inbox.views import MailboxLine, MailOverview
from harken.model import INBOX, LOCAL, REPLIES, Mailbox, TaskState
from harken.surfaces.web.page.links import OWN_CHANNELS, channel_href, mailbox_href

MAX_SHOWN = 99
MAX_TASKS = 12
WAITING = "/waiting"
LISTED = "/conversations"
NEEDS = "/needs"
VIEWS: Mapping[str, str] = MappingProxyType(
    {"open": "To do", "unread": "Unread", "for-you": "For you", "snoozed": "Snoozed", "done": "Done"}
)
COUNTED = 100  # of a channel only the newest are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class SidebarLine:
    """A place. `state`, `waits_for` and `unread` are the words for what the signs show."""

    id: str
    href: str
    label: str
    icon: str
    dot: str = ""
    note: str = ""
    badge: str = ""
    state: str = ""
    waits_for: str = ""
    unread: str = ""
    is_asking: bool = False  # the person is asked something

    @property
    def title(self) -> str:
        """All of it in words, shown when the pointer is on it."""
        waiting = f"{self.badge} {self.waits_for}" if self.badge else ""
        name = f"{self.label} of {self.note}" if self.note else self.label
        return ", ".join(part for part in (name, self.state, waiting, self.unread) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class SidebarSection:
    """Some places under one name; without any, what to do first."""

    name: str
    lines: Sequence[SidebarLine] = field(default=())
    href: str = ""
    is_titled: bool = True
    is_foot: bool = False  # it stays in sight however long the others are
    empty: str = ""
    command: str = ""


def sections_of(
    overview: MailOverview, here: str = "", summary: AutomationSummary | None = None, needs: int = 0
) -> Sequence[SidebarSection]:
    """Return the list of places; the task at `here` is always in it."""
    return [
        SidebarSection(
            name="Mailboxes",
            is_titled=False,
            lines=[_inbox(overview), _needs(needs), *(_mailbox(line) for line in overview.mailboxes)],
        ),
        SidebarSection(
            name="Tasks",
            href="/tasks",
            lines=_tasks(overview.tasks, here),
            empty="None yet. A task is work with its own mailbox:",
            command='harken task new "Fix the login page"',
        ),
        SidebarSection(
            name="Channels",
            lines=_channels([line for line in overview.channels if not _is_own(line)]),
            href="/sources",
            empty="Where messages come from appears here. To let something post, or to listen:",
            command="harken source add --help",
        ),
        SidebarSection(name="Harken", lines=_panels(summary), is_titled=False, is_foot=True),
    ]


def _inbox(overview: MailOverview) -> SidebarLine:
    """Return the place of what is to be sorted."""
    unread = sum(line.unread for line in overview.mailboxes)
    return SidebarLine(id="place-conversations", href=LISTED, label="Inbox", icon="inbox", unread=_unread(unread))


def _needs(count: int) -> SidebarLine:
    """Return the place of what needs the person."""
    return SidebarLine(
        id="place-needs",
        href=NEEDS,
        label="Needs you",
        icon="expired",
        badge=_badge(count),
        waits_for="waiting for you",
        is_asking=bool(count),
    )


def mailbox_title(name: Mailbox) -> str:
    """Return what people call a mailbox."""
    return {INBOX: "All messages", REPLIES: "Replies"}.get(name, name)


def _mailbox(line: MailboxLine) -> SidebarLine:
    return _counted(
        line,
        href=mailbox_href(line.name),
        label=mailbox_title(line.name),
        icon={INBOX: "mailbox", REPLIES: "replies"}.get(line.name, "mailbox"),
    )


def _tasks(lines: Sequence[MailboxLine], here: str) -> Sequence[SidebarLine]:
    """Return the tasks that are at work or were last spoken to, in their order; for the others one line."""
    kept = {line.name for line in sorted(lines, key=lambda line: _rank(line, here))[:MAX_TASKS]}
    left = [line for line in lines if line.name not in kept]
    shown = [_task(line) for line in lines if line.name in kept]
    if not left:
        return shown
    every = SidebarLine(
        id="place-all-tasks",
        href="/tasks",
        label=f"All {len(lines)} tasks",
        icon="task",
        badge=_badge(sum(line.waiting for line in left)),
        waits_for="waiting for the agents of those that are not listed",
        unread=_unread(sum(line.unread for line in left)),
    )
    return [*shown, every]


def _rank(line: MailboxLine, here: str) -> tuple[bool, bool, float]:
    is_running = line.task is not None and line.task.state is TaskState.RUNNING
    begun = line.task.task.created_at if line.task else None
    last = max((moment for moment in (line.last_at, begun) if moment), default=None)
    return mailbox_href(line.name) != here, not is_running, -last.timestamp() if last else 0.0


def _task(line: MailboxLine) -> SidebarLine:
    standing = line.task
    if standing is None:
        return _mailbox(line)
    is_here = standing.presence in ("idle", "busy", "waiting", "connected")
    state = standing.presence if is_here else standing.state.value
    return _counted(line, href=mailbox_href(line.name), label=standing.task.title, icon="task", dot=state)


def _counted(line: MailboxLine, *, href: str, label: str, icon: str, dot: str = "") -> SidebarLine:
    return SidebarLine(
        id=f"place-{line.name}",
        href=href,
        label=label,
        icon=icon,
        dot=dot,
        badge=_badge(line.waiting),
        state=_STATES.get(dot, ""),
        waits_for="waiting for its agent" if line.task else "waiting for an agent",
        unread=_unread(line.unread),
    )


_STATES: Mapping[str, str] = MappingProxyType(
    {
        "queued": "not started yet",
        "idle": "idle",
        "busy": "busy",
        "waiting": "waiting for messages",
        "connected": "connected",
        "ended": "its session has ended",
        "done": "done",
    }
)


def _channels(lines: Sequence[ChannelLine]) -> Sequence[SidebarLine]:
    """Return the channels; where two have one name, each says where it is."""
    names = Counter(line.channel or line.source for line in lines)
    return [_channel(line, is_alone=names[line.channel or line.source] == 1) for line in lines]


def _channel(line: ChannelLine, *, is_alone: bool) -> SidebarLine:
    name = line.channel or line.source
    where = "this machine" if line.source == LOCAL else line.source
    return SidebarLine(
        id=f"place-{line.source}/{line.channel}",
        href=channel_href(line.source, line.channel),
        label=name,
        icon="channel",
        note="" if is_alone and line.source in (name, LOCAL) else where,
        unread=_unread(line.unread, "+" if line.unread >= COUNTED else ""),
    )


def _is_own(line: ChannelLine) -> bool:
    """Whether a channel only says that something was said on this machine."""
    return line.source == LOCAL and line.channel in OWN_CHANNELS


def _panels(summary: AutomationSummary | None) -> Sequence[SidebarLine]:
    names = ("sessions", "tasks", "sources", "pulse")
    icons = {"tasks": "task"}
    return [
        *(
            SidebarLine(id=f"place-{name}", href=f"/{name}", label=name.capitalize(), icon=icons.get(name, name))
            for name in names
        ),
        SidebarLine(
            id="place-rules",
            href="/rules",
            label="Rules",
            icon="rules",
            state="paused" if summary and summary.is_paused else "",
            badge=_badge(summary.asked if summary else 0),
            waits_for="waiting for your answer",
            is_asking=bool(summary and summary.asked),
        ),
        SidebarLine(
            id="place-runs",
            href="/runs",
            label="Runs",
            icon="runs",
            badge=_badge(summary.running if summary else 0),
            waits_for="running now",
        ),
    ]


def _unread(count: int, more: str = "") -> str:
    return f"{count}{more} you have not seen" if count else ""


def _badge(count: int) -> str:
    if not count:
        return ""
    return str(count) if count <= MAX_SHOWN else f"{MAX_SHOWN}+"
