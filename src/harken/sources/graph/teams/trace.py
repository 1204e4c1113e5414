"""What a chat holds of ours: an answer that an earlier try may have sent, and what stands in its place.

Both are told by the reference at their end, in what the account itself wrote. A chat can hold more than anybody wants
to read for that: then it is said that the trace is not whole, because what was not found may still be there. It reads
and changes nothing. Above is `sender.py`, below the client.
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
    place: str
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
            found = Trace(_ending_with(ours, wanted.answer), _ending_with(ours, wanted.place, wanted.but))
            if found != Trace():
                return found
            has_more = NEXT_LINK in page
    return Trace(is_whole=not has_more)


def _is_of(author: str, message: Json) -> bool:
    sender = sender_of(message)
    return sender is not None and sender.id == author and not text_of(message, "deletedDateTime")


def _ending_with(messages: Sequence[Json], mark: str, but: Collection[str] = ()) -> str:
    """Return the id of the first message that ends with a reference, or nothing."""
    wanted = words(mark)
    for message in messages if wanted else ():
        own = text_of(message, "id")
        if own not in but and words(text_of(within(message, "body"), "content")).endswith(wanted):
            return own
    return ""
