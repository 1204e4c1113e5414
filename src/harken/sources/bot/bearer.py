"""Whether the token of a post is one of Microsoft's Bot Connector for this bot. Pure: the key and the time are given.

Every mistake is `Refused`, in words for our own log: whoever posted hears only that it was refused. What can be
checked without the key is checked first, so that a token that is not for us does not make us ask for keys. Tokens
of the Bot Framework Emulator have another issuer and are refused. Above is `door.py`; below is PyJWT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import jwt
from jwt.types import Options

from harken.errors import Refused
from harken.sources.bot.keys import SigningKey
from harken.sources.bot.settings import BotSettings

MAX_CHARS: Final = 16_384
MAX_KID: Final = 200
SKEW_SECONDS: Final = 300.0
ALGORITHM: Final = "RS256"
MOST_SECONDS: Final = 1e12  # since 1970: far beyond any real token


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token that may be good: nobody has looked at its signature."""

    raw: str = field(repr=False)
    kid: str


def read_bearer(authorization: str, settings: BotSettings, now: datetime) -> Bearer:
    """Return the token of a header if what it says of itself is right."""
    scheme, _, raw = authorization.strip().partition(" ")
    raw = raw.strip()
    if scheme.lower() != "bearer" or not raw:
        raise Refused("There is no token.")
    if len(raw) > MAX_CHARS or not raw.isascii():
        raise Refused("The token is too long to be one.")
    try:
        found = jwt.decode_complete(raw, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise Refused("The token cannot be read.") from None
    header = found["header"]
    kid = header.get("kid")
    if header.get("alg") != ALGORITHM or "crit" in header:
        raise Refused("The token is signed in a way that is not accepted.")
    if not isinstance(kid, str) or not 0 < len(kid) <= MAX_KID:
        raise Refused("The token does not name its key.")
    _check(found["payload"], settings, now)
    return Bearer(raw, kid)


def verify(bearer: Bearer, key: SigningKey, settings: BotSettings, now: datetime) -> Mapping[str, object]:
    """Return what a token says, after its signature was found to be good."""
    try:
        # Times are checked by our own clock, the rest with them.
        claims: Mapping[str, object] = jwt.decode(
            bearer.raw, key.key, algorithms=[ALGORITHM], options=_signature_only()
        )
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise Refused("The signature of the token is wrong.") from None
    _check(claims, settings, now)
    return claims


def check_place(claims: Mapping[str, object], key: SigningKey, *, service_url: str, channel_id: str) -> None:
    """Refuse an activity that comes from elsewhere than its token."""
    if not service_url or claims.get("serviceurl") != service_url:
        raise Refused("The token is for another service address than the activity.")
    if channel_id not in key.endorsements:
        raise Refused("The key of the token does not count for this channel.")


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
        raise Refused("The token cannot be read.")
    if claims.get("iss") != settings.issuer:
        raise Refused("The token was issued by somebody else.")
    audience = claims.get("aud")
    if not isinstance(audience, str) or audience.lower() != settings.app_id:
        raise Refused("The token is for another bot.")
    at = now.timestamp()
    if at > _seconds(claims, "exp") + SKEW_SECONDS:
        raise Refused("The token has ended.")
    if at < _seconds(claims, "nbf") - SKEW_SECONDS:
        raise Refused("The token has not begun yet.")


def _seconds(claims: Mapping[str, object], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST_SECONDS:
        raise Refused("The token does not say when it is valid.")
    return float(value)
