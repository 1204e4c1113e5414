"""Asks Graph for the list of chats and for what changed in one of them, page by page, in its lanes.

The order that a filter needs stands beside it: without that, Graph ignores the filter silently. Both lists come newest
first and cannot come otherwise. A chat in which more happened than anybody wants to hold at once is read in parts, the
oldest first. It remembers nothing; above is `source.py`, below the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from harken.model import timestamp
from harken.sources.graph.address import part
from harken.sources.graph.client import NEXT_LINK, GraphClient
from harken.sources.graph.limits import CHAT, CHATS
from harken.sources.graph.teams.place import OVERLAP_MS
from harken.sources.graph.teams.reading import Chat, Written, items, read_chat, read_message

PAGE: Final = 50
MOST_LIST_PAGES: Final = 100
MOST_PAGES: Final = 20
SMALLEST_PART_MS: Final = 2 * OVERLAP_MS  # more than is read again each time, so that every part leads on
MOST_PAGES_OF_SMALLEST: Final = 1_000

_LIST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "$expand": "lastMessagePreview",
        "$orderby": "lastMessagePreview/createdDateTime desc",
        "$top": str(PAGE),
    }
)


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed in a chat, the oldest change first. `until` is not 0 if only changes before that were read."""

    messages: Sequence[Written]
    until: int = 0


async def list_chats(client: GraphClient, reaches_further: Callable[[Sequence[Chat]], bool]) -> list[Chat]:
    """Return the chats with the newest messages, page after page as long as the next can hold something new."""
    found: dict[str, Chat] = {}
    async with aclosing(client.pages("/me/chats", _LIST, lane=CHATS, most_pages=MOST_LIST_PAGES)) as pages:
        async for page in pages:
            shown = [chat for chat in map(read_chat, items(page)) if chat is not None]
            # What moves up while we read is on two pages: the first had the newer state.
            found = {chat.id: chat for chat in shown} | found
            if not reaches_further(shown):
                break
    return list(found.values())


async def read_changes(client: GraphClient, chat_id: str, after: int) -> Changes:
    """Return what changed in a chat after a time in milliseconds: all of it, or its older part if it is very much."""
    before = 0
    while True:
        is_smallest = bool(before) and before - after <= SMALLEST_PART_MS
        messages, is_whole = await _read(client, chat_id, after, before, is_smallest=is_smallest)
        if is_whole or is_smallest:
            ordered = sorted(messages, key=lambda each: (each.modified, each.created, each.id))
            return Changes(ordered, until=before and before - 1)
        end = before or max(each.modified for each in messages)
        before = after + max((end - after) // 2, SMALLEST_PART_MS)


async def _read(
    client: GraphClient, chat_id: str, after: int, before: int, *, is_smallest: bool = False
) -> tuple[list[Written], bool]:
    bounds = f"lastModifiedDateTime gt {stamp(after)}"
    if before:
        bounds += f" and lastModifiedDateTime lt {stamp(before)}"
    params = {"$top": str(PAGE), "$orderby": "lastModifiedDateTime desc", "$filter": bounds}
    most = MOST_PAGES_OF_SMALLEST if is_smallest else MOST_PAGES
    found: dict[str, Written] = {}
    has_more = False
    path = f"/chats/{part(chat_id)}/messages"
    async with aclosing(client.pages(path, params, lane=f"{CHAT}{chat_id}", most_pages=most)) as pages:
        async for page in pages:
            for written in filter(None, map(read_message, items(page))):
                if written.id not in found or found[written.id].modified < written.modified:
                    found[written.id] = written
            has_more = NEXT_LINK in page
    return list(found.values()), not (has_more and found)


def stamp(millis: int) -> str:
    """Return a time in milliseconds as Graph reads it."""
    return timestamp(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=max(0, millis)))
