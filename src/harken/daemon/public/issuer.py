"""JWTs of a configured issuer: Harken is an OAuth 2.1 resource server, and never an authorization server.

A JWT says only who its holder is: issuer, subject, and that it was made for this address. What its holder may do says
the token that you made for the subject, so that it is listed and revoked as every other. The keys come from the
issuer's own metadata, and are fetched again when a key is not known; PyJWT checks the rest.
"""

from __future__ import annotations

import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import jwt

from harken.clock import Clock
from harken.daemon.public.gate import JwtSubject
from harken.errors import Forbidden, Unavailable

_log = logging.getLogger("harken.public")

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
WELL_KNOWN: Final = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
FETCH_SECONDS: Final = 10.0
MAX_DOCUMENT: Final = 1 << 20
_PART: Final = 1 << 16
MAX_KEYS: Final = 100
KNOWN_FOR: Final = timedelta(hours=12)
ASKED_EVERY: Final = timedelta(minutes=1)  # at most: anybody can name a key that there is not
LEEWAY_SECONDS: Final = 30
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

Fetch: TypeAlias = Callable[[str], bytes]
"""Returns the document at an address; raises `OSError`. Called in a thread."""


class TokenIssuer:
    """Checks JWTs of one issuer for one resource."""

    def __init__(self, issuer: str, resource: str, clock: Clock, fetch: Fetch | None = None) -> None:
        self.name = issuer
        self.resource = resource
        self._clock = clock
        self._fetch = fetch or fetched
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._fetched_at = self._asked_at = clock.now() - 2 * KNOWN_FOR
        self._one_at_a_time = anyio.Lock()

    async def check(self, raw: str) -> JwtSubject:
        """Return the subject of a JWT; raises `Forbidden` for one that is not good here, `Unavailable` without keys."""
        try:
            header = jwt.get_unverified_header(raw)
        except (jwt.PyJWTError, ValueError, RecursionError) as exc:
            raise _not_good("it is no JWT") from exc
        if header.get("alg") not in ALGORITHMS:
            raise _not_good("its algorithm is not one of public keys")
        key = await self._key(str(header.get("kid", "")))
        try:
            claims: Mapping[str, object] = jwt.decode(
                raw,
                key,
                algorithms=[key.algorithm_name],
                audience=self.resource,
                issuer=self.name,
                options={"require": ["exp", "iss", "aud", "sub"], "verify_exp": False, "verify_nbf": False},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as exc:
            raise _not_good(" ".join(str(exc).split())[:120].lower() or "it is not signed right") from exc
        now = self._clock.now().timestamp()
        ends, begins = claims.get("exp"), claims.get("nbf", 0)
        if not isinstance(ends, int | float) or ends + LEEWAY_SECONDS <= now:
            raise _not_good("it has expired")
        if not isinstance(begins, int | float) or begins - LEEWAY_SECONDS > now:
            raise _not_good("it is not good yet")
        return JwtSubject(name=str(claims["sub"]), seconds=ends + LEEWAY_SECONDS - now)

    async def _key(self, kid: str) -> jwt.PyJWK:
        known = self._keys.get(kid)
        if known is not None and (self._one_at_a_time.locked() or self._clock.now() < self._fetched_at + KNOWN_FOR):
            return known  # also while the keys are asked for, which strangers can cause
        async with self._one_at_a_time:
            now = self._clock.now()
            is_old = self._fetched_at + KNOWN_FOR <= now
            if (kid not in self._keys or is_old) and self._asked_at + ASKED_EVERY <= now:
                self._asked_at = now
                try:
                    self._keys = await anyio.to_thread.run_sync(self._read_keys)
                    self._fetched_at = now
                except (OSError, ValueError, RecursionError) as exc:
                    _log.warning("the keys of %s cannot be fetched: %s", self.name, exc)
                    if not self._keys:
                        raise Unavailable(
                            "The keys of the tokens' issuer cannot be fetched.", "Try again in a minute."
                        ) from exc
        found = self._keys.get(kid)
        if found is None:
            raise _not_good("its key is not one of the issuer's")
        return found

    def _read_keys(self) -> Mapping[str, jwt.PyJWK]:
        place = str(self._metadata().get("jwks_uri", ""))
        check_address(place)
        if urlsplit(self.name).scheme == "https" != urlsplit(place).scheme:
            raise ValueError("its keys would be those of a program on this machine")
        rows = _document(self._fetch(place)).get("keys")
        found: dict[str, jwt.PyJWK] = {}
        for row in rows[:MAX_KEYS] if isinstance(rows, list) else ():
            try:
                key = jwt.PyJWK(row)
            except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
                continue
            if key.algorithm_name in ALGORITHMS and row.get("use", "sig") == "sig":
                found[str(row.get("kid", ""))] = key
        if not found:
            raise ValueError("there is no key that can be used")
        return found

    def _metadata(self) -> Mapping[str, Any]:
        parts = urlsplit(self.name)
        path = parts.path.rstrip("/")
        origin = f"{parts.scheme}://{parts.netloc}"
        # A path of the issuer comes last by the one standard, and first by the other.
        for place in (f"{origin}{WELL_KNOWN[0]}{path}", f"{origin}{path}{WELL_KNOWN[1]}"):
            try:
                said = _document(self._fetch(place))
            except (OSError, ValueError, RecursionError):
                continue
            if said.get("issuer") == self.name:
                return said
        raise ValueError("it publishes no metadata under its own name")


def check_address(url: str) -> None:
    """Raise `ValueError` for an address that keys are not fetched from: without TLS only from this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise ValueError("its keys are not behind TLS")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_named: object) -> None:
        """Follow nothing: the issuer's word is good for its own address."""


def fetched(url: str) -> bytes:
    """Return a document; raises `OSError`."""
    check_address(url)
    opener = urllib.request.build_opener(_NoRedirect)
    end = time.monotonic() + FETCH_SECONDS
    data = bytearray()
    with opener.open(url, timeout=FETCH_SECONDS) as answer:
        # Each part for itself: a server that sends a byte now and then would hold a thread for ever.
        while part := answer.read1(_PART):
            data += part
            if len(data) > MAX_DOCUMENT:
                raise OSError("the document is too large")
            if time.monotonic() > end:
                raise OSError("the document takes too long")
    return bytes(data)


def _document(data: bytes) -> Mapping[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def _not_good(reason: str) -> Forbidden:
    return Forbidden(f"This token is not good here: {reason}.", "Sign in again, for this address.")
