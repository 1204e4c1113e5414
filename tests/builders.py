"""Values of the model for tests that care about one or two of their fields: the others are as usual."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from harken.model import (
    INBOX,
    Attention,
    Consumer,
    Message,
    MessageId,
    NewMessage,
    Sender,
    SessionKey,
    Trust,
)
from harken.sessions.session import Session

AT: Final = datetime(2026, 1, 5, 9, tzinfo=UTC)

Field: TypeAlias = Any
"""The value of a field, which the class knows the type of."""


def a_new_message(text: str = "hello", **fields: Field) -> NewMessage:
    """Return what Ann, who is known, says on Teams, as ingest hands it over."""
    usual = {"mailbox": INBOX, "source": "teams", "sender": Sender("ann")}
    return NewMessage(**{**usual, "trust": Trust.KNOWN, "attention": Attention.WAKE, **fields, "text": text})


def a_message(text: str = "hello", **fields: Field) -> Message:
    """Return what Ann, who is known, says on Teams, as it is stored."""
    usual = {"id": MessageId("m-1"), "mailbox": INBOX, "seq": 1, "received_at": AT, "source": "teams"}
    sent = {"sender": Sender("ann"), "trust": Trust.KNOWN, "attention": Attention.WAKE}
    return Message(**{**usual, **sent, **fields, "text": text})


def a_session(host: str = "claude-code", at: datetime = AT, **fields: Field) -> Session:
    """Return a session of a host that reads the inbox with the tool."""
    usual = {"key": SessionKey(f"{host}:1"), "agent": Consumer(host), "consumer": Consumer(host), "host": host}
    process = {"client": host, "cwd": "/", "pid": 1, "mailboxes": (INBOX,), "surfaces": ("tool",)}
    return Session(**{**usual, **process, "opened_at": at, "last_active": at, **fields})
