"""Sends replies into the chats that they answer, and into no others.

A reply ends with a line that says who wrote it and holds a short reference, made from the key that stays the same each
time the reply is tried. So before anything is sent the chat is looked at: what an earlier try, or an earlier daemon,
has sent is found there, and not sent twice. Markdown becomes HTML in `markup.py`. Above is the outbox, which tries
again; below are the client and `sent.py`, which keeps the reply from being heard as the person's own word.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Final

import anyio

from harken.errors import Refused, Unavailable, UserError
from harken.model import Message, Outgoing, timestamp
from harken.sources.graph.address import part
from harken.sources.graph.client import GraphClient
from harken.sources.graph.failures import Unsure
from harken.sources.graph.limits import CHAT
from harken.sources.graph.markup import closing_line, to_html
from harken.sources.graph.sent import Sent, reference, words
from harken.sources.graph.settings import GraphSettings
from harken.sources.graph.teams.reading import items, sender_of, text_of, upstream_id, within
from harken.sources.graph.verdict import Json

MAX_BYTES: Final = 28_000
MOST_PAGES: Final = 20
LOOK_AGAIN_SECONDS: Final = 5.0

_UNDATED: Final = timedelta(hours=1)  # how far our clock may be from the service's where nothing else tells the time
_FOR_A_PERSON: Final = "Written by an AI agent on my behalf."


class TeamsSender:
    """Answers in the chats of one account."""

    def __init__(self, settings: GraphSettings, client: GraphClient, sent: Sent, me: Callable[[], str]) -> None:
        self._settings = settings
        self._client = client
        self._sent = sent
        self._me = me
        # Two at a time to one chat could change places when the first is told to wait.
        self._one_at_a_time = anyio.Lock()

    async def send(self, reply: Outgoing) -> str:
        """Send a reply once and return its upstream id; raises `Unavailable` if that is not certain yet."""
        chat_id = self._chat_of(reply.to)
        mark = reference(reply.key)
        content = self._content(reply.body, mark)
        async with self._one_at_a_time:
            found = await self._find(reply.to, chat_id, mark)
            if not found:
                found = await self._post(reply, chat_id, content, mark)
        own_id = upstream_id(chat_id, found)
        self._sent.note(own_id)
        return own_id

    def _chat_of(self, message: Message) -> str:
        if message.source != self._settings.name or not message.conversation:
            raise Refused("This message did not come from a chat of this account.", "answer it where it came from")
        return message.conversation

    def _content(self, body: str, mark: str) -> str:
        if not body.strip():
            raise UserError("The reply is empty.", "write something")
        said = mark if self._settings.is_agent else f"{_FOR_A_PERSON} {mark}"
        content = to_html(body) + closing_line(said)
        if len(content.encode()) > MAX_BYTES:
            raise UserError(
                f"The reply is too long for Teams: {len(content.encode())} bytes, {MAX_BYTES} fit.",
                "shorten it, or send it in parts",
            )
        return content

    async def _post(self, reply: Outgoing, chat_id: str, content: str, mark: str) -> str:
        body: Json = {"body": {"contentType": "html", "content": content}}
        path = f"/chats/{part(chat_id)}/messages"
        request_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"harken:{reply.key}"))
        with self._sent.pending(content):
            try:
                answer = await self._client.post(path, body, lane=f"{CHAT}{chat_id}", request_id=request_id)
                found = text_of(answer, "id")
            except Unsure:
                found = ""
            if not found:
                found = await self._find(reply.to, chat_id, mark)
            if found:
                # While it is still expected, so that there is no moment at which nobody knows it.
                self._sent.note(upstream_id(chat_id, found))
                return found
        raise Unavailable(
            "It is not certain yet whether the reply is in the chat.",
            "it is looked for, and sent again if it is not there",
            retry_after=LOOK_AGAIN_SECONDS,
        )

    async def _find(self, to: Message, chat_id: str, mark: str) -> str:
        """Return the id of the reply if it is in the chat: it can only be newer than what it answers."""
        after = to.sent_at or to.received_at - _UNDATED
        params = {
            "$top": "50",
            "$orderby": "lastModifiedDateTime desc",
            "$filter": f"lastModifiedDateTime gt {timestamp(after)}",
        }
        pages = self._client.pages(
            f"/chats/{part(chat_id)}/messages", params, lane=f"{CHAT}{chat_id}", most_pages=MOST_PAGES
        )
        async with aclosing(pages):
            async for page in pages:
                for message in items(page):
                    if self._is_it(message, mark):
                        return text_of(message, "id")
        return ""

    def _is_it(self, message: Json, mark: str) -> bool:
        sender = sender_of(message)
        if sender is None or sender.id != self._me():
            return False
        return words(text_of(within(message, "body"), "content")).endswith(words(mark))
