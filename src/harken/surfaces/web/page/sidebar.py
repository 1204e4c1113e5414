"""What the list of places says: which, in which order, what is bold, what is counted, in words too. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from harken.inbox.views import ChannelLine, MailboxLine, Overview
from harken.model import INBOX, LOCAL, REPLIES, Mailbox
from harken.surfaces.web.page.places import channel_href, mailbox_href
from harken.surfaces.web.page.senders import OWN_CHANNELS

MOST_SHOWN = 99
COUNTED = 100  # of a channel only the newest are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
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

    @property
    def title(self) -> str:
        """All of it in words, for whoever points at it."""
        waiting = f"{self.badge} {self.waits_for}" if self.badge else ""
        name = f"{self.label} of {self.note}" if self.note else self.label
        return ", ".join(part for part in (name, self.state, waiting, self.unread) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Some places under one name; without any, what to do first."""

    name: str
    lines: Sequence[Line] = field(default=())
    href: str = ""
    is_titled: bool = True
    empty: str = ""
    command: str = ""


def sections_of(overview: Overview) -> Sequence[Section]:
    """Return the list of places."""
    return [
        Section(name="Mailboxes", is_titled=False, lines=[_mailbox(line) for line in overview.mailboxes]),
        Section(
            name="Tasks",
            href="/tasks",
            lines=[_task(line) for line in overview.tasks],
            empty="None yet. A task is work with its own mailbox:",
            command='harken task new "Fix the login page"',
        ),
        Section(
            name="Channels",
            lines=[_channel(line) for line in overview.channels if not _is_own(line)],
            empty="Where messages come from appears here.",
        ),
        Section(name="Harken", lines=_panels()),
    ]


def mailbox_title(name: Mailbox) -> str:
    """Return what people call a mailbox."""
    return {INBOX: "Inbox", REPLIES: "Replies"}.get(name, name)


def _mailbox(line: MailboxLine) -> Line:
    return _counted(
        line,
        href=mailbox_href(line.name),
        label=mailbox_title(line.name),
        icon={INBOX: "inbox", REPLIES: "replies"}.get(line.name, "mailbox"),
    )


def _task(line: MailboxLine) -> Line:
    standing = line.task
    if standing is None:
        return _mailbox(line)
    is_here = standing.presence in ("idle", "busy", "waiting", "connected")
    state = standing.presence if is_here else standing.state.value
    return _counted(line, href=mailbox_href(line.name), label=standing.task.title, icon="task", dot=state)


def _counted(line: MailboxLine, *, href: str, label: str, icon: str, dot: str = "") -> Line:
    return Line(
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


def _channel(line: ChannelLine) -> Line:
    name = line.channel or line.source
    return Line(
        id=f"place-{line.source}/{line.channel}",
        href=channel_href(line.source, line.channel),
        label=name,
        icon="channel",
        note=line.source if line.source not in (name, LOCAL) else "",
        unread=_unread(line.unread, "+" if line.unread >= COUNTED else ""),
    )


def _is_own(line: ChannelLine) -> bool:
    """Whether a channel only says that something was said on this machine."""
    return line.source == LOCAL and line.channel in OWN_CHANNELS


def _panels() -> Sequence[Line]:
    names = (("sessions", "Sessions"), ("pulse", "Pulse"))
    return [Line(id=f"place-{icon}", href=f"/{icon}", label=label, icon=icon) for icon, label in names]


def _unread(count: int, more: str = "") -> str:
    return f"{count}{more} you have not seen" if count else ""


def _badge(count: int) -> str:
    if not count:
        return ""
    return str(count) if count <= MOST_SHOWN else f"{MOST_SHOWN}+"
