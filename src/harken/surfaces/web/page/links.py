"""Where things are in the page: the address of a mailbox, a channel, a message. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from harken.errors import UserError
from harken.model import Message

_SAFE = ":@-._~"


def mailbox_href(mailbox: str) -> str:
    """Return the address of a mailbox's timeline."""
    return f"/m/{quote(mailbox, safe=_SAFE)}"


def channel_href(source: str, channel: str) -> str:
    """Return the address of a channel's timeline."""
    return f"/c/{quote(source, safe=_SAFE)}/{quote(channel, safe=_SAFE)}"


def conversation_href(source: str, thread: str) -> str:
    """Return the address of a conversation."""
    return f"/conversation?{urlencode({'source': source, 'thread': thread})}"


def task_href(task: str) -> str:
    """Return the address of a task with its peers."""
    return f"/t/{quote(task, safe=_SAFE)}"


def message_href(message: Message) -> str:
    """Return the address of a message in the timeline of its mailbox."""
    return f"{mailbox_href(message.mailbox)}?at={message.seq}#{message.id}"


def message_rules_href(message: str) -> str:
    """Return the address of what rules made of a message."""
    return f"/message/{quote(message, safe=_SAFE)}/rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageScope:
    """A timeline: of a mailbox, or of a channel or a conversation over all mailboxes."""

    mailbox: str = ""
    source: str = ""
    channel: str = ""
    thread: str = ""

    @property
    def href(self) -> str:
        """Its address."""
        if self.thread:
            return conversation_href(self.source, self.thread)
        return mailbox_href(self.mailbox) if self.mailbox else channel_href(self.source, self.channel)

    @property
    def query(self) -> str:
        """Itself, as the parts are asked for it."""
        fields = {"mailbox": self.mailbox, "source": self.source, "channel": self.channel, "thread": self.thread}
        return urlencode({name: value for name, value in fields.items() if value})


def place_of(fields: Mapping[str, str]) -> PageScope:
    """Return the timeline that an address or a form names."""
    place = PageScope(
        mailbox=fields.get("mailbox", ""),
        source=fields.get("source", ""),
        channel=fields.get("channel", ""),
        thread=fields.get("thread", ""),
    )
    if not place.mailbox and not place.source:
        raise UserError("Which mailbox?", "Load the page again.")
    return place


OWN_CHANNELS: Final = frozenset({"cli", "agent", "page", "task"})  # of this machine: they say nothing new
