"""Which mail addresses are the account's own: whoever writes to one of them waits for an answer.

The name that somebody signs in with need not be an address of theirs, and an Agent User tells none. So Microsoft is
asked, once for a sign-in and again after a day. Where it does not tell, what is known otherwise is enough: the name
of the sign-in, and what the person configured. What the service says is text from outside: what is no address is left
out. It is kept in memory only. Above is `source.py`, below the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

import anyio

from harken.clock import Clock
from harken.errors import HarkenError, NotFound, Unavailable, UserError
from harken.sources.microsoft.client import GraphClient
from harken.sources.microsoft.responses import Json
from harken.sources.microsoft.settings import MOST_ADDRESSES, GraphSettings, mail_address

ASK_SECONDS: Final = 15.0  # mail waits meanwhile
KEPT: Final = timedelta(days=1)  # an Agent User never signs in anew, and is given other addresses all the same
TROUBLED: Final = timedelta(minutes=5)

# The second for accounts that have no such property: a personal one refuses to be asked for it.
_FORMS: Final[tuple[Mapping[str, str], ...]] = (
    {"$select": "mail,userPrincipalName,proxyAddresses"},
    {"$select": "mail,userPrincipalName"},
)
_PASSING: Final = (Unavailable, NotFound)  # an account that was made just now is not known everywhere yet
_BY_MAIL: Final = "smtp:"  # in upper case the one that is written from; others lead elsewhere, such as `sip:`

_log = logging.getLogger("harken.sources.microsoft")


class OwnAddresses:
    """The addresses of whoever is signed in. `upn` is the name they signed in with, empty if nobody told."""

    def __init__(
        self,
        settings: GraphSettings,
        client: GraphClient,
        clock: Clock,
        *,
        me: Callable[[], str],
        since: Callable[[], datetime | None],
        upn: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._me = me
        self._since = since
        self._upn = upn
        self._asking = anyio.Lock()
        self._asked_of: tuple[str, datetime | None] | None = None
        self._again_at: datetime | None = None
        self._told: frozenset[str] = frozenset()

    def read(self) -> frozenset[str]:
        """Return what is known now of whoever is signed in now."""
        told = self._told if self._asked_of == self._sign_in() else frozenset[str]()
        return told.union(self._settings.addresses, filter(None, [mail_address(self._upn())]))

    async def learn(self) -> None:
        """Ask for them, unless that was done for this sign-in; whatever goes wrong, what is known stays."""
        async with self._asking:
            sign_in = self._sign_in()
            if sign_in == self._asked_of and self._again_at is not None and self._clock.now() < self._again_at:
                return
            found = await self._ask()
            if self._sign_in() != sign_in:
                return  # somebody else signed in meanwhile: whose they are nobody can say
            is_first = sign_in != self._asked_of
            self._asked_of, self._told = sign_in, frozenset() if is_first else self._told
            self._again_at = self._clock.now() + (TROUBLED if isinstance(found, _PASSING) else KEPT)
            if not isinstance(found, HarkenError):
                self._told = found
            elif is_first:
                name = self._settings.name
                _log.info("%s: Microsoft does not tell the addresses of the account: %s", name, found.message)

    def _sign_in(self) -> tuple[str, datetime | None]:
        return self._me(), self._since()

    async def _ask(self) -> frozenset[str] | HarkenError:
        found: frozenset[str] | HarkenError = Unavailable("It does not answer in time.", "it is asked again")
        with anyio.move_on_after(ASK_SECONDS):
            for form in _FORMS:
                try:
                    return addresses_in(await self._client.get("/me", form))
                except UserError as error:
                    found = error
                except HarkenError as error:
                    return error
        return found


def addresses_in(told: Json) -> frozenset[str]:
    """Return the mail addresses in what the service says of an account; what is none is left out."""
    proxies = told.get("proxyAddresses")
    listed = proxies[:MOST_ADDRESSES] if isinstance(proxies, list) else []
    by_mail = [each[len(_BY_MAIL) :] for each in listed if isinstance(each, str) and _is_by_mail(each)]
    texts = [told.get("mail"), told.get("userPrincipalName"), *by_mail]
    return frozenset(filter(None, (mail_address(text) for text in texts if isinstance(text, str))))


def _is_by_mail(proxy: str) -> bool:
    return proxy[: len(_BY_MAIL)].lower() == _BY_MAIL
