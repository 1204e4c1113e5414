"""What a person does in the page: say something, answer, have seen. Adapters over the inbox, as the command line is.

A form that is sent twice does its work once: it carries a key. Without a script a form is answered with the timeline,
with one by a line to show.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from harken.errors import TooLong, UserError
from harken.inbox import Sent
from harken.model import REPLIES, fresh_id
from harken.surfaces.web.front import WebContext
from harken.surfaces.web.page.forms import form_of, number, once_key
from harken.surfaces.web.page.links import mailbox_href, message_href
from harken.surfaces.web.page.rendering import PageRenderer, is_part
from harken.surfaces.web.page.timelines import SEE_OTHER, place_of

CHANNEL: Final = "page"
NO_CONTENT: Final = 204


class MessageActions:
    """What a person does."""

    def __init__(self, front: WebContext, pages: PageRenderer) -> None:
        self._front = front
        self._pages = pages

    async def send(self, request: Request) -> Response:
        """Accept a message for a mailbox, or an answer to a message, and say what will happen to it."""
        form = await form_of(request)
        text = form.get("text", "").replace("\r\n", "\n")
        key = once_key(form.get("key", ""), text)
        if form.get("ref"):
            return await self._reply(request, form["ref"], text, key)
        mailbox = form.get("mailbox", "")
        if not mailbox or mailbox == REPLIES:
            raise UserError("Nothing can be sent there.", "Choose a mailbox, or a message to answer.")
        caller, inbox = self._front.desk().caller, self._front.inbox
        try:
            sent = await inbox.send(
                caller,
                await inbox.write_as_file(caller, mailbox, text) if form.get("as_file") else text,
                channel=CHANNEL,
                to=mailbox,
                priority=form.get("priority") or "normal",
                upstream_id=key,
            )
        except TooLong as exc:
            raise _offered(exc) from exc
        said = "Sent." if sent.is_new else "Sent before."
        said = f"{said} The text is in {sent.file} in the task's folder." if sent.file else said
        return self._done(request, mailbox_href(mailbox), said, _sentence(sent), sent.message.id)

    async def seen(self, request: Request) -> Response:
        """Note that the person was shown a timeline from one position up to another, or wants to be done with it."""
        form = await form_of(request)
        place = place_of(form)
        await self._front.views.mark_seen(
            mailbox=place.mailbox,
            source=place.source,
            channel=place.channel,
            since=number(form.get("since")),
            up_to=number(form.get("up_to")),
        )
        return Response(status_code=NO_CONTENT) if is_part(request) else RedirectResponse(place.href, SEE_OTHER)

    async def _reply(self, request: Request, ref: str, text: str, key: str) -> Response:
        caller = self._front.desk().caller
        row = await self._front.inbox.reply(caller, ref, text, edge=CHANNEL if key else "", request=key)
        sentence = "It goes where the message came from."
        return self._done(request, message_href(row.message), "Answered.", sentence)

    def _done(self, request: Request, href: str, said: str, sentence: str, message: str = "") -> Response:
        if not is_part(request):
            return RedirectResponse(href, SEE_OTHER)
        return self._pages.part(
            "sent.html.j2",
            headers={"HX-Trigger": "sent"},
            said=said,
            sentence=sentence,
            message=message,
            key=fresh_id("", 20),
        )


def _offered(error: TooLong) -> TooLong:
    """Return an error with a hint for the page, where a button below it sends the text as a file."""
    if not error.can_be_file:
        return error
    hint = "It can go as a file into the task's folder."
    return TooLong(error.message, hint, length=error.length, limit=error.limit, can_be_file=True)


def _sentence(sent: Sent) -> str:
    return f"It {sent.forecast.sentence}."
