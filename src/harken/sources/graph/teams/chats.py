"""Asks Graph for the list of chats and for what changed in one of them, page by page, in its lanes.

The order that a filter needs stands beside it: without that, Graph ignores the filter silently. Both lists come newest
first and cannot come otherwise. Of a chat in which much happened a few pages are read at a time: what was read so far
is in its backlog. It remembers nothing itself; above is `polling.py`, below the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from harken.model import timestamp
from harken.sources.graph.client import NEXT_LINK, GraphClient
from harken.sources.graph.limits import CHAT, CHATS
from harken.sources.graph.teams.backlog import Backlog, Changes
from harken.sources.graph.teams.reading import Chat, items, read_chat, read_message
from harken.sources.https.address import part

PAGE: Final = 50
MOST_LIST_PAGES: Final = 100
PAGES_AT_ONCE: Final = 5  # of one chat: a page takes a second, and the other chats wait meanwhile

_LIST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "$expand": "lastMessagePreview",
        "$orderby": "lastMessagePreview/createdDateTime desc",
        "$top": str(PAGE),
    }
)


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


async def read_on(client: GraphClient, backlog: Backlog) -> Changes | None:
    """Read some more of what changed in a chat; return all of it as soon as it is there, until then nothing."""
    chat_id, reached = backlog.chat.id, backlog.oldest
    bounds = f"lastModifiedDateTime gt {stamp(backlog.after)}"
    if backlog.end:
        bounds += f" and lastModifiedDateTime lt {stamp(backlog.end)}"
    params = {"$top": str(PAGE), "$orderby": "lastModifiedDateTime desc", "$filter": bounds}
    most = PAGES_AT_ONCE << backlog.doublings
    has_more = False
    path = f"/chats/{part(chat_id)}/messages"
    async with aclosing(client.pages(path, params, lane=f"{CHAT}{chat_id}", most_pages=most)) as pages:
        async for page in pages:
            backlog.take(filter(None, map(read_message, items(page))))
            has_more = NEXT_LINK in page
    return None if has_more and backlog.leads_on(reached) else backlog.changes()


def stamp(millis: int) -> str:
    """Return a time in milliseconds as Graph reads it."""
    return timestamp(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=max(0, millis)))
