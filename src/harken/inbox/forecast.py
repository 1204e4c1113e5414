"""What will happen to a message, said truthfully when it is accepted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harken.inbox.sessions import Presence, Session, is_muted
from harken.model import Attention, Message, Trust
from harken.store.base import Mute


class Outlook(StrEnum):
    """The kinds of forecast; stable, for programs."""

    NOW = "now"
    NEXT_CALL = "next_call"
    NEXT_SESSION = "next_session"
    COUNTED = "counted"
    MUTED = "muted"
    KNOWN = "known"
    NO_READER = "no_reader"


@dataclass(frozen=True, slots=True)
class Forecast:
    """The kind, and one sentence for people."""

    outlook: Outlook
    sentence: str


def forecast(
    message: Message, sessions: Sequence[Session], mutes: Collection[Mute], *, has_readers: bool = True
) -> Forecast:
    """Say what will happen to a message, from who is here now, and whether agents read its mailbox at all."""
    if not has_readers:
        return Forecast(
            Outlook.NO_READER, f"is kept for you: no agent reads {message.mailbox}, there is no such recipient"
        )
    if is_muted(message, mutes):
        return Forecast(Outlook.MUTED, "is muted: stored, shown when somebody pulls")
    if message.attention is Attention.COUNT:
        return Forecast(Outlook.COUNTED, f"is only counted: {_why_counted(message)}")
    here = [s for s in sessions if message.mailbox in s.mailboxes and s.hears(message, mutes)]
    if waiting := [s for s in here if s.presence is Presence.WAITING]:
        return Forecast(Outlook.NOW, f"goes to {_names(waiting)} now, which is waiting for messages")
    if here:
        return Forecast(Outlook.NEXT_CALL, f"is shown to {_names(here)} with its next Harken call")
    return Forecast(Outlook.NEXT_SESSION, "waits for the next session: none is connected now")


def _why_counted(message: Message) -> str:
    if message.trust is Trust.UNKNOWN:
        return f"{message.sender.label} is not known here (harken allow {message.sender.id})"
    return "the configuration says so for such messages"


def _names(sessions: Sequence[Session]) -> str:
    return ", ".join(sorted({str(session.consumer) for session in sessions}))
