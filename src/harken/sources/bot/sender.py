"""Sends replies into the conversations that wrote to the bot, and into no others.

Where a reply goes follows from the stored message alone. The Bot Connector takes no key that would make a second try
the same message, and gives no way to look: so a reply is tried again only if it certainly did not happen. One that may
have happened is an error that parks it, and says so. Above is the outbox, which remembers what was begun; below are the
tokens.
"""

from __future__ import annotations

import re
import ssl
from http import HTTPStatus
from typing import Final

import httpx2
import msgspec

from harken.clock import Clock
from harken.errors import Conflict, HarkenError, NeedsPerson, NotFound, Refused, Unavailable, UserError
from harken.memory import json_bytes
from harken.model import AGENT, RUN, TASK, Message, Outgoing
from harken.sources.bot.reference import Reference, activity_id_of, upstream_id
from harken.sources.bot.settings import TEAMS, BotSettings
from harken.sources.bot.standing import Standing
from harken.sources.bot.tokens import AppTokens
from harken.sources.https.address import Address, part
from harken.sources.https.answer import Answer
from harken.sources.https.retrying import asked_seconds
from harken.sources.https.wire import Broken, Wire

# Microsoft has documented 28, 40 and 100 KB, and larger ones than the first were refused: this is taken everywhere.
MAX_BYTES: Final = 28_000
REQUEST_SECONDS: Final = 30.0
BUSY_SECONDS: Final = 5.0
MAX_ID: Final = 400

_PROGRAMS: Final = (AGENT, TASK, RUN)
_OK: Final = range(200, 300)
_BUSY: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.PRECONDITION_FAILED})  # turned away, both
_UNKNOWN: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, *range(500, 600)})
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_PLAIN: Final = r"[^\[\]\\]|\\."
_PICTURE: Final = re.compile(
    rf"!(?=\[(?:{_PLAIN}|\[(?:{_PLAIN}|\[(?:{_PLAIN}){{0,300}}\]){{0,300}}\]){{0,1000}}\]\()", re.DOTALL
)
_NOT_A_NAME: Final = re.compile(r"[<>&\s]+")


class MaybeSent(Conflict):
    """A reply that may have been sent: it is not sent again."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"It may have been sent: {reason}.", "look into the conversation, and reply again if it is not there"
        )


class BotSender:
    """Answers in the conversations of one bot."""

    def __init__(
        self,
        settings: BotSettings,
        tokens: AppTokens,
        clock: Clock,
        *,
        standing: Standing,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        self._clock = clock
        self._standing = standing
        self._verify = verify

    async def send(self, reply: Outgoing) -> str:
        """Send a reply at most once and return its upstream id; raises `MaybeSent` where that is not certain."""
        try:
            sent_id = await self._send(reply)
        except NeedsPerson as exc:
            self._standing.waits(f"{exc.message} {exc.hint}")
            raise
        self._standing.waits("")
        return sent_id

    async def _send(self, reply: Outgoing) -> str:
        to = reply.to
        reference = self._reference(to)
        url = _url(reference, to.conversation, activity_id_of(to))
        body = _body(reply, reference)
        if reply.tried_at is not None:
            raise MaybeSent("Harken was stopped while it was being sent")
        # Before it is noted as begun: without a token nothing begins.
        await self._tokens.token()
        await reply.hand_over()
        own_id = await self._post(url, body)
        return upstream_id(to.conversation, own_id) if own_id else to.conversation

    def _reference(self, message: Message) -> Reference:
        if message.source != self._settings.name:
            raise Refused("This message did not come through this bot.", "answer it where it came from")
        reference = Reference.of(message.meta)
        if not self._settings.is_service(reference.service_url):
            raise Refused(
                "The message came from a service address that answers may not go to.",
                f"if it is your bot service, add its host to sources.{self._settings.name}.service_hosts",
            )
        return reference

    async def _post(self, url: httpx2.URL, body: bytes) -> str:
        """Return the id of what was sent. What it raises other than `MaybeSent` means that nothing was."""
        address = Address.parse(f"{url.scheme}://{_netloc(url)}", "Microsoft's bot service")
        wire = Wire(address, verify=self._verify, request_seconds=REQUEST_SECONDS)
        try:
            answer = await self._exchange(wire, url, body, is_fresh=False)
            if answer.status == HTTPStatus.UNAUTHORIZED:
                answer = await self._exchange(wire, url, body, is_fresh=True)
        except Broken as exc:
            if exc.is_unsent:
                raise Unavailable(
                    f"The bot service: {exc.reason}.", "it is tried again", retry_after=BUSY_SECONDS
                ) from exc
            raise MaybeSent(exc.reason) from exc
        finally:
            await wire.aclose()
        return self._own_id(answer)

    async def _exchange(self, wire: Wire, url: httpx2.URL, body: bytes, *, is_fresh: bool) -> Answer:
        token = await self._tokens.token(is_fresh=is_fresh)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}
        return await wire.exchange("POST", url, headers, body)

    def _own_id(self, answer: Answer) -> str:
        status = answer.status
        if status in _OK:
            found = _object(answer.body).get("id")
            return found[:MAX_ID] if isinstance(found, str) else ""
        if status in _UNKNOWN:
            raise MaybeSent(f"the bot service answered {status}")
        if status in _BUSY:
            asked = asked_seconds(answer.headers, self._clock.now())
            raise Unavailable(
                "The bot service asks us to wait.",
                "nothing is lost: it is tried again",
                retry_after=asked or BUSY_SECONDS,
            )
        raise _refusal(status, _code(answer.body))


def _refusal(status: int, code: str) -> HarkenError:
    told = f"{status} {code}".strip()
    match status:
        case HTTPStatus.UNAUTHORIZED:
            return NeedsPerson(
                f"The bot service does not accept the bot ({told}).",
                "check in Azure that app_id and tenant are those of the bot",
                action="check app_id and tenant of the bot",
            )
        case HTTPStatus.FORBIDDEN:
            return Refused(f"The bot may not write there ({told}).", "it was blocked, or taken out of the conversation")
        case HTTPStatus.NOT_FOUND | HTTPStatus.GONE:
            return NotFound(f"The conversation is not there any more ({told}).", "reach the person another way")
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return UserError(f"The reply is too long for the bot service ({told}).", "shorten it, or send it in parts")
        case _:
            return UserError(f"The bot service does not accept the reply ({told}).", "correct it, then reply again")


def _url(reference: Reference, conversation: str, activity_id: str) -> httpx2.URL:
    root = reference.service_url.rstrip("/")
    return httpx2.URL(f"{root}/v3/conversations/{part(conversation)}/activities/{part(activity_id)}")


def _netloc(url: httpx2.URL) -> str:
    return url.netloc.decode("ascii")


def _body(reply: Outgoing, reference: Reference) -> bytes:
    if not reply.body.strip():
        raise UserError("The reply is empty.", "write something")
    # A picture is loaded when it is shown: it would tell a stranger that somebody has read it. Its link stays.
    text = _PICTURE.sub("", reply.body)
    entities: list[object] = []
    if reference.channel_id == TEAMS:
        if reference.is_group and reference.user:
            name = _NOT_A_NAME.sub(" ", reply.to.sender.label).strip() or "you"
            mark = f"<at>{name}</at>"
            text = f"{mark} {text}"
            entities.append({"type": "mention", "mentioned": {"id": reference.user, "name": name}, "text": mark})
        if reply.author.startswith(_PROGRAMS):
            entities.append(_by_program())
    activity: dict[str, object] = {
        "type": "message",
        "from": {"id": reference.bot} if reference.bot else None,
        "recipient": {"id": reference.user} if reference.user else None,
        "conversation": {"id": reply.to.conversation},
        "replyToId": activity_id_of(reply.to),
        "text": text,
        "textFormat": "markdown",
        "entities": entities or None,
    }
    body = json_bytes({name: value for name, value in activity.items() if value is not None})
    if len(body) > MAX_BYTES:
        raise UserError(
            f"The reply is too long for a bot: {len(body)} bytes, {MAX_BYTES} fit.", "shorten it, or send it in parts"
        )
    return body


def _by_program() -> dict[str, object]:
    """Return what makes Teams label a message as written by a program."""
    return {
        "type": "https://schema.org/Message",
        "@type": "Message",
        "@context": "https://schema.org",
        "additionalType": ["AIGeneratedContent"],
    }


def _code(body: bytes | None) -> str:
    error = _object(body).get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""


def _object(body: bytes | None) -> dict[str, object]:
    try:
        value = msgspec.json.decode(body) if body else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
