"""Answers to mails: into their conversation, with a line that says who wrote it, and once as far as that can be known.

Nothing is said about a mail that left, so it is looked for: before it is sent, because an earlier try may have sent it,
and after a try that got no answer. The reference in its last line tells it from all others. To whom it goes is decided
by the mail that is answered, never by the agent. Above is the outbox, below is the Graph client.
"""

from __future__ import annotations

import uuid
from contextlib import aclosing, suppress
from typing import Final

from harken.errors import HarkenError, NotFound, Refused, Unavailable, UserError
from harken.model import Message, Outgoing
from harken.sources.graph.address import part
from harken.sources.graph.client import GraphClient
from harken.sources.graph.failures import Unsure
from harken.sources.graph.markup import closing_line, to_html
from harken.sources.graph.outlook.marker import closing_text, is_answer_of
from harken.sources.graph.outlook.reading import BY_GRAPH, address_of, body_of, upstream_id
from harken.sources.graph.outlook.source import LANE, SENT, quoted
from harken.sources.graph.settings import GraphSettings
from harken.sources.graph.verdict import Json

MAX_CHARS: Final = 100_000
LOOK_AGAIN_SECONDS: Final = 30.0  # a mail that left is not among the sent ones at once
MOST_PAGES: Final = 20
PAGE: Final = 10  # mails with their whole text: an answer of the service has a limit


class OutlookSender:
    """Answers the mails of one account."""

    def __init__(self, settings: GraphSettings, client: GraphClient) -> None:
        self._settings = settings
        self._client = client

    async def send(self, reply: Outgoing) -> str:
        """Answer a mail; return the answer's own id, or nothing if it cannot be seen yet."""
        text = reply.body.strip()
        if reply.to.source != self._settings.name or not reply.to.conversation:
            raise Refused("This is no mail of this account.", "answer a mail that came from it")
        if not text:
            raise UserError("An answer says something.", "write a text")
        if len(text) > MAX_CHARS:
            raise UserError(f"The answer is longer than {MAX_CHARS:,} characters.", "shorten it, or send a file")
        if sent := await self._sent(reply):
            return sent
        original = await self._original(reply.to)
        try:
            await self._post(original, text, reply.key)
        except Unsure as unsure:
            if sent := await self._sent(reply):
                return sent
            # Among the sent mails it may be seen only later; sent again at once, it could arrive twice.
            raise Unavailable(
                "It is not known yet whether the answer left.",
                "it is looked for again, and sent if it is not there",
                retry_after=LOOK_AGAIN_SECONDS,
            ) from unsure
        with suppress(HarkenError):  # it has left, whatever goes wrong now
            return await self._sent(reply)
        return ""

    async def _post(self, original: str, text: str, key: str) -> None:
        closing = closing_line(closing_text(key, is_own_account=self._settings.is_agent))
        body = {"contentType": "HTML", "content": f"{to_html(text)}\n{closing}"}
        request_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._settings.name} {key}"))
        path = f"/me/messages/{part(original)}/reply"
        # A comment beside a body is refused; the body keeps its markup.
        await self._client.post(path, {"message": {"body": body}}, lane=LANE, request_id=request_id)

    async def _original(self, to: Message) -> str:
        """Return the service's id of the mail that is answered: its own id is the sender's word, so more must fit."""
        if to.upstream_id.startswith(BY_GRAPH):
            return to.upstream_id.removeprefix(BY_GRAPH)
        params = {
            "$filter": f"internetMessageId eq {quoted(to.upstream_id)}",
            "$select": "id,internetMessageId,conversationId,from,isDraft",
            "$top": str(PAGE),
        }
        for mail in _items(await self._client.get("/me/messages", params, lane=LANE)):
            is_same = mail.get("conversationId") == to.conversation and address_of(mail) == to.sender.id
            identifier = mail.get("id")
            if is_same and mail.get("isDraft") is not True and isinstance(identifier, str):
                return identifier
        raise NotFound("The mail that is answered is not there any more.", "write a new mail in Outlook")

    async def _sent(self, reply: Outgoing) -> str:
        """Return the own id of this very answer if it has left, else nothing."""
        params = {
            "$filter": f"conversationId eq {quoted(reply.to.conversation)}",
            "$select": "id,internetMessageId,body",
            "$top": str(PAGE),
        }
        pages = self._client.pages(SENT, params, lane=LANE, most_pages=MOST_PAGES)
        async with aclosing(pages):
            async for page in pages:
                for mail in _items(page):
                    if is_answer_of(reply.key, body_of(mail)):
                        return upstream_id(mail)
        return ""


def _items(page: Json) -> list[Json]:
    value = page.get("value")
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
