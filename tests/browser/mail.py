"""A working day of mail, as sources would have brought it: chats, pull requests, alerts that repeat, strangers.

It is made by a rule, so that every look at the page is at the same day. This module tests nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harken.model import INBOX, LOCAL, REPLIES, Attention, Mailbox, NewMessage, Priority, Sender, Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """Somebody who says things: through which source and channel, and how far that is trusted."""

    source: str
    channel: str
    sender: Sender
    trust: Trust = Trust.KNOWN
    attention: Attention = Attention.PROMPT
    priority: Priority = Priority.NORMAL
    mailbox: Mailbox = INBOX
    is_question: bool = False


ANNA: Final = Voice(
    source="teams",
    channel="Release planning",
    sender=Sender("anna@example.com", "Anna Berg"),
    attention=Attention.WAKE,
    is_question=True,
)
TOM: Final = Voice(
    source="teams", channel="Tom Hale", sender=Sender("tom@example.com", "Tom Hale"), attention=Attention.WAKE
)
GITHUB: Final = Voice(source="github", channel="shop/pulls", sender=Sender("octo", "octo"))
ALERTS: Final = Voice(source="alerts", channel="alerts/critical", sender=Sender("alertmanager"), priority=Priority.HIGH)
CI: Final = Voice(source=LOCAL, channel="ci", sender=Sender("ci-bot"))
AGENT: Final = Voice(source=LOCAL, channel="page", sender=Sender("agent:claude-code", "claude-code"), mailbox=REPLIES)
STRANGER: Final = Voice(
    source="mail",
    channel="INBOX",
    sender=Sender("offers@example.net", "Special Offers"),
    trust=Trust.UNKNOWN,
    attention=Attention.COUNT,
)
_TEXTS: Final[Sequence[tuple[Voice, str, str]]] = (
    (ALERTS, "disk", "[FIRING] DiskWillFillIn4Hours on db-{n:02}: /var is at 9{m} %"),
    (GITHUB, "pull/{k}", "Pull request #{k}: Retry the payment when the gateway is busy. Review requested."),
    (ANNA, "chat-release", "Can we still put the new checkout into {k}.{m}? The tests on staging look fine to me."),
    (CI, "", "build {n} of shop failed: 3 tests of checkout, `make test` in stage 2"),
    (TOM, "chat-tom", "I have pushed the branch, have a look when you find the time :)"),
    (AGENT, "", "Done. The retry is in `payment/gateway.py`, with a test for each of the three answers."),
    (STRANGER, "", "Your invoice {n} is overdue, open the attached file to avoid a fee"),
    (GITHUB, "pull/{k}", "octo commented on #{k}: this needs a migration, otherwise the old rows stay as they are"),
    (CI, "", "deploy {n} to staging is done in 4 min 12 s"),
)


def day_of_mail(count: int = 300) -> list[NewMessage]:
    """Return so many messages, the oldest first."""
    return [_message(number) for number in range(count)]


def said(voice: Voice, text: str, thread: str = "") -> NewMessage:
    """Return one message of somebody."""
    return NewMessage(
        mailbox=voice.mailbox,
        source=voice.source,
        sender=voice.sender,
        text=text,
        trust=voice.trust,
        attention=voice.attention,
        channel=voice.channel,
        conversation=thread,
        thread=thread,
        priority=voice.priority,
        is_question=voice.is_question,
    )


def _message(number: int) -> NewMessage:
    voice, thread, text = _TEXTS[number % len(_TEXTS)]
    words = {"n": number, "k": 400 + number // 27, "m": number % 9}
    return said(voice, text.format(**words), thread.format(**words))
