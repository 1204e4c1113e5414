"""A bot as a source: one door, no feeds, the sender of its replies, and how it is doing.

It opens nothing until something is posted or answered. `BotSender` sends replies into the conversations that wrote to
the bot, and into no others: where a reply goes follows from the stored message alone. The Bot Connector takes no key
that would make a second try the same message, and gives no way to look: so a reply is tried again only if it certainly
did not happen. One that may have happened is an error that parks it, and says so. `AppTokens` gets the tokens. Above
are the daemon, which serves the door and closes this, and the outbox, which remembers what was begun.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode

import httpx2
import msgspec

from harken.clock import Clock
from harken.errors import Conflict, Forbidden, HarkenError, NeedsPerson, NotFound, Unavailable, UserError
from harken.memory import json_bytes
from harken.model import AGENT, RUN, TASK, Message, OutgoingReply
from harken.sources.bot.activity import ConversationReference, activity_id_of, upstream_id
from harken.sources.bot.door import BotDoor, BotHealth, BotKeys
from harken.sources.bot.settings import KIND, TEAMS, BotSettings, messaging_endpoint, read_settings
from harken.sources.check import CheckContext, CheckReport, ask_once
from harken.sources.feed import asked_seconds
from harken.sources.http import (
    CachedToken,
    ConnectionBroken,
    HttpAnswer,
    HttpWire,
    ServiceAddress,
    TokenHolder,
    held_until,
    part,
    seconds_of,
)
from harken.sources.payload import json_object
from harken.sources.source import NamedSource, Source, SourceEntry, SourceHealth, SourceState

TOKEN_SECONDS: Final = 20.0
RETRY_SECONDS: Final = 30.0

_NUMBER: Final = re.compile(r"AADSTS(\d{4,9})")
# What a person must do, by the number that Entra gives; numbers change seldom, and without one there is `_OTHER`.
_ADVICE: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "7000215": ("Microsoft does not accept the bot's secret.", "Copy its value, not its id, to where {secret} is"),
        "7000222": ("The bot's secret has ended.", "Make a new one in Azure and put it where {secret} is"),
        "700016": ("The tenant does not know the bot's app.", "Check app_id and tenant of {name}"),
        "90002": ("There is no such tenant.", "Check the tenant of {name}"),
        "900023": ("There is no such tenant.", "Check the tenant of {name}"),
    }
)
_OTHER: Final = ("Microsoft gives the bot no token.", "Check app_id, tenant and secret of {name}")

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


@dataclass(frozen=True, slots=True)
class _Entra:
    """What the token service said, as far as it is looked at."""

    status: int
    said: Mapping[str, object]


class AppTokens:
    """The tokens of one bot."""

    def __init__(
        self, settings: BotSettings, secret: Callable[[], str], clock: Clock, *, verify: ssl.SSLContext | None = None
    ) -> None:
        self._settings = settings
        self._secret = secret
        self._clock = clock
        address = ServiceAddress.parse(settings.token_url, "Microsoft's sign-in service")
        self._wire = HttpWire(address, verify=verify, request_seconds=TOKEN_SECONDS)
        self._holder = TokenHolder(clock, self._renew)

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return a token, renewed where needed; raises `NeedsPerson` and `Unavailable`."""
        return await self._holder.token(is_fresh=is_fresh)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    async def _renew(self, *, is_forced: bool) -> CachedToken:
        del is_forced  # there is nothing to take an old one from
        form = {
            "grant_type": "client_credentials",
            "client_id": self._settings.app_id,
            "client_secret": self._secret(),
            "scope": self._settings.scope,
        }
        answer = await self._ask(urlencode(form).encode())
        token = answer.said.get("access_token")
        if answer.status != HTTPStatus.OK or not isinstance(token, str) or not token.isascii() or not token:
            raise self._refusal(answer)
        return held_until(token, self._clock.now(), seconds_of(answer.said.get("expires_in")))

    async def _ask(self, form: bytes) -> _Entra:
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        try:
            answer = await self._wire.exchange("POST", httpx2.URL(self._settings.token_url), headers, form)
        except ConnectionBroken as exc:
            raise _later(exc.reason) from exc
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise _later(f"it answers {answer.status}", asked_seconds(answer.headers, self._clock.now()))
        try:
            said = msgspec.json.decode(answer.body or b"")
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise _later(f"it answers {answer.status}, with something unreadable")
        return _Entra(answer.status, said)

    def _refusal(self, answer: _Entra) -> NeedsPerson:
        described = answer.said.get("error_description")
        number = _NUMBER.search(described[:2_000]) if isinstance(described, str) else None
        message, action = _ADVICE.get(number[1] if number else "", _OTHER)
        told = f" (AADSTS{number[1]})" if number else f" ({answer.status})"
        action = action.format(secret=f"sources.{self._settings.name}.secret", name=f"sources.{self._settings.name}")
        return NeedsPerson(f"{message[:-1]}{told}.", f"{action}; replies wait until then.", action=action)


def _later(reason: str, asked: float | None = None) -> Unavailable:
    return Unavailable(
        f"The sign-in service gives the bot no token now: {reason}.",
        "nothing needs to be done: Harken tries again",
        retry_after=asked or RETRY_SECONDS,
    )


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
        health: BotHealth,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        self._clock = clock
        self._health = health
        self._verify = verify

    async def send(self, reply: OutgoingReply) -> str:
        """Send a reply at most once and return its upstream id; raises `MaybeSent` where that is not certain."""
        try:
            sent_id = await self._send(reply)
        except NeedsPerson as exc:
            self._health.waits(f"{exc.message} {exc.hint}")
            raise
        self._health.waits("")
        return sent_id

    async def _send(self, reply: OutgoingReply) -> str:
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

    def _reference(self, message: Message) -> ConversationReference:
        if message.source != self._settings.name:
            raise Forbidden("This message did not come through this bot.", "answer it where it came from")
        reference = ConversationReference.of(message.meta)
        if not self._settings.is_service(reference.service_url):
            raise Forbidden(
                "The message came from a service address that answers may not go to.",
                f"if it is your bot service, add its host to sources.{self._settings.name}.service_hosts",
            )
        return reference

    async def _post(self, url: httpx2.URL, body: bytes) -> str:
        """Return the id of what was sent. What it raises other than `MaybeSent` means that nothing was."""
        address = ServiceAddress.parse(f"{url.scheme}://{_netloc(url)}", "Microsoft's bot service")
        wire = HttpWire(address, verify=self._verify, request_seconds=REQUEST_SECONDS)
        try:
            answer = await self._exchange(wire, url, body, is_fresh=False)
            if answer.status == HTTPStatus.UNAUTHORIZED:
                answer = await self._exchange(wire, url, body, is_fresh=True)
        except ConnectionBroken as exc:
            if exc.is_unsent:
                raise Unavailable(
                    f"The bot service: {exc.reason}.", "Harken tries again", retry_after=BUSY_SECONDS
                ) from exc
            raise MaybeSent(exc.reason) from exc
        finally:
            await wire.aclose()
        return self._own_id(answer)

    async def _exchange(self, wire: HttpWire, url: httpx2.URL, body: bytes, *, is_fresh: bool) -> HttpAnswer:
        token = await self._tokens.token(is_fresh=is_fresh)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}
        return await wire.exchange("POST", url, headers, body)

    def _own_id(self, answer: HttpAnswer) -> str:
        status = answer.status
        if status in _OK:
            found = json_object(answer.body).get("id")
            return found[:MAX_ID] if isinstance(found, str) else ""
        if status in _UNKNOWN:
            raise MaybeSent(f"the bot service answered {status}")
        if status in _BUSY:
            asked = asked_seconds(answer.headers, self._clock.now())
            raise Unavailable(
                "The bot service asks us to wait.",
                "nothing is lost: Harken tries again",
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
            return Forbidden(
                f"The bot may not write there ({told}).", "it was blocked, or removed from the conversation"
            )
        case HTTPStatus.NOT_FOUND | HTTPStatus.GONE:
            return NotFound(f"The conversation no longer exists ({told}).", "reach the person another way")
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return UserError(f"The reply is too long for the bot service ({told}).", "shorten it, or send it in parts")
        case _:
            return UserError(f"The bot service does not accept the reply ({told}).", "correct it, then reply again")


def _url(reference: ConversationReference, conversation: str, activity_id: str) -> httpx2.URL:
    root = reference.service_url.rstrip("/")
    return httpx2.URL(f"{root}/v3/conversations/{part(conversation)}/activities/{part(activity_id)}")


def _netloc(url: httpx2.URL) -> str:
    return url.netloc.decode("ascii")


def _body(reply: OutgoingReply, reference: ConversationReference) -> bytes:
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
    error = json_object(body).get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""


class BotSource(NamedSource):
    """One bot. `secret` looks its secret up."""

    def __init__(
        self,
        settings: BotSettings,
        secret: Callable[[], str],
        clock: Clock,
        *,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(settings.name, KIND, settings.address)
        self.settings = settings
        self.keys = BotKeys(settings.openid_url, clock, verify=verify)
        self.tokens = AppTokens(settings, secret, clock, verify=verify)
        self._health = BotHealth(clock)
        self._sender = BotSender(settings, self.tokens, clock, health=self._health, verify=verify)
        self._door = BotDoor(settings, self.keys, self._health, clock)

    @property
    def sender(self) -> BotSender:
        """How people are answered."""
        return self._sender

    def doors(self) -> tuple[BotDoor, ...]:
        """Return its only door."""
        return (self._door,)

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return self._health.read()

    def waits(self, reason: str) -> None:
        """Take note of why replies wait for a person."""
        self._health.waits(reason)

    async def aclose(self) -> None:
        """Close its connections."""
        await self.keys.aclose()
        await self.tokens.aclose()


def make_source(entry: SourceEntry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    settings = read_settings(entry.name, entry.table)
    try:
        return make_bot(settings, entry)
    except (UserError, NeedsPerson) as exc:
        return entry.unready(exc, settings.address)


def make_bot(settings: BotSettings, entry: SourceEntry) -> BotSource:
    """Return the source of these settings; raises `UserError` when certificates it needs are missing.

    Without its secret the bot still gets messages: only answers wait for it.
    """
    secret = partial(entry.secret, settings.secret)
    source = BotSource(settings, secret, entry.clock, verify=entry.certificates(settings.ca))
    try:
        secret()
    except (UserError, NeedsPerson) as exc:
        source.waits(f"{exc.message} {exc.hint}")
    return source


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Ask for a token and for the keys, once, within some seconds."""
    settings = read_settings(entry.name, entry.table)

    async def ask() -> CheckReport:
        bot = make_bot(settings, entry)
        try:
            keys = await bot.keys.count()
            await bot.tokens.token()
        finally:
            await bot.aclose()
        count = "1 key" if keys == 1 else f"{keys} keys"
        endpoint = messaging_endpoint(entry.public_url)
        posted = (
            f"The messaging endpoint is {endpoint}."
            if endpoint
            else "Set hooks.public_url, so that it can be posted to."
        )
        found = f"Microsoft gives the bot a token, and {count} to check posts with. {posted}"
        return CheckReport(state=SourceState.LISTENING, address=settings.address, found=found)

    return ask_once(settings.address, ask, context.seconds, late="Microsoft does not answer in time.")
