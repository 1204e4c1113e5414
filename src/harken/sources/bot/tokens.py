"""The bot's own token for the Bot Connector: the app's id and secret for an hour's token, which is held and renewed.

The secret is looked up each time a token is asked for, so that a person who replaces it need not restart anything. It
is in no error and no log. Above is `sender.py`; below are the holder of tokens and the wire of `sources/https`.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode

import httpx2
import msgspec

from harken.clock import Clock
from harken.errors import NeedsPerson, Unavailable, UserError
from harken.sources.bot.settings import BotSettings
from harken.sources.https.address import Address
from harken.sources.https.held import Held, Holder, held_until, needs_person, seconds_of
from harken.sources.https.retrying import asked_seconds
from harken.sources.https.wire import Broken, Wire

REQUEST_SECONDS: Final = 20.0
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
        address = Address.parse(settings.token_url, "Microsoft's sign-in service")
        self._wire = Wire(address, verify=verify, request_seconds=REQUEST_SECONDS)
        self._holder = Holder(clock, self._renew)

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return a token, renewed where needed; raises `NeedsPerson` and `Unavailable`."""
        try:
            return await self._holder.token(is_fresh=is_fresh)
        except (NeedsPerson, UserError) as exc:
            self._holder.forget()
            raise needs_person(exc) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    async def _renew(self, *, is_forced: bool) -> Held:
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
        except Broken as exc:
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
        "nothing needs to be done: it is tried again",
        retry_after=asked or RETRY_SECONDS,
    )
