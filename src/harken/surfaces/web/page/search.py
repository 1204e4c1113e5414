"""The search of the page: what was asked, what was found, and how each result is shown.

Asks `Views.search`; the words are marked as pieces of plain text, so that a hostile message cannot become markup. They
are matched as the store's index does: whole words, without regard to case and accents. Above are the panels' routes;
the template is `panels/search`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from harken.errors import UserError
from harken.inbox.views import TimelineItem
from harken.model import INBOX, REPLIES, Message, Priority, Trust
from harken.surfaces.web.page.links import message_href
from harken.surfaces.web.page.messages import sender_of

LONGEST_FIELD: Final = 300  # characters of a field
MAX: Final = 60  # results


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchForm:
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
class SearchResult:
    """A message that was found."""

    href: str
    sender: Sequence[MarkedPiece]
    text: Sequence[MarkedPiece]
    place: str
    at: datetime
    unknown_id: str  # of a sender who is not known: a name is anybody's choice
    is_unknown: bool
    is_high: bool


def asked_of(query: Mapping[str, str]) -> SearchForm:
    """Return what a request asks for."""
    asked = SearchForm(
        words=query.get("q", "").strip(),
        mailbox=query.get("mailbox", "").strip(),
        channel=query.get("channel", "").strip(),
        sender=query.get("sender", "").strip(),
    )
    if max(len(asked.words), len(asked.mailbox), len(asked.channel), len(asked.sender)) > LONGEST_FIELD:
        raise UserError(f"A search has at most {LONGEST_FIELD} characters.", "Use fewer words.")
    return asked


def results_of(items: Sequence[TimelineItem], words: str) -> Sequence[SearchResult]:
    """Return what was found as the page shows it."""
    wanted = words_of(words)
    return [
        SearchResult(
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
    if count >= MAX:
        return f"The {MAX} newest messages with all of these words"
    return "1 message" if count == 1 else f"{count} messages"


def _text(item: TimelineItem) -> str:
    return "This message was deleted where it came from." if item.is_deleted else item.message.text


def _place(message: Message) -> str:
    mailbox = {INBOX: "Inbox", REPLIES: "Replies"}.get(message.mailbox, str(message.mailbox))
    return f"{mailbox} · {message.channel}" if message.channel else mailbox


AROUND: Final = 56  # characters shown before the first match
LONGEST_EXCERPT: Final = 320  # characters of an excerpt
SEARCHED: Final = 20_000  # characters of a text that are looked at for a place to show
MAX_WORDS: Final = 32
ELLIPSIS: Final = "…"
_WORD: Final = re.compile(r"[^\W_]+")  # as the index cuts words
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class MarkedPiece:
    """A part of a text, and whether it is one of the words."""

    text: str
    is_match: bool = False


def words_of(query: str) -> frozenset[str]:
    """Return the words of a search, folded as `folded` does."""
    return frozenset([folded(word) for word in _WORD.findall(query)][:MAX_WORDS])


def folded(word: str) -> str:
    """Return a word without case and accents."""
    plain = (char for char in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(char))
    return "".join(plain)


def excerpt(text: str, words: Collection[str]) -> Sequence[MarkedPiece]:
    """Return the part of a text around the first match, on one line, in pieces; cut ends have an ellipsis."""
    line = _SPACE.sub(" ", text[:SEARCHED]).strip()
    first = next((found.start() for found in _WORD.finditer(line) if folded(found[0]) in words), 0)
    start = _word_start(line, max(0, first - AROUND))
    end = min(len(line), start + LONGEST_EXCERPT)
    pieces = marked(line[start:end], words)
    before = [MarkedPiece(ELLIPSIS)] if start else []
    after = [MarkedPiece(ELLIPSIS)] if end < len(line) or len(text) > SEARCHED else []
    return [*before, *pieces, *after]


def marked(text: str, words: Collection[str]) -> Sequence[MarkedPiece]:
    """Return a text in pieces, the words among them marked. Joined, the pieces are the text."""
    pieces: list[MarkedPiece] = []
    done = 0
    for found in _WORD.finditer(text):
        if folded(found[0]) in words:
            if found.start() > done:
                pieces.append(MarkedPiece(text[done : found.start()]))
            pieces.append(MarkedPiece(found[0], is_match=True))
            done = found.end()
    if done < len(text):
        pieces.append(MarkedPiece(text[done:]))
    return pieces


def _word_start(line: str, place: int) -> int:
    """Return where the next word begins, unless that is far: a text without spaces is cut anywhere."""
    if place == 0:
        return 0
    space = line.find(" ", place, place + AROUND // 3)
    return place if space < 0 else space + 1
