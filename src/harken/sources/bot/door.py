"""The door of a bot: judges what was posted, has it stored, and answers only then.

The token comes first and the body after it: nothing of a body is read before its token is checked. `BotKeys` are the
keys that Microsoft signs with, read from its address and kept for a while. Every refusal looks the same from outside;
the reason is in our log and in the source's health. Above is `surfaces/doors.py`.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import anyio
import httpx2
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.types import Options

from harken.clock import Clock
from harken.errors import Forbidden, HarkenError, Unavailable
from harken.sources.bot.activity import BotActivity, draft_of, read_activity
from harken.sources.bot.settings import PATH, TEAMS, BotSettings
from harken.sources.feed import HealthRecorder, RefusalCount
from harken.sources.http import ConnectionBroken, HttpWire, ServiceAddress
from harken.sources.source import Accept, DoorAnswer, PostedRequest, SourceHealth, SourceState

MAX_CHARS: Final = 16_384
MAX_KID: Final = 200
SKEW_SECONDS: Final = 300.0
ALGORITHM: Final = "RS256"
MAX_SECONDS: Final = 1e12  # since 1970: far beyond any real token

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

MAX_BYTES: Final = 262_144
TAKEN: Final = 200


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token that may be good: its signature is not checked yet."""

    raw: str = field(repr=False)
    kid: str


def read_bearer(authorization: str, settings: BotSettings, now: datetime) -> BearerToken:
    """Return the token of a header if what it says of itself is right."""
    scheme, _, raw = authorization.strip().partition(" ")
    raw = raw.strip()
    if scheme.lower() != "bearer" or not raw:
        raise Forbidden("There is no token.")
    if len(raw) > MAX_CHARS or not raw.isascii():
        raise Forbidden("The token is too long.")
    try:
        found = jwt.decode_complete(raw, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise Forbidden("The token cannot be read.") from None
    header = found["header"]
    kid = header.get("kid")
    if header.get("alg") != ALGORITHM or "crit" in header:
        raise Forbidden("The token's signature algorithm is not accepted.")
    if not isinstance(kid, str) or not 0 < len(kid) <= MAX_KID:
        raise Forbidden("The token does not name its key.")
    _check(found["payload"], settings, now)
    return BearerToken(raw, kid)


def verify(bearer: BearerToken, key: SigningKey, settings: BotSettings, now: datetime) -> Mapping[str, object]:
    """Return what a token says, after its signature was found to be good."""
    try:
        # Times are checked by our own clock, the rest with them.
        claims: Mapping[str, object] = jwt.decode(
            bearer.raw, key.key, algorithms=[ALGORITHM], options=_signature_only()
        )
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise Forbidden("The signature of the token is wrong.") from None
    _check(claims, settings, now)
    return claims


def check_place(claims: Mapping[str, object], key: SigningKey, *, service_url: str, channel_id: str) -> None:
    """Refuse an activity that comes from elsewhere than its token."""
    if not service_url or claims.get("serviceurl") != service_url:
        raise Forbidden("The token is for another service address than the activity.")
    if channel_id not in key.endorsements:
        raise Forbidden("The token's key is not valid for this channel.")


def _signature_only() -> Options:
    return {
        "verify_signature": True,
        "verify_exp": False,
        "verify_nbf": False,
        "verify_iat": False,
        "verify_aud": False,
        "verify_iss": False,
        "verify_sub": False,
        "verify_jti": False,
    }


def _check(claims: object, settings: BotSettings, now: datetime) -> None:
    if not isinstance(claims, Mapping):
        raise Forbidden("The token cannot be read.")
    if claims.get("iss") != settings.issuer:
        raise Forbidden("The token has the wrong issuer.")
    audience = claims.get("aud")
    if not isinstance(audience, str) or audience.lower() != settings.app_id:
        raise Forbidden("The token is for another bot.")
    at = now.timestamp()
    if at > _seconds(claims, "exp") + SKEW_SECONDS:
        raise Forbidden("The token has expired.")
    if at < _seconds(claims, "nbf") - SKEW_SECONDS:
        raise Forbidden("The token is not valid yet.")


def _seconds(claims: Mapping[str, object], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_SECONDS:
        raise Forbidden("The token does not say when it is valid.")
    return float(value)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and the channels for which what it signs counts."""

    key: RSAPublicKey
    endorsements: frozenset[str]


class BotKeys:
    """The keys that one OpenID document names."""

    def __init__(self, openid_url: str, clock: Clock, *, verify: ssl.SSLContext | None = None) -> None:
        self._url = openid_url
        self._address = ServiceAddress.parse(openid_url, "Microsoft's bot service")
        self._wire = HttpWire(self._address, verify=verify, request_seconds=REQUEST_SECONDS)
        self._clock = clock
        self._one_at_a_time = anyio.Lock()
        self._keys: Mapping[str, SigningKey] = {}
        self._fetched_at: datetime | None = None
        self._failed_at: datetime | None = None
        self._looked_at: datetime | None = None

    async def find(self, kid: str) -> SigningKey:
        """Return a key; raises `Forbidden` if there is none of that name and `Unavailable` if that cannot be known."""
        if self._is_due():
            await self._renew()
        if kid not in self._keys and self._may_look():
            await self._look_for(kid)
        found = self._keys.get(kid)
        if found is None and self._failed_at is not None:
            raise _away("the key of a token is not known, and they were asked for a moment ago")
        if found is None:
            raise Forbidden("The token is signed with a key that Microsoft does not publish.")
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
        except ConnectionBroken as exc:
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
        f"The keys of Microsoft's bot service cannot be fetched: {reason}.",
        "Harken tries again; if it goes on, check the network",
        retry_after=TRIED_AGAIN_AFTER.total_seconds(),
    )


class BotDoor:
    """Where the Bot Connector posts activities."""

    def __init__(self, settings: BotSettings, keys: BotKeys, health: BotHealth, clock: Clock) -> None:
        self._settings = settings
        self._keys = keys
        self._health = health
        self._clock = clock

    @property
    def path(self) -> str:
        """Its path."""
        return PATH

    @property
    def max_bytes(self) -> int:
        """How long an activity may be: Teams sends at most about 100 KB."""
        return MAX_BYTES

    async def take(self, posted: PostedRequest, accept: Accept) -> DoorAnswer:
        """Store a message to the bot; an activity that is no message is counted, and answered all the same."""
        try:
            activity = await self._believed(posted)
            draft = draft_of(activity, self._settings.name)
            if draft is None:
                self._health.left_out(activity.type)
                return DoorAnswer(status=TAKEN)
            (is_new,) = await accept([draft])
        except Unavailable as exc:
            self._health.failed(exc.message)
            raise
        except HarkenError as exc:
            self._health.refused(exc.message)
            raise
        self._health.stored(draft.channel, is_new=is_new)
        return DoorAnswer(status=TAKEN)

    async def _believed(self, posted: PostedRequest) -> BotActivity:
        settings, now = self._settings, self._clock.now()
        bearer = read_bearer(posted.headers.get("authorization", ""), settings, now)
        key = await self._keys.find(bearer.kid)
        claims = verify(bearer, key, settings, now)
        activity = read_activity(posted.body)
        check_place(claims, key, service_url=activity.service_url, channel_id=activity.channel_id)
        self._check_allowed(activity)
        return activity

    def _check_allowed(self, activity: BotActivity) -> None:
        if activity.channel_id not in self._settings.channels:
            raise Forbidden(f"The bot is not open for the channel {activity.channel_id[:40]!r}.")
        # Where nobody names a tenant, as on a web page, only an empty list lets it in.
        is_named = bool(activity.tenants) and activity.tenants <= self._settings.tenants
        if self._settings.tenants and not is_named:
            raise Forbidden("The bot is not open for this tenant.")
        if activity.channel_id == TEAMS and len(activity.tenants) > 1:
            raise Forbidden("The activity names two tenants.")


class BotHealth:
    """What was posted to one bot since the daemon started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recorder = HealthRecorder(clock, state=SourceState.LISTENING)
        self._refusals = RefusalCount()
        self._trouble = ""
        self._waiting = ""

    def stored(self, channel: str, *, is_new: bool) -> None:
        """Note what was posted and is stored."""
        self._trouble = ""
        self._recorder.stored([channel] if is_new else [], known=not is_new)

    def left_out(self, what: str) -> None:
        """Note what was posted and is no message, by its type."""
        self._recorder.dropped(what)

    def refused(self, reason: str) -> None:
        """Note a post that was refused, and why."""
        self._refusals.add(reason, self._clock.now())

    def failed(self, reason: str) -> None:
        """Note why nothing can be taken now."""
        self._trouble = reason

    def waits(self, reason: str) -> None:
        """Note why replies wait for a person; nothing when they do not."""
        self._waiting = reason

    def read(self) -> SourceHealth:
        """Return how it is now."""
        many = self._refusals.count
        count = "1 post was refused" if many == 1 else f"{many} posts were refused, the last one"
        waiting = f"Replies wait: {self._waiting}" if self._waiting else ""
        reasons = (waiting, self._trouble, f"{count}: {self._refusals.why}" if many else "")
        return replace(self._recorder.read(), reason=" ".join(filter(None, reasons)))
