"""The keys that Microsoft's Bot Connector signs with: fetched when they are needed, kept, and fetched again in time.

They are used for 24 hours at most and asked for anew after 12. A key that is not among them may be a new one, so it is
looked for, once in 5 minutes at most: whoever sends tokens with invented keys causes no more requests than that. The
address of the keys comes from the OpenID document and must be at the same place. Above is `door.py`; below are the
connections of `sources/https/wire.py` and PyJWT, which reads a key.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import anyio
import httpx2
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from harken.clock import Clock
from harken.errors import HarkenError, Refused, Unavailable
from harken.sources.https.address import Address
from harken.sources.https.wire import Broken, Wire

USED_FOR: Final = timedelta(hours=24)
RENEWED_AFTER: Final = timedelta(hours=12)
LOOKED_FOR_EVERY: Final = timedelta(minutes=5)
TRIED_AGAIN_AFTER: Final = timedelta(seconds=10)
REQUEST_SECONDS: Final = 10.0
MAX_KEYS: Final = 100
MAX_ENDORSEMENTS: Final = 200
MIN_BITS: Final = 2_048

_OK: Final = 200
_log = logging.getLogger("harken.sources.bot")


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and the channels for which what it signs counts."""

    key: RSAPublicKey
    endorsements: frozenset[str]


class Keys:
    """The keys that one OpenID document names."""

    def __init__(self, openid_url: str, clock: Clock, *, verify: ssl.SSLContext | None = None) -> None:
        self._url = openid_url
        self._address = Address.parse(openid_url, "Microsoft's bot service")
        self._wire = Wire(self._address, verify=verify, request_seconds=REQUEST_SECONDS)
        self._clock = clock
        self._one_at_a_time = anyio.Lock()
        self._keys: Mapping[str, SigningKey] = {}
        self._fetched_at: datetime | None = None
        self._failed_at: datetime | None = None
        self._looked_at: datetime | None = None

    async def find(self, kid: str) -> SigningKey:
        """Return a key; raises `Refused` if there is none of that name and `Unavailable` if that cannot be known."""
        if self._is_due():
            await self._renew()
        if kid not in self._keys and self._may_look():
            await self._look_for(kid)
        found = self._keys.get(kid)
        if found is None and self._failed_at is not None:
            raise _away("the key of a token is not known, and they were asked for a moment ago")
        if found is None:
            raise Refused("The token is signed with a key that Microsoft does not name.")
        return found

    async def count(self) -> int:
        """Return how many keys there are now; raises `Unavailable`."""
        await self._renew()
        return len(self._keys)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    def _is_due(self) -> bool:
        return not self._is_within(self._fetched_at, RENEWED_AFTER)

    def _may_look(self) -> bool:
        # A look that failed has told nothing, so the next may come sooner.
        return not self._is_within(self._looked_at, TRIED_AGAIN_AFTER if self._failed_at else LOOKED_FOR_EVERY)

    async def _renew(self) -> None:
        async with self._one_at_a_time:
            if not self._is_due():
                return  # somebody else was faster
            has_usable = bool(self._keys) and self._is_within(self._fetched_at, USED_FOR)
            if self._is_within(self._failed_at, TRIED_AGAIN_AFTER):
                if has_usable:
                    return
                raise _away("they were asked for a moment ago")
            try:
                await self._fetch()
            except Unavailable as exc:
                if not has_usable:
                    raise
                _log.warning("%s The old ones are used until then.", exc.message)

    async def _look_for(self, kid: str) -> None:
        async with self._one_at_a_time:
            if kid in self._keys or not self._may_look():
                return
            self._looked_at = self._clock.now()
            await self._fetch()

    async def _fetch(self) -> None:
        try:
            said = await self._get(httpx2.URL(self._url))
            place = said.get("jwks_uri")
            if not isinstance(place, str):
                raise _away("the OpenID document names no keys")
            keys = _read(await self._get(self._own(place)))
        except Unavailable:
            self._failed_at = self._clock.now()
            raise
        self._keys, self._fetched_at, self._failed_at = keys, self._clock.now(), None

    def _own(self, place: str) -> httpx2.URL:
        try:
            return self._address.link(place)
        except HarkenError as exc:
            raise _away("the OpenID document names keys of somebody else") from exc

    async def _get(self, url: httpx2.URL) -> Mapping[str, object]:
        try:
            answer = await self._wire.exchange("GET", url, {"Accept": "application/json"}, None)
        except Broken as exc:
            raise _away(exc.reason) from exc
        try:
            said = msgspec.json.decode(answer.body or b"") if answer.status == _OK else None
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise _away(f"the service answers {answer.status}, and not with what was asked for")
        return said

    def _is_within(self, moment: datetime | None, span: timedelta) -> bool:
        # A moment in the future was noted by a clock that has been set back since.
        return moment is not None and timedelta(0) <= self._clock.now() - moment < span


def _read(said: Mapping[str, object]) -> dict[str, SigningKey]:
    rows = said.get("keys")
    found: dict[str, SigningKey] = {}
    for row in rows[:MAX_KEYS] if isinstance(rows, list) else ():
        kid = row.get("kid") if isinstance(row, dict) else None
        key = _key(row) if isinstance(row, dict) else None
        if isinstance(kid, str) and key is not None:
            endorsed = row.get("endorsements")
            names = endorsed[:MAX_ENDORSEMENTS] if isinstance(endorsed, list) else []
            found[kid] = SigningKey(key, frozenset(each for each in names if isinstance(each, str)))
    if not found:
        raise _away("there is no key that can be used")
    return found


def _key(row: dict[str, object]) -> RSAPublicKey | None:
    """Return a key that may sign, or nothing for one of another kind."""
    if row.get("kty") != "RSA" or row.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK({"kty": "RSA", "n": row.get("n"), "e": row.get("e")}, algorithm="RS256").key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return key if isinstance(key, RSAPublicKey) and key.key_size >= MIN_BITS else None


def _away(reason: str) -> Unavailable:
    return Unavailable(
        f"The keys of Microsoft's bot service cannot be had: {reason}.",
        "it is tried again; if it goes on, check the network",
        retry_after=TRIED_AGAIN_AFTER.total_seconds(),
    )
