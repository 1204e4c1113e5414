"""The search of the page: what was asked, what was found, and how each result is shown.

Asks `Views.search`; the words are marked by `excerpts.py` as pieces of plain text, so that a hostile message cannot
become markup. Above are the panels' routes; the template is `panels/search`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from harken.errors import UserError
from harken.inbox.views import TimelineItem
from harken.model import INBOX, REPLIES, Message, Priority, Trust
from harken.surfaces.web.page.excerpts import Piece, excerpt, marked, words_of
from harken.surfaces.web.page.places import message_href
from harken.surfaces.web.page.senders import sender_of

LONGEST: Final = 300  # characters of a field
MOST: Final = 60  # results


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to look for; empty fields do not narrow."""

    words: str = ""
    mailbox: str = ""
    channel: str = ""
    sender: str = ""

    @property
    def is_narrowed(self) -> bool:
        """Whether it looks in a part only."""
        return bool(self.mailbox or self.channel or self.sender)

    @property
    def wider(self) -> str:
        """The address of the same search over everything."""
        return "/search?" + urlencode({"q": self.words})


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A message that was found."""

    href: str
    sender: Sequence[Piece]
    text: Sequence[Piece]
    place: str
    at: datetime
    unknown_id: str  # of a sender who is not known: a name is anybody's choice
    is_unknown: bool
    is_high: bool


def asked_of(query: Mapping[str, str]) -> Asked:
    """Return what a request asks for."""
    asked = Asked(
        words=query.get("q", "").strip(),
        mailbox=query.get("mailbox", "").strip(),
        channel=query.get("channel", "").strip(),
        sender=query.get("sender", "").strip(),
    )
    if max(len(asked.words), len(asked.mailbox), len(asked.channel), len(asked.sender)) > LONGEST:
        raise UserError(f"A search has at most {LONGEST} characters.", "Use fewer words.")
    return asked


def results_of(items: Sequence[TimelineItem], words: str) -> Sequence[Result]:
    """Return what was found as the page shows it."""
    wanted = words_of(words)
    return [
        Result(
            href=message_href(item.message),
            sender=marked(sender_of(item.message).name, wanted),
            text=excerpt(_text(item), wanted),
            place=_place(item.message),
            at=item.message.received_at,
            unknown_id=item.message.sender.id if item.message.trust is Trust.UNKNOWN else "",
            is_unknown=item.message.trust is Trust.UNKNOWN,
            is_high=item.message.priority is Priority.HIGH,
        )
        for item in items
    ]


def said_of(count: int) -> str:
    """Say how much was found."""
    if count >= MOST:
        return f"The {MOST} newest messages with all of these words"
    return "1 message" if count == 1 else f"{count} messages"


def _text(item: TimelineItem) -> str:
    return "This message was deleted where it came from." if item.is_deleted else item.message.text


def _place(message: Message) -> str:
    mailbox = {INBOX: "Inbox", REPLIES: "Replies"}.get(message.mailbox, str(message.mailbox))
    return f"{mailbox} · {message.channel}" if message.channel else mailbox
