"""What a chat holds of ours: an answer that an earlier try may have sent, and what stands in its place.

An answer is told by the reference at its end, what stands in its place by all that it says, and both only in what the
account itself wrote. A chat can hold more than anybody wants to read for that: then it is said that the trace is not
whole, because what was not found may still be there. It reads and changes nothing. Above is `sender.py`, below the
client.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from harken.model import timestamp
from harken.sources.graph.client import NEXT_LINK, GraphClient
from harken.sources.graph.limits import CHAT
from harken.sources.graph.sent import words
from harken.sources.graph.teams.reading import items, sender_of, text_of, within
from harken.sources.graph.verdict import Json
from harken.sources.https.address import part


@dataclass(frozen=True, slots=True)
class Trace:
    """Ids of what was found. `is_whole` is false if nothing was found, and not everything was looked at."""

    answer: str = ""
    place: str = ""
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is looked for: whose, with which references, and after when it must have been written."""

    chat_id: str
    author: str
    answer: str  # its reference; empty: only the place
    places: Collection[str]  # what may stand in its place, as it was written
    after: datetime
    most_pages: int
    but: frozenset[str] = frozenset()  # ids of what stands in no place, whatever the service shows of it still


async def find_trace(client: GraphClient, wanted: Wanted) -> Trace:
    """Return what a chat holds, the newest first: an answer is newer than its place."""
    params = {
        "$top": "50",
        "$orderby": "lastModifiedDateTime desc",
        "$filter": f"lastModifiedDateTime gt {timestamp(wanted.after)}",
    }
    lane = f"{CHAT}{wanted.chat_id}"
    path = f"/chats/{part(wanted.chat_id)}/messages"
    has_more = False
    async with aclosing(client.pages(path, params, lane=lane, most_pages=wanted.most_pages)) as pages:
        async for page in pages:
            ours = [message for message in items(page) if _is_of(wanted.author, message)]
            found = Trace(_ending_with(ours, wanted.answer), _saying(ours, wanted.places, wanted.but))
            if found != Trace():
                return found
            has_more = NEXT_LINK in page
    return Trace(is_whole=not has_more)


def _is_of(author: str, message: Json) -> bool:
    sender = sender_of(message)
    return sender is not None and sender.id == author and not text_of(message, "deletedDateTime")


def _ending_with(messages: Sequence[Json], mark: str) -> str:
    """Return the id of the first message that ends with a reference, or nothing."""
    wanted = words(mark)
    return next((text_of(each, "id") for each in messages if wanted and _words_of(each).endswith(wanted)), "")


def _saying(messages: Sequence[Json], texts: Collection[str], but: Collection[str]) -> str:
    """Return the id of the first message that says one of these and nothing else, or nothing."""
    wanted = {words(text) for text in texts}
    found = (text_of(each, "id") for each in messages if _words_of(each) in wanted)
    return next((own for own in found if own not in but), "")


def _words_of(message: Json) -> str:
    return words(text_of(within(message, "body"), "content"))
