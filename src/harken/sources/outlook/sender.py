"""Answers to mails: into their conversation, with a line that says who wrote it, and once as far as that can be known.

Nothing is said about a mail that left, and it is among the sent ones only a while later. So it is looked for: before it
is sent, and for minutes after a try with an unknown result. The reference in its last line tells it from all others.
The mail that is answered decides where it goes, never the agent. Above is the outbox, below is the Graph client.
"""

from __future__ import annotations

import uuid
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import Final

from harken.clock import Clock
from harken.errors import Forbidden, HarkenError, NotFound, Uncertain, UserError
from harken.model import Message, OutgoingReply
from harken.sources.answers import closing_line, to_html
from harken.sources.http import part
from harken.sources.microsoft.client import NEXT_LINK, GraphClient
from harken.sources.microsoft.responses import OutcomeUnknown, PositionGone
from harken.sources.microsoft.sent import SentMessages
from harken.sources.outlook.mail import (
    BY_GRAPH,
    BY_MAIL,
    LANE,
    MARK_CHARS,
    SENT,
    SERVICE_ID,
    UNVERIFIED,
    WHOLE,
    address_of,
    body_of,
    closing_id,
    closing_text,
    is_answer_of,
    own_id,
    own_id_in,
    quoted,
    sender_of,
    upstream_id,
)
from harken.sources.outlook.settings import OutlookSettings
from harken.sources.payload import Json, items

MAX_CHARS: Final = 100_000
LOOK_AGAIN_SECONDS: Final = 30.0
LOOKED_FOR: Final = timedelta(minutes=5)  # after a try that may have worked, before it is sent again
MAX_PAGES: Final = 20
PAGE: Final = 10  # mails with their whole text: an answer of the service has a limit

_TOLD: Final = "id,internetMessageId,conversationId,from,sender,isDraft"


class OutlookSender:
    """Answers the mails of one account."""

    def __init__(self, settings: OutlookSettings, client: GraphClient, sent: SentMessages, clock: Clock) -> None:
        self._settings = settings
        self._client = client
        self._known = sent
        self._clock = clock

    async def send(self, reply: OutgoingReply) -> str:
        """Answer a mail; return the answer's own id, or an id of what it ends with if it cannot be seen yet."""
        # Before it leaves: it may come back before we are told its own id.
        self._known.note(closing_id(reply.key))
        sent_id = await self._send(reply)
        self._known.note(sent_id)
        return sent_id

    async def _send(self, reply: OutgoingReply) -> str:
        text = reply.body.strip()
        if reply.to.source != self._settings.name or not reply.to.conversation:
            raise Forbidden("This mail is not from this account.", "answer a mail that came from it")
        if not text:
            raise UserError("The answer is empty.", "write a text")
        if len(text) > MAX_CHARS:
            raise UserError(f"The answer is longer than {MAX_CHARS:,} characters.", "shorten it, or send a file")
        if sent := await self._sent(reply, is_tried=reply.tried_at is not None):
            return sent
        if reply.tried_at is not None and self._clock.now() - reply.tried_at < LOOKED_FOR:
            raise _uncertain()
        original = await self._original(reply.to)
        await reply.hand_over()
        try:
            await self._post(original, text, reply)
        except OutcomeUnknown as unsure:
            with suppress(HarkenError):  # it may have left, whatever goes wrong now
                if sent := await self._sent(reply, is_tried=True):
                    return sent
            raise _uncertain() from unsure
        with suppress(HarkenError):  # it has left, whatever goes wrong now
            if sent := await self._sent(reply, is_tried=True):
                return sent
        return closing_id(reply.key)

    async def _post(self, original: str, text: str, reply: OutgoingReply) -> None:
        is_agents = self._settings.is_agent
        closing = closing_line(closing_text(reply.key, is_own_account=is_agents, is_by_owner=reply.is_by_owner))
        body = {"contentType": "HTML", "content": f"{to_html(text)}\n{closing}"}
        request_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._settings.name} {reply.key}"))
        path = f"/me/messages/{part(original)}/reply"
        # A comment beside a body is refused; the body keeps its markup.
        await self._client.post(path, {"message": {"body": body}}, lane=LANE, request_id=request_id)

    async def _original(self, to: Message) -> str:
        """Return the service's id of the mail that is answered: a mail's own id is its sender's word."""
        for mail in [*await self._named(to), *await self._alike(to)]:
            is_same = mail.get("conversationId") == to.conversation
            is_theirs = address_of(mail) == to.sender.id.removeprefix(UNVERIFIED)
            identifier = mail.get("id")
            if is_same and is_theirs and mail.get("isDraft") is not True and isinstance(identifier, str):
                return identifier
        raise NotFound("The mail to answer no longer exists.", "write a new mail in Outlook")

    async def _named(self, to: Message) -> list[Json]:
        """Return the mail that the service has under the id that it told us."""
        is_bare = to.upstream_id.startswith(BY_GRAPH)
        name = to.meta.get(SERVICE_ID) or (to.upstream_id.removeprefix(BY_GRAPH) if is_bare else "")
        if not name:
            return []
        with suppress(NotFound, PositionGone, UserError):
            return [await self._client.get(f"/me/messages/{part(name)}", {"$select": _TOLD}, lane=LANE)]
        return []

    async def _alike(self, to: Message) -> list[Json]:
        """Return the mails that came with the same id and say the same: the service may call it otherwise by now."""
        own = own_id_in(to.upstream_id)
        if not own:
            return []
        params = {"$filter": f"internetMessageId eq {quoted(own)}", "$select": _TOLD, "$top": str(PAGE)}
        found = items(await self._client.get("/me/messages", params, lane=LANE))
        if not to.upstream_id.startswith(BY_MAIL):
            return found  # an earlier version stored it, and knew no more
        names = [name for mail in found if isinstance(name := mail.get("id"), str)]
        whole = {"$select": ",".join(WHOLE)}
        mails = [await self._client.get(f"/me/messages/{part(name)}", whole, lane=LANE) for name in names]
        mark = to.upstream_id[: len(BY_MAIL) + MARK_CHARS]
        trusts_from = self._settings.trust_from
        return [mail for mail in mails if upstream_id(mail, sender_of(mail, trusts_from=trusts_from)).startswith(mark)]

    async def _sent(self, reply: OutgoingReply, *, is_tried: bool) -> str:
        """Return an id of this very answer if it has left, else nothing; raises `Uncertain` if that cannot be seen."""
        params = {
            "$filter": f"conversationId eq {quoted(reply.to.conversation)}",
            "$select": "id,internetMessageId,body",
            "$top": str(PAGE),
        }
        has_more = False
        pages = self._client.pages(SENT, params, lane=LANE, most_pages=MAX_PAGES)
        async with aclosing(pages):
            async for page in pages:
                for mail in items(page):
                    if is_answer_of(reply.key, body_of(mail)):
                        return own_id(mail) or closing_id(reply.key)
                has_more = NEXT_LINK in page
        if is_tried and has_more:
            raise _uncertain()
        return ""


def _uncertain() -> Uncertain:
    return Uncertain(
        "It is not known yet whether the answer was sent.",
        "Harken looks for it, and sends it if it is not there",
        retry_after=LOOK_AGAIN_SECONDS,
    )
