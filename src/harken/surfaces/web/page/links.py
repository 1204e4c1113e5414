"""Where things are in the page: the address of a mailbox, a channel, a message. Pure."""

from __future__ import annotations

from urllib.parse import quote

from harken.model import Message

_SAFE = ":@-._~"


def mailbox_href(mailbox: str) -> str:
    """Return the address of a mailbox's timeline."""
    return f"/m/{quote(mailbox, safe=_SAFE)}"


def channel_href(source: str, channel: str) -> str:
    """Return the address of a channel's timeline."""
    return f"/c/{quote(source, safe=_SAFE)}/{quote(channel, safe=_SAFE)}"


def task_href(task: str) -> str:
    """Return the address of a task with its peers."""
    return f"/t/{quote(task, safe=_SAFE)}"


def message_href(message: Message) -> str:
    """Return the address of a message in the timeline of its mailbox."""
    return f"{mailbox_href(message.mailbox)}?at={message.seq}#{message.id}"


def message_rules_href(message: str) -> str:
    """Return the address of what rules made of a message."""
    return f"/message/{quote(message, safe=_SAFE)}/rules"
